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
#include "coordinator/service/client_service.h"
#include "coordinator/service/enrol_service.h"
#include "coordinator/service/worker_service.h"

namespace muster {

namespace {

void SetLimits(grpc::ServerBuilder& builder) {
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
  builder.SetMaxReceiveMessageSize(kJoinMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kJoinMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, 10'000);
}

// Enrol as seen by clients without a certificate.
class JoinOnly final : public v1::Enrol::CallbackService {
 public:
  explicit JoinOnly(EnrolService& enrolment) : enrolment_(enrolment) {}
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return enrolment_.Join(context, request, response);
  }

 private:
  EnrolService& enrolment_;
};

Status Taken(const std::string& address, const std::string& flag) {
  // gRPC does not say why.
  if (const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); !probe.valid())
    return ErrnoStatus(errno, "listen on " + address);
  return Unavailable(address + " is taken by another program; choose another with " + flag);
}

// As it was bound, the port chosen by the kernel where it was 0.
std::string Bound(const std::string& address, int port) {
  if (IsUnixAddress(address)) return address;
  return address.substr(0, address.rfind(':')) + ":" + std::to_string(port);
}

}  // namespace

struct GrpcServer::Impl {
  explicit Impl(EnrolService& enrolment) : join_only(enrolment) {}

  Status ListenForJoins(const GrpcAddresses& addresses, const GrpcServices& services);

  JoinOnly join_only;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> join_server;
  std::vector<std::string> addresses;
  std::string tls_address;
  std::string join_address;
};

Status GrpcServer::Impl::ListenForJoins(const GrpcAddresses& addresses,
                                        const GrpcServices& services) {
  if (addresses.join.empty()) return OkStatus();
  int port = 0;
  grpc::ServerBuilder builder;
  MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                          TlsServerCredentials(addresses.credentials_dir, services.authenticator,
                                               ClientCertificate::kNone));
  builder.AddListeningPort(addresses.join, credentials, &port);
  builder.RegisterService(&join_only);
  SetJoinLimits(builder);
  join_server = builder.BuildAndStart();
  if (!join_server || port <= 0) return Taken(addresses.join, "--join-listen");
  join_address = Bound(addresses.join, port);
  return OkStatus();
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

Result<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const GrpcAddresses& addresses,
                                                       const GrpcServices& services) {
  std::vector<int> ports(addresses.plain.size());
  int tls_port = 0;
  grpc::ServerBuilder builder;
  for (std::size_t i = 0; i < ports.size(); ++i)
    builder.AddListeningPort(addresses.plain[i], grpc::InsecureServerCredentials(), &ports[i]);
  if (!addresses.tls.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        const std::shared_ptr<grpc::ServerCredentials> credentials,
        TlsServerCredentials(addresses.credentials_dir, services.authenticator));
    builder.AddListeningPort(addresses.tls, credentials, &tls_port);
  }
  builder.RegisterService(&services.clients);
  builder.RegisterService(&services.workers);
  builder.RegisterService(&services.enrolment);
  SetLimits(builder);
  auto impl = std::make_unique<Impl>(services.enrolment);
  impl->server = builder.BuildAndStart();
  const bool tls_failed = !addresses.tls.empty() && tls_port <= 0;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = addresses.plain[i];
    if (!impl->server || (ports[i] <= 0 && !IsUnixAddress(address)))
      return tls_failed ? Taken(addresses.tls, "--tls-listen") : Taken(address, "--listen");
    impl->addresses.push_back(Bound(address, ports[i]));
  }
  if (tls_failed) return Taken(addresses.tls, "--tls-listen");
  if (!addresses.tls.empty()) impl->tls_address = Bound(addresses.tls, tls_port);
  MUSTER_RETURN_IF_ERROR(impl->ListenForJoins(addresses, services));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

const std::vector<std::string>& GrpcServer::addresses() const { return impl_->addresses; }
const std::string& GrpcServer::tls_address() const { return impl_->tls_address; }
const std::string& GrpcServer::join_address() const { return impl_->join_address; }

void GrpcServer::Shutdown(Duration grace) {
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::milliseconds>(grace);
  if (impl_->join_server) impl_->join_server->Shutdown(deadline);
  impl_->server->Shutdown(deadline);
}

}  // namespace muster
