#include "coordinator/service/grpc_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "common/rpc/channel.h"
#include "coordinator/service/client_service.h"
#include "coordinator/service/worker_service.h"

namespace muster {

struct GrpcServer::Impl {
  std::unique_ptr<grpc::Server> server;
  std::vector<std::string> addresses;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

Result<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const std::vector<std::string>& addresses,
                                                       ClientService& clients,
                                                       WorkerService& workers) {
  std::vector<int> ports(addresses.size());
  grpc::ServerBuilder builder;
  for (std::size_t i = 0; i < addresses.size(); ++i)
    builder.AddListeningPort(addresses[i], grpc::InsecureServerCredentials(), &ports[i]);
  builder.RegisterService(&clients);
  builder.RegisterService(&workers);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // With SO_REUSEPORT a second program on the port would go unnoticed.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients of ours ping also while nothing is said. After a stall pings come close together, which
  // must not cost a connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  auto impl = std::make_unique<Impl>();
  impl->server = builder.BuildAndStart();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::string& address = addresses[i];
    const bool is_unix = address.starts_with("unix:");
    if (!impl->server || (ports[i] <= 0 && !is_unix))
      return Unavailable(address + " is taken by another program; choose another with --listen");
    impl->addresses.push_back(
        is_unix ? address : address.substr(0, address.rfind(':')) + ":" + std::to_string(ports[i]));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

const std::vector<std::string>& GrpcServer::addresses() const { return impl_->addresses; }

void GrpcServer::Shutdown(Duration grace) {
  impl_->server->Shutdown(std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::milliseconds>(grace));
}

}  // namespace muster
