#include "trainer/comm/rendezvous/gang_store.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "trainer/comm/rendezvous/peer_proof.h"
#include "trainer/comm/rendezvous/store_queries.h"

namespace muster {
namespace {

constexpr std::size_t kHelloBytes =
    kAuthenticatedGreeting.size() + sizeof(std::uint32_t) + kNonceBytes;
// A rank that does not take its answers is not well, and one that asks for more is not ours.
constexpr std::size_t kMaxBufferedBytes = std::size_t{64} << 20;
constexpr int kSweepMillis = 200;
constexpr int kEventsAtOnce = 256;
// Then those who are connected already have their turn, however many more wait outside.
constexpr int kAcceptsAtOnce = 64;
// A trainer opens files as well.
constexpr rlim_t kShareOfDescriptors = 4;
constexpr std::uint64_t kMaxNotes = 10;

UniqueFd NonBlocking(UniqueFd fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) fd.reset();
  return fd;
}

std::size_t UnauthenticatedLimit() {
  rlimit open_files{};
  if (::getrlimit(RLIMIT_NOFILE, &open_files) != 0) return GangStore::kMaxUnauthenticated;
  return std::min<std::size_t>(GangStore::kMaxUnauthenticated,
                               open_files.rlim_cur / kShareOfDescriptors);
}

}  // namespace

class GangStore::Service {
 public:
  Service(UniqueFd listener, UniqueFd epoll, int stop, std::string token, Duration handshake_limit,
          std::atomic<std::uint64_t>& unauthenticated)
      : listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        stop_(stop),
        token_(std::move(token)),
        handshake_limit_(handshake_limit),
        unauthenticated_(unauthenticated) {}

  Status Begin() {
    MUSTER_RETURN_IF_ERROR(Watch(listener_.get(), EPOLLIN));
    return Watch(stop_, EPOLLIN);
  }

  void Run() {
    std::array<epoll_event, kEventsAtOnce> events;
    for (;;) {
      const int timeout = unproved_ > 0 || !accepting_ ? kSweepMillis : -1;
      const int n = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, timeout);
      if (n < 0 && errno != EINTR) return;
      for (int i = 0; i < n; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == stop_) return;
        if (fd == listener_.get()) {
          AcceptSome();
        } else if (const auto it = connections_.find(fd); it != connections_.end()) {
          if (!Serve(it->second)) Drop(it);
        }
      }
      if (const TimePoint now = SystemClock().Now(); now >= next_sweep_) Sweep(now);
    }
  }

 private:
  enum class Stage { kHello, kProof, kOpen };
  struct Connection {
    UniqueFd fd;
    TimePoint opened;
    std::uint64_t number = 0;
    Stage stage = Stage::kHello;
    std::string expected;  // the proof that opens it
    std::string in;
    StoreQueries::Session session;
    bool wants_to_write = false;
  };
  using Connections = std::map<int, Connection>;

  Status Watch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return ErrnoStatus(errno, "epoll_ctl");
    return OkStatus();
  }

  void AcceptSome() {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.valid()) {
        if (unproved_ >= unauthenticated_limit_) (void)DropOldest();
        Admit(std::move(fd));
      } else if (errno == EMFILE || errno == ENFILE) {
        // The oldest unauthenticated peer makes room. Without unauthenticated peers others must,
        // until the next sweep.
        if (!DropOldest()) return Accept(false);
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }

  void Admit(UniqueFd fd) {
    const int number = fd.get();
    if (!Watch(number, EPOLLIN).ok()) return;
    Connection& connection = connections_[number];
    connection.fd = std::move(fd);
    connection.opened = SystemClock().Now();
    connection.number = ++accepted_;
    ++unproved_;
  }

  void Accept(bool accepting) {
    epoll_event event{};
    event.events = accepting ? static_cast<std::uint32_t>(EPOLLIN) : 0U;
    event.data.fd = listener_.get();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event) == 0)
      accepting_ = accepting;
  }

  // False: it is to be dropped.
  bool Serve(Connection& c) {
    bool ended = false;
    if (!Receive(c, &ended)) return false;
    if (c.stage != Stage::kOpen && !AtTheDoor(c)) return false;
    if (c.stage == Stage::kOpen && !queries_.Take(c.fd.get(), c.in, c.session)) return false;
    for (const int fd : queries_.TakeAnswered()) {
      const auto answered = connections_.find(fd);
      if (answered == connections_.end() || !Flush(answered->second)) lost_.push_back(fd);
    }
    const bool flushed = Flush(c);
    DropLost(c.fd.get());
    return flushed && !ended;
  }

  bool Receive(Connection& c, bool* ended) {
    char buffer[16384];
    for (;;) {
      // An unauthenticated peer is not read further than the proof needs.
      const std::size_t limit =
          c.stage == Stage::kOpen ? sizeof(buffer) : kHelloBytes + kProofBytes;
      const ssize_t n = ::recv(c.fd.get(), buffer, limit, 0);
      if (n > 0) {
        c.in.append(buffer, static_cast<std::size_t>(n));
        if (c.stage != Stage::kOpen) return true;
        if (c.in.size() > kMaxBufferedBytes) return false;
      } else if (n == 0) {
        *ended = true;
        return true;
      } else if (errno == EAGAIN) {
        return true;
      } else if (errno != EINTR) {
        return false;
      }
    }
  }

  bool AtTheDoor(Connection& c) {
    const std::size_t known = std::min(c.in.size(), kAuthenticatedGreeting.size());
    if (c.stage == Stage::kHello) {
      // Garbage is seen at its first byte.
      if (std::string_view(c.in).substr(0, known) != kAuthenticatedGreeting.substr(0, known))
        return false;
      if (c.in.size() < kHelloBytes) return true;
      std::uint32_t rank = 0;
      std::memcpy(&rank, c.in.data() + kAuthenticatedGreeting.size(), sizeof(rank));
      if (rank > INT32_MAX) return false;
      const std::string own = Nonce();
      const std::string nonces = c.in.substr(kHelloBytes - kNonceBytes, kNonceBytes) + own;
      const int client = static_cast<int>(rank);
      c.session.out += own + PeerProof(token_, kStoreServes, 0, client, nonces);
      c.expected = PeerProof(token_, kStoreAsks, client, 0, nonces);
      c.in.erase(0, kHelloBytes);
      c.stage = Stage::kProof;
    }
    if (c.in.size() < kProofBytes) return true;
    if (!SameProof(std::string_view(c.in).substr(0, kProofBytes), c.expected)) return false;
    c.in.erase(0, kProofBytes);
    c.stage = Stage::kOpen;
    --unproved_;
    return true;
  }

  bool Flush(Connection& c) {
    std::string& out = c.session.out;
    while (!out.empty()) {
      const ssize_t n = ::send(c.fd.get(), out.data(), out.size(), MSG_NOSIGNAL);
      if (n > 0) {
        out.erase(0, static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        break;
      } else if (errno != EINTR) {
        return false;
      }
    }
    if (out.size() > kMaxBufferedBytes) return false;
    if (c.wants_to_write == !out.empty()) return true;
    c.wants_to_write = !out.empty();
    epoll_event event{};
    event.events = EPOLLIN | (c.wants_to_write ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
    event.data.fd = c.fd.get();
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.fd.get(), &event) == 0;
  }

  void DropLost(int but) {
    for (const int fd : std::exchange(lost_, {})) {
      const auto it = connections_.find(fd);
      if (fd != but && it != connections_.end()) Drop(it);
    }
  }

  void Drop(Connections::iterator it) {
    Connection& c = it->second;
    if (c.stage != Stage::kOpen) {
      --unproved_;
      Note(c);
    }
    queries_.Forget(it->first);
    connections_.erase(it);
  }

  void Note(const Connection& c) {
    const std::uint64_t count = ++unauthenticated_;
    if (count > kMaxNotes) return;
    std::fprintf(stderr,
                 "rendezvous: a connection was dropped that did not show this generation's token "
                 "(%s)%s\n",
                 c.stage == Stage::kHello ? "no greeting" : "no proof",
                 count == kMaxNotes ? "; further ones are only counted" : "");
  }

  Connections::iterator Oldest() {
    auto oldest = connections_.end();
    for (auto it = connections_.begin(); it != connections_.end(); ++it) {
      const bool unauthenticated = it->second.stage != Stage::kOpen;
      if (unauthenticated &&
          (oldest == connections_.end() || it->second.number < oldest->second.number))
        oldest = it;
    }
    return oldest;
  }

  bool DropOldest() {
    const auto oldest = Oldest();
    if (oldest == connections_.end()) return false;
    Drop(oldest);
    return true;
  }

  void Sweep(TimePoint now) {
    next_sweep_ = now + std::chrono::milliseconds(kSweepMillis);
    if (!accepting_) Accept(true);
    if (unproved_ == 0) return;
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      const Connection& c = it->second;
      if (c.stage != Stage::kOpen && c.opened + handshake_limit_ < now) Drop(it);
      it = next;
    }
  }

  const UniqueFd listener_;
  const UniqueFd epoll_;
  const int stop_;
  const std::string token_;
  const Duration handshake_limit_;
  std::atomic<std::uint64_t>& unauthenticated_;
  StoreQueries queries_;
  Connections connections_;
  std::vector<int> lost_;
  const std::size_t unauthenticated_limit_ = UnauthenticatedLimit();
  std::size_t unproved_ = 0;
  std::uint64_t accepted_ = 0;
  bool accepting_ = true;
  TimePoint next_sweep_{};
};

Result<std::unique_ptr<GangStore>> GangStore::Start(UniqueFd listener, std::string token,
                                                    Duration handshake_limit) {
  listener = NonBlocking(std::move(listener));
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  std::unique_ptr<GangStore> store(new GangStore());
  store->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener.valid() || !epoll.valid() || !store->stop_.valid())
    return ErrnoStatus(errno, "the rendezvous' sockets");
  auto service =
      std::make_unique<Service>(std::move(listener), std::move(epoll), store->stop_.get(),
                                std::move(token), handshake_limit, store->unauthenticated_);
  MUSTER_RETURN_IF_ERROR(service->Begin());
  store->thread_ = std::thread([service = std::move(service)] { service->Run(); });
  return store;
}

GangStore::~GangStore() {
  (void)::eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

}  // namespace muster
