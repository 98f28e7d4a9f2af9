#include "trainer/comm/rendezvous/tcp_store.h"

#include <dlfcn.h>
#include <netdb.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include "trainer/comm/rendezvous/tcp_liveness.h"

// c10d looks up the name of every peer that it connects to or accepts, only to mention it in a log
// line. Where no name server answers, each look-up blocks for seconds, in the server for all ranks.
// This definition stands before libc's for the whole process and asks no server.
extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host,
                           socklen_t host_bytes, char* service, socklen_t service_bytes,
                           int flags) {
  static const auto libc =
      reinterpret_cast<decltype(&::getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  return libc(address, length, host, host_bytes, service, service_bytes,
              flags | NI_NUMERICHOST | NI_NUMERICSERV);
}

namespace muster {
namespace {

// c10d's messages carry a stack trace after the first line.
std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

class C10dServer final : public TcpStoreServer {
 public:
  explicit C10dServer(c10::intrusive_ptr<c10d::TCPStore> store) : store_(std::move(store)) {}

 private:
  const c10::intrusive_ptr<c10d::TCPStore> store_;
};

}  // namespace

// c10d's store is its server's first client: that connection never leaves this process.
Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::Start(StoreEndpoint endpoint,
                                                              Deadline deadline) {
  const std::string name = "store at " + endpoint.address + ":" + std::to_string(endpoint.port);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(endpoint.port);
  options.isServer = true;
  options.waitWorkers = false;
  // c10d takes no time-out below a few milliseconds for its own handshake.
  options.timeout = std::max(deadline.RemainingMillis(), std::chrono::milliseconds(100));
  if (endpoint.listen_fd.valid()) {
    MUSTER_RETURN_IF_ERROR(SetTcpLiveness(endpoint.listen_fd.get()));
    // The server closes the descriptor; so it does when it fails.
    options.masterListenFd = endpoint.listen_fd.release();
  }
  try {
    return std::unique_ptr<TcpStoreServer>(std::make_unique<C10dServer>(
        c10::make_intrusive<c10d::TCPStore>(endpoint.address, options)));
  } catch (const std::exception& error) {
    return Unavailable(name + ": " + FirstLine(error));
  } catch (...) {
    return Unavailable(name + ": unknown error");
  }
}

}  // namespace muster
