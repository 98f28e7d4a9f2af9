#include "trainer/distributed/net_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(10);
constexpr Duration kLongestTry = std::chrono::seconds(1);

Result<std::string> NumericLocalAddress(int fd) {
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

Result<std::string> TryConnect(const addrinfo& target, Deadline deadline) {
  UniqueFd fd(socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return ErrnoStatus(errno, "connect");
    pollfd ready{fd.get(), POLLOUT, 0};
    const auto wait = std::min<Duration>(deadline.Remaining(), kLongestTry);
    const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
    if (poll(&ready, 1, static_cast<int>(wait_ms)) <= 0) return DeadlineExceeded("no answer");
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return ErrnoStatus(error, "connect");
  }
  return NumericLocalAddress(fd.get());
}

Result<std::string> TryAll(const std::string& address, int port, Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Unavailable(std::string("cannot be resolved: ") + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  Status last = Unavailable("has no address");
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    auto local = TryConnect(*target, deadline);
    if (local.ok()) return local;
    last = local.status();
  }
  return last;
}

}  // namespace

Result<std::string> WaitForPort(const std::string& address, int port, Deadline deadline,
                                const std::function<bool(Duration)>& pause) {
  for (;;) {
    auto local = TryAll(address, port, deadline);
    if (local.ok()) return local;
    const std::string place = address + ":" + std::to_string(port);
    if (deadline.Expired()) {
      return DeadlineExceeded("the store of rank 0 at " + place +
                              " was not reached in time: " + local.status().message());
    }
    if (!pause(std::min(kPause, deadline.Remaining()))) {
      return Cancelled("waiting for the store at " + place + " was aborted");
    }
  }
}

}  // namespace muster
