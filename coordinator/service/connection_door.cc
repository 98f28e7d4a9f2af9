#include "coordinator/service/connection_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // whose tcp_info has more fields than that of the C library
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace muster {
namespace {

constexpr int kLookEveryMs = 20;
constexpr int kClosed = 7;  // TCP_CLOSE
constexpr int kBacklog = 4096;
constexpr unsigned kUserTimeoutMs = 20'000;  // as gRPC has it
// What the kernel keeps of a client that gRPC has not read, on probation and then.
constexpr int kProbationBuffer = 64 << 10;
constexpr int kBuffer = 1 << 20;

void Set(int fd, int level, int option, int value) {
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

// "10.0.0.1:5", "::1:5": of an address of the kernel.
std::string TextOf(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
  }
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    ::inet_ntop(AF_INET, &address.sin6_addr.s6_addr[12], text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
  }
  return std::string(text) + ":" + std::to_string(ntohs(address.sin6_port));
}

// The same of gRPC's "ipv4:10.0.0.1:5", "ipv6:[::1]:5", "ipv6:%5Bfe80::1%25eth0%5D:5".
std::string TextOf(const std::string& peer) {
  std::string text = peer.substr(std::min(peer.size(), peer.find(':') + 1));
  const std::size_t colon = std::min(text.size(), text.rfind(':'));
  std::string host = text.substr(0, colon);
  if (host.starts_with("%5B")) host.erase(0, 3);
  std::erase(host, '[');
  host.resize(std::min({host.size(), host.find('%'), host.find(']')}));
  return host + text.substr(colon);
}

// A descriptor of the connection from `address`, if `fd`, which is gRPC's, is one still: its number
// may have gone to another meanwhile.
UniqueFd CopyOf(int fd, const std::string& address) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (!copy.valid() || ::getpeername(copy.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) || TextOf(peer) != address)
    return UniqueFd();
  return copy;
}

Result<UniqueFd> Bind(const std::string& address) {
  const HostPort at = SplitAddress(address);
  const bool v6 = at.host.find(':') != std::string::npos;
  UniqueFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "listen on " + address);
  Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // What follows is inherited by the connections.
  Set(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  Set(fd.get(), SOL_SOCKET, SO_RCVBUF, kProbationBuffer);
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_in);
  if (v6) {
    Set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    auto& in = reinterpret_cast<sockaddr_in6&>(storage);
    in = {.sin6_family = AF_INET6, .sin6_port = htons(at.port)};
    ::inet_pton(AF_INET6, at.host.c_str(), &in.sin6_addr);
    size = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(storage);
    in = {.sin_family = AF_INET, .sin_port = htons(at.port)};
    ::inet_pton(AF_INET, at.host.c_str(), &in.sin_addr);
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return Unavailable(address + " is taken by another program");
    return ErrnoStatus(errno, "listen on " + address);
  }
  return fd;
}

}  // namespace

Result<std::unique_ptr<ConnectionDoor>> ConnectionDoor::Open(const std::string& address,
                                                             const ProbationLimits& limits) {
  MUSTER_ASSIGN_OR_RETURN(UniqueFd listener, Bind(address));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "listen on " + address);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return ErrnoStatus(errno, "listen on " + address);
  const int port =
      ntohs(bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                                       : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  return std::unique_ptr<ConnectionDoor>(
      new ConnectionDoor(std::move(listener), std::move(wake), port, limits));
}

ConnectionDoor::ConnectionDoor(UniqueFd listener, UniqueFd wake, int port,
                               const ProbationLimits& limits)
    : listener_(std::move(listener)), wake_(std::move(wake)), port_(port), probation_(limits) {}

ConnectionDoor::~ConnectionDoor() { Stop(); }

void ConnectionDoor::Start(std::unique_ptr<Acceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionDoor::Stop() {
  stopping_ = true;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void ConnectionDoor::Run() {
  while (!stopping_) {
    // As many as fit between two looks.
    if (WaitForClient())
      for (int accepted = 0; accepted < 64 && AcceptOne(); ++accepted) {
      }
    Look();
  }
}

bool ConnectionDoor::WaitForClient() {
  Duration wait = Duration::zero();
  {
    const std::lock_guard lock(mutex_);
    std::vector<Probation::Id> gone;
    wait = probation_.MakeRoom(std::chrono::steady_clock::now(), &gone);
    CutOff(gone);
  }
  pollfd fds[] = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  int timeout = on_probation_ == 0 ? -1 : kLookEveryMs;
  if (wait > Duration::zero()) {
    fds[1].events = 0;
    timeout = std::min<int>(timeout, 1 + static_cast<int>(ToSeconds(wait) * 1000));
  }
  (void)::poll(fds, 2, timeout);
  return (fds[1].revents & POLLIN) != 0;
}

bool ConnectionDoor::AcceptOne() {
  Acceptor::NewConnectionParameters handed{.listener_fd = listener_.get()};
  {
    const std::lock_guard lock(mutex_);
    std::vector<Probation::Id> gone;
    const TimePoint now = std::chrono::steady_clock::now();
    if (probation_.MakeRoom(now, &gone) > Duration::zero()) return false;
    CutOff(gone);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    UniqueFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      // Out of descriptors: the client waits, and this thread must not spin.
      if (errno == EMFILE || errno == ENFILE) (void)::poll(nullptr, 0, kLookEveryMs);
      return false;
    }
    const Probation::Id id = ++last_id_;
    const std::string text = TextOf(address);
    // One that is gone, and was not looked at since.
    if (const auto before = by_address_.find(text); before != by_address_.end()) {
      probation_.End(before->second);
      Forget(before->second);
    }
    probation_.Begin(id, now);
    by_address_[text] = id;
    clients_.emplace(id, Client{text, fd.get()});
    on_probation_ = clients_.size();
    handed.fd = fd.release();
  }
  acceptor_->HandleNewConnection(&handed);
  return true;
}

void ConnectionDoor::Look() {
  const std::lock_guard lock(mutex_);
  const TimePoint now = std::chrono::steady_clock::now();
  std::vector<Probation::Id> closed;
  for (const auto& [id, client] : clients_) {
    const UniqueFd fd = CopyOf(client.fd, client.address);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!fd.valid() || ::getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        info.tcpi_state == kClosed) {
      closed.push_back(id);
    } else {
      int unread = 0;
      (void)::ioctl(fd.get(), FIONREAD, &unread);
      probation_.Sent(id, info.tcpi_bytes_received, static_cast<std::uint64_t>(unread), now);
    }
  }
  for (const Probation::Id id : closed) {
    probation_.End(id);
    Forget(id);
  }
  CutOff(probation_.TakeOverdue(now));
}

// By a reset, with which the kernel forgets what gRPC has not read. gRPC sees the end of it.
void ConnectionDoor::CutOff(const std::vector<Probation::Id>& ids) {
  for (const Probation::Id id : ids) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) continue;
    const UniqueFd fd = CopyOf(found->second.fd, found->second.address);
    const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (fd.valid()) (void)::connect(fd.get(), &none, sizeof none);
    Forget(id);
  }
}

void ConnectionDoor::Forget(Probation::Id id) {
  const auto client = clients_.find(id);
  by_address_.erase(client->second.address);
  clients_.erase(client);
  on_probation_ = clients_.size();
}

void ConnectionDoor::Admit(const std::string& peer) {
  if (on_probation_ == 0) return;
  const std::string address = TextOf(peer);
  const std::lock_guard lock(mutex_);
  const auto named = by_address_.find(address);
  if (named == by_address_.end()) return;
  const Probation::Id id = named->second;
  const UniqueFd fd = CopyOf(clients_.at(id).fd, address);
  if (fd.valid()) Set(fd.get(), SOL_SOCKET, SO_RCVBUF, kBuffer);
  probation_.End(id);
  Forget(id);
}

}  // namespace muster
