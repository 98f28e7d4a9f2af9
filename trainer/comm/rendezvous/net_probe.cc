#include "trainer/comm/rendezvous/net_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "trainer/comm/rendezvous/tcp_liveness.h"

namespace muster {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(10);
constexpr Duration kLongestTry = std::chrono::seconds(1);

// kDeadlineExceeded: this address does not answer now.
Result<UniqueFd> TryConnect(const addrinfo& target, const Interrupt& interrupt, Deadline deadline) {
  UniqueFd fd(socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  MUSTER_RETURN_IF_ERROR(SetTcpLiveness(fd.get()));
  if (connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return ErrnoStatus(errno, "connect");
    const Deadline end = Deadline::After(std::min<Duration>(deadline.Remaining(), kLongestTry));
    MUSTER_RETURN_IF_ERROR(interrupt.AwaitReady(fd.get(), POLLOUT, end));
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return ErrnoStatus(error, "connect");
  }
  const int at_once = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
  return fd;
}

Result<UniqueFd> TryAll(const std::string& address, int port, const Interrupt& interrupt,
                        Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Unavailable(std::string("cannot be resolved: ") + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  Status last = Unavailable("has no address");
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    auto connected = TryConnect(*target, interrupt, deadline);
    if (connected.ok()) return connected;
    last = connected.status();
  }
  return last;
}

}  // namespace

Result<UniqueFd> ConnectWhenUp(const std::string& address, int port, const Interrupt& interrupt,
                               Deadline deadline) {
  for (;;) {
    auto connected = TryAll(address, port, interrupt, deadline);
    if (connected.ok()) return connected;
    const std::string place = address + ":" + std::to_string(port);
    if (deadline.Expired()) {
      return DeadlineExceeded("the store of rank 0 at " + place +
                              " was not reached in time: " + connected.status().message());
    }
    if (!interrupt.Pause(std::min(kPause, deadline.Remaining()))) {
      return Cancelled("waiting for the store at " + place + " was aborted");
    }
  }
}

Result<std::string> LocalAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  char text[NI_MAXHOST] = {};
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  const int error = getnameinfo(reinterpret_cast<sockaddr*>(&storage), length, text, sizeof(text),
                                nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return Unavailable(std::string("getnameinfo: ") + gai_strerror(error));
  return std::string(text);
}

}  // namespace muster
