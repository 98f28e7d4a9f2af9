#include "trainer/comm/rendezvous/tcp_liveness.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace muster {
namespace {

constexpr int kGiveUpMilliseconds = 5000;
constexpr int kIdleSeconds = 2;
constexpr int kProbeSeconds = 1;
constexpr int kProbes = 3;

bool IsSameEndpoint(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto& x = reinterpret_cast<const sockaddr_in&>(a);
    const auto& y = reinterpret_cast<const sockaddr_in&>(b);
    return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  if (a.ss_family != AF_INET6) return false;
  const auto& x = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& y = reinterpret_cast<const sockaddr_in6&>(b);
  return x.sin6_port == y.sin6_port &&
         std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof(in6_addr)) == 0;
}

// A connected TCP socket with one of the addresses at either end.
bool ConnectsTo(int fd, const std::vector<sockaddr_storage>& addresses) {
  int protocol = 0;
  socklen_t length = sizeof(protocol);
  if (::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0) return false;
  sockaddr_storage ends[2] = {};
  socklen_t own_length = sizeof(ends[0]);
  socklen_t peer_length = sizeof(ends[1]);
  if (protocol != IPPROTO_TCP ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends[0]), &own_length) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&ends[1]), &peer_length) != 0) {
    return false;
  }
  return std::ranges::any_of(addresses, [&](const sockaddr_storage& address) {
    return IsSameEndpoint(address, ends[0]) || IsSameEndpoint(address, ends[1]);
  });
}

}  // namespace

Status SetTcpLiveness(int fd) {
  const struct {
    int level;
    int name;
    int value;
  } kOptions[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds},
                  {IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds},
                  {IPPROTO_TCP, TCP_KEEPCNT, kProbes},
                  {IPPROTO_TCP, TCP_USER_TIMEOUT, kGiveUpMilliseconds}};
  for (const auto& option : kOptions) {
    if (::setsockopt(fd, option.level, option.name, &option.value, sizeof(option.value)) != 0) {
      return ErrnoStatus(errno, "setting the timeout of a TCP socket");
    }
  }
  return OkStatus();
}

int SetTcpLivenessAt(const std::vector<sockaddr_storage>& addresses) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  int found = 0;
  while (directory != nullptr) {
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || !ConnectsTo(fd, addresses)) continue;
    if (SetTcpLiveness(fd).ok()) ++found;
  }
  return found;
}

}  // namespace muster
