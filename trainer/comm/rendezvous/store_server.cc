#include "trainer/comm/rendezvous/store_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>

#include "common/control_pipe/trainer_protocol.h"
#include "trainer/comm/rendezvous/tcp_store.h"

namespace muster {
namespace {

// Where the server's own client reaches the socket.
Result<StoreEndpoint> EndpointOf(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return ErrnoStatus(errno, "getsockname of MUSTER_LISTEN_FD");
  }
  char text[INET6_ADDRSTRLEN] = {};
  StoreEndpoint endpoint;
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    endpoint.port = ntohs(address.sin_port);
    endpoint.address = address.sin_addr.s_addr == htonl(INADDR_ANY) ? "127.0.0.1" : text;
  } else if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    endpoint.port = ntohs(address.sin6_port);
    endpoint.address = IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr) ? "::1" : text;
  } else {
    return InvalidArgument("MUSTER_LISTEN_FD is not a TCP socket");
  }
  endpoint.listen_fd = UniqueFd(fd);
  return endpoint;
}

Result<std::unique_ptr<TcpStoreServer>> Serve(const GetEnv& get) {
  MUSTER_ASSIGN_OR_RETURN(const RankEnv env, ReadRankEnv(get));
  if (env.listen_fd < 0) {
    return InvalidArgument(std::string(kListenFdVariable) +
                           " is not set: the store serves on a socket that its parent has bound");
  }
  MUSTER_ASSIGN_OR_RETURN(StoreEndpoint endpoint, EndpointOf(env.listen_fd));
  return TcpStoreServer::Start(std::move(endpoint), Deadline::After(std::chrono::seconds(30)));
}

}  // namespace

int RunStore(const GetEnv& get) {
  // Threads that the store starts inherit the mask, so the signals stay for sigwait.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  // A guardian's children end with it from their fork on; this only makes the end an orderly one.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const auto server = Serve(get);
  if (!server.ok()) {
    std::fprintf(stderr, "muster-trainer store: %s\n", server.status().message().c_str());
    return server.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
  }
  int signal = 0;
  while (sigwait(&ends, &signal) != 0) {
  }
  return kExitOk;
}

}  // namespace muster
