#include "trainer/comm/rendezvous/tcp_liveness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

namespace muster {
namespace {

constexpr int kIdleSeconds = 2;
constexpr int kProbeSeconds = 1;
constexpr int kProbes = 13;

}  // namespace

Status SetTcpLiveness(int fd) {
  const struct {
    int level;
    int name;
    int value;
  } kOptions[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds},
                  {IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds},
                  {IPPROTO_TCP, TCP_KEEPCNT, kProbes}};
  for (const auto& option : kOptions) {
    if (::setsockopt(fd, option.level, option.name, &option.value, sizeof(option.value)) != 0) {
      return ErrnoStatus(errno, "setting the timeout of a TCP socket");
    }
  }
  return OkStatus();
}

}  // namespace muster
