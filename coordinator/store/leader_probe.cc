#include "coordinator/store/leader_probe.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/endpoint.h"

namespace muster {
namespace {

constexpr int kPauseMillis = 500;
constexpr int kPauseOnceRefusedMillis = 100;
constexpr int kConnectMillis = 500;
// A leader that is restarted by its supervisor listens again between two refusals.
constexpr int kRefusals = 2;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Null: it is no IP:PORT.
Addresses Parse(const std::string& address) {
  if (!CheckTlsListenAddress(address).ok()) return Addresses(nullptr, &::freeaddrinfo);
  const HostPort place = SplitAddress(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found) != 0)
    found = nullptr;
  return Addresses(found, &::freeaddrinfo);
}

// True: it was stopped meanwhile.
bool Pause(int stopped, int millis) {
  pollfd stop{stopped, POLLIN, 0};
  return ::poll(&stop, 1, millis) > 0;
}

// 0 for a connection, else its error; ETIMEDOUT after kConnectMillis, ECANCELED once stopped.
int Connect(const addrinfo& to, int stopped) {
  const UniqueFd fd(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready[] = {{stopped, POLLIN, 0}, {fd.get(), POLLOUT, 0}};
  const int count = ::poll(ready, 2, kConnectMillis);
  if (ready[0].revents != 0) return ECANCELED;
  if (count <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

void Watch(const Addresses& leader, int stopped, const std::function<void()>& gone) {
  bool answered = false;
  for (int refusals = 0;;) {
    const int error = Connect(*leader, stopped);
    if (error == ECANCELED) return;
    answered = answered || error == 0;
    refusals = answered && error == ECONNREFUSED ? refusals + 1 : 0;
    if (refusals == kRefusals) return gone();
    if (Pause(stopped, refusals > 0 ? kPauseOnceRefusedMillis : kPauseMillis)) return;
  }
}

}  // namespace

LeaderProbe::LeaderProbe(const std::string& address, std::function<void()> gone)
    : stopped_(::eventfd(0, EFD_CLOEXEC)) {
  Addresses leader = Parse(address);
  if (!leader || !stopped_.valid()) return;
  thread_ =
      std::thread([leader = std::move(leader), stopped = stopped_.get(), gone = std::move(gone)] {
        ::pthread_setname_np(::pthread_self(), "leader probe");
        Watch(leader, stopped, gone);
      });
}

LeaderProbe::~LeaderProbe() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stopped_.get(), 1);
  thread_.join();
}

}  // namespace muster
