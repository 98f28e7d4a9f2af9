#include "coordinator/service/grpc_server.h"

#include <sys/socket.h>

#include <cerrno>

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "common/base/unique_fd.h"
#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/tls.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/connection_door.h"
#include "coordinator/service/enrol_service.h"
#include "coordinator/service/login_service.h"

namespace muster {

namespace {

// What a client sends is read in pieces: what a piece holds cannot be stopped any more.
constexpr int kReadBytes = 16 << 10;
// Limit of one connection: programs have one for each stream or call.
constexpr int kMaxStreams = 256;

void SetLimits(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // With SO_REUSEPORT a second program on the port would not be detected.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Pings that measure the bandwidth, several a second of each new connection: messages are small.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Muster's clients also ping while they send nothing. After a stall pings arrive close together,
  // which must not cost a connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// The limits for a client that only joins, with room for many that arrive at once.
constexpr std::size_t kJoinMemory = 64 << 20;
constexpr int kJoinMessageBytes = 256 << 10;
constexpr int kJoinMetadataBytes = 4 << 10;

void SetJoinLimits(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("join");
  quota.Resize(kJoinMemory);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  builder.SetMaxReceiveMessageSize(kJoinMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kJoinMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, 10'000);
}

// Those that join are never admitted: each has one call.
constexpr ProbationLimits kJoinProbation = {.bytes = kJoinMessageBytes + (64 << 10)};

// Enrol as seen by clients without a certificate.
class JoinOnly final : public v1::Enrol::CallbackService {
 public:
  JoinOnly(EnrolService& enrolment, LoginService& logins)
      : enrolment_(enrolment), logins_(logins) {}
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return enrolment_.Join(context, request, response);
  }
  grpc::ServerUnaryReactor* Issuers(grpc::CallbackServerContext* context, const v1::IssuersRequest*,
                                    v1::IssuersResponse* response) override {
    return logins_.Issuers(context, response);
  }
  grpc::ServerUnaryReactor* Login(grpc::CallbackServerContext* context,
                                  const v1::LoginRequest* request,
                                  v1::LoginResponse* response) override {
    return logins_.Login(context, request, response);
  }

 private:
  EnrolService& enrolment_;
  LoginService& logins_;
};

class JoinOfStandby final : public v1::Enrol::CallbackService {
 public:
  JoinOfStandby(EnrolService& enrolment, RefuseLogin refuse)
      : enrolment_(enrolment), refuse_(std::move(refuse)) {}
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return enrolment_.Join(context, request, response);
  }
  grpc::ServerUnaryReactor* Issuers(grpc::CallbackServerContext* context, const v1::IssuersRequest*,
                                    v1::IssuersResponse*) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Login(grpc::CallbackServerContext* context, const v1::LoginRequest*,
                                  v1::LoginResponse*) override {
    return Refuse(context);
  }

 private:
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refuse_(*context));
    return reactor;
  }

  EnrolService& enrolment_;
  const RefuseLogin refuse_;
};

Status Taken(const std::string& address, const std::string& flag) {
  // gRPC does not say why.
  if (const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); !probe.valid())
    return ErrnoStatus(errno, "listen on " + address);
  return Unavailable(address + " is taken by another program; choose another with " + flag);
}

constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;

Result<std::unique_ptr<ConnectionDoor>> Open(const std::string& address,
                                             const ProbationLimits& limits,
                                             const std::string& flag) {
  auto door = ConnectionDoor::Open(address, limits);
  if (door.status().code() == StatusCode::kUnavailable) return Taken(address, flag);
  return door;
}

// As it was bound, the port chosen by the kernel where it was 0.
std::string Bound(const std::string& address, int port) {
  if (IsUnixAddress(address)) return address;
  return address.substr(0, address.rfind(':')) + ":" + std::to_string(port);
}

}  // namespace

std::unique_ptr<grpc::Service> MakeJoinService(EnrolService& enrolment, LoginService& logins) {
  return std::make_unique<JoinOnly>(enrolment, logins);
}

std::unique_ptr<grpc::Service> MakeJoinService(EnrolService& enrolment, RefuseLogin refuse) {
  return std::make_unique<JoinOfStandby>(enrolment, std::move(refuse));
}

struct GrpcServer::Impl {
  using Acceptor = std::unique_ptr<ConnectionDoor::Acceptor>;

  Status ListenForJoins(const GrpcAddresses& addresses);

  GrpcServices services;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> join_server;
  // After the servers, whose connections come through them.
  std::shared_ptr<ConnectionDoor> tls_door;
  std::unique_ptr<ConnectionDoor> join_door;
  std::vector<std::string> addresses;
  std::string tls_address;
  std::string join_address;
};

Status GrpcServer::Impl::ListenForJoins(const GrpcAddresses& addresses) {
  if (addresses.join.empty()) return OkStatus();
  grpc::ServerBuilder builder;
  MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                          TlsServerCredentials(addresses.credentials_dir, services.authenticator,
                                               ClientCertificate::kNone));
  MUSTER_ASSIGN_OR_RETURN(join_door, Open(addresses.join, kJoinProbation, "--join-listen"));
  Acceptor acceptor = builder.experimental().AddExternalConnectionAcceptor(kFromFd, credentials);
  builder.RegisterService(services.join.get());
  SetJoinLimits(builder);
  join_server = builder.BuildAndStart();
  if (!join_server) return Internal("gRPC did not start a server for --join-listen");
  join_address = Bound(addresses.join, join_door->port());
  join_door->Start(std::move(acceptor));
  return OkStatus();
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

Result<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const GrpcAddresses& addresses,
                                                       GrpcServices given) {
  std::vector<int> ports(addresses.plain.size());
  grpc::ServerBuilder builder;
  auto impl = std::make_unique<Impl>();
  impl->services = std::move(given);
  const GrpcServices& services = impl->services;
  Impl::Acceptor acceptor;
  for (std::size_t i = 0; i < ports.size(); ++i)
    builder.AddListeningPort(addresses.plain[i], grpc::InsecureServerCredentials(), &ports[i]);
  if (!addresses.tls.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        const std::shared_ptr<grpc::ServerCredentials> credentials,
        TlsServerCredentials(addresses.credentials_dir, services.authenticator,
                             ClientCertificate::kRequired, addresses.clients_root));
    MUSTER_ASSIGN_OR_RETURN(impl->tls_door, Open(addresses.tls, {}, "--tls-listen"));
    acceptor = builder.experimental().AddExternalConnectionAcceptor(kFromFd, credentials);
    services.authenticator->OnAdmission(
        [door = std::weak_ptr(impl->tls_door)](const std::string& peer) {
          if (const auto open = door.lock()) open->Admit(peer);
        });
  }
  for (grpc::Service* service : services.services) builder.RegisterService(service);
  if (services.others != nullptr) builder.RegisterCallbackGenericService(services.others);
  SetLimits(builder);
  impl->server = builder.BuildAndStart();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = addresses.plain[i];
    if (!impl->server || (ports[i] <= 0 && !IsUnixAddress(address)))
      return Taken(address, "--listen");
    impl->addresses.push_back(Bound(address, ports[i]));
  }
  if (impl->tls_door) {
    impl->tls_address = Bound(addresses.tls, impl->tls_door->port());
    impl->tls_door->Start(std::move(acceptor));
  }
  MUSTER_RETURN_IF_ERROR(impl->ListenForJoins(addresses));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

const std::vector<std::string>& GrpcServer::addresses() const { return impl_->addresses; }
const std::string& GrpcServer::tls_address() const { return impl_->tls_address; }
const std::string& GrpcServer::join_address() const { return impl_->join_address; }

void GrpcServer::Shutdown(Duration grace) {
  const auto deadline = SystemDeadline(grace);
  if (impl_->tls_door) impl_->tls_door->Stop();
  if (impl_->join_door) impl_->join_door->Stop();
  if (impl_->join_server) impl_->join_server->Shutdown(deadline);
  impl_->server->Shutdown(deadline);
}

}  // namespace muster
