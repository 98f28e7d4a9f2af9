#include "cli/slurm/clock_listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

namespace muster {
namespace {

// All nodes of a large gang may connect at once.
constexpr int kBacklog = 256;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> Numeric(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (failed != 0)
    return InvalidArgument("'" + host + "' is not a numeric address: " + ::gai_strerror(failed));
  return Addresses(list);
}

Result<std::string> PortOf(int listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return ErrnoStatus(errno, "getsockname");
  char port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port,
                    NI_NUMERICSERV) != 0)
    return Internal("could not determine the port of a socket");
  return std::string(port);
}

// 0 when it is ready; else an errno.
int Await(int fd, short events, const Deadline& deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, static_cast<int>(deadline.RemainingMillis().count()));
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

Result<UniqueFd> ConnectTo(const std::string& address, const Deadline& deadline) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return InvalidArgument("'" + address + "' is not HOST:PORT");
  const bool bracketed = address.front() == '[' && colon > 1;
  const std::string host = bracketed ? address.substr(1, colon - 2) : address.substr(0, colon);
  MUSTER_ASSIGN_OR_RETURN(const Addresses list, Numeric(host, address.substr(colon + 1)));
  UniqueFd fd(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  int failed = ::connect(fd.get(), list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  if (failed == EINPROGRESS) {
    failed = Await(fd.get(), POLLOUT, deadline);
    socklen_t size = sizeof failed;
    if (failed == 0 && ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0)
      failed = errno;
  }
  if (failed != 0) return ErrnoStatus(failed, "connect to " + address);
  return fd;
}

}  // namespace

Result<std::unique_ptr<ClockListener>> ClockListener::Open(const std::string& host) {
  MUSTER_ASSIGN_OR_RETURN(const Addresses list, Numeric(host, "0"));
  UniqueFd listener(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!listener.valid() || !stop.valid()) return ErrnoStatus(errno, "socket");
  if (::bind(listener.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(listener.get(), kBacklog) != 0)
    return ErrnoStatus(errno, "listen at " + host);
  MUSTER_ASSIGN_OR_RETURN(const std::string port, PortOf(listener.get()));
  const bool v6 = list->ai_family == AF_INET6;
  return std::unique_ptr<ClockListener>(new ClockListener(
      std::move(listener), std::move(stop), (v6 ? "[" + host + "]" : host) + ":" + port));
}

ClockListener::ClockListener(UniqueFd listener, UniqueFd stop, std::string address)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      address_(std::move(address)),
      thread_([this] { Serve(); }) {}

ClockListener::~ClockListener() {
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void ClockListener::Serve() const {
  pollfd entries[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer.valid()) continue;
    // A few bytes always fit into a socket's buffer.
    const std::string now = std::to_string(SystemClock().UnixMillis());
    (void)!::send(peer.get(), now.data(), now.size(), MSG_NOSIGNAL);
  }
}

Result<std::int64_t> AskClock(const std::string& address, Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo(address, deadline));
  const std::int64_t before = SystemClock().UnixMillis();
  std::string text;
  for (;;) {
    if (const int failed = Await(fd.get(), POLLIN, deadline); failed != 0)
      return ErrnoStatus(failed, "read from " + address);
    char part[64];
    const ssize_t got = ::recv(fd.get(), part, sizeof part, 0);
    if (got < 0) return ErrnoStatus(errno, "read from " + address);
    if (got == 0 || text.size() > sizeof part) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  const std::int64_t after = SystemClock().UnixMillis();
  std::int64_t theirs = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), theirs);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size())
    return Internal(address + " did not send its time: '" + text + "'");
  return theirs - (before + after) / 2;
}

}  // namespace muster
