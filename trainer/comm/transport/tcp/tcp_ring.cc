#include "trainer/comm/transport/tcp/tcp_ring.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <utility>
#include <vector>

#include "trainer/comm/interrupt.h"
#include "trainer/comm/rendezvous/peer_proof.h"
#include "trainer/comm/rendezvous/tcp_liveness.h"
#include "trainer/comm/transport/tcp/tcp_link.h"

namespace muster {
namespace {

// Clients that have proved nothing yet; one more drops the oldest. A rank that is dropped in a
// crowd comes again.
constexpr std::size_t kMaxUnproved = 256;

std::string Name(int rank) { return "rank " + std::to_string(rank); }

// What a connection that is accepted has too.
Result<UniqueFd> OpenSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  MUSTER_RETURN_IF_ERROR(SetTcpLiveness(fd.get()));
  const int at_once = 1;
  if (::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once)) != 0)
    return ErrnoStatus(errno, "TCP_NODELAY");
  return fd;
}

Result<UniqueFd> ListenOn(const std::string& address) {
  const std::string what = "cannot listen on " + address;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), nullptr, &hints, &found);
  if (error != 0) return Unavailable(what + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  MUSTER_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(found->ai_family));
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return Unavailable(what + ": " + std::strerror(errno));
  }
  return fd;
}

// Adds what has come of a proof. False: no more will.
bool HearProof(const UniqueFd& socket, std::string* heard) {
  char bytes[kProofBytes];
  const ssize_t n = ::recv(socket.get(), bytes, kProofBytes - heard->size(), MSG_DONTWAIT);
  if (n > 0) heard->append(bytes, static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

// False: errno says why. A socket that has said nothing has room for it.
bool SayProof(const UniqueFd& socket, const std::string& proof) {
  return ::send(socket.get(), proof.data(), proof.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

class RingForming {
 public:
  RingForming(StoreMeeting& meeting, std::string token, std::string prefix, int rank, int size,
              Deadline deadline)
      : meeting_(meeting),
        token_(std::move(token)),
        prefix_(std::move(prefix)),
        rank_(rank),
        left_((rank + size - 1) % size),
        right_((rank + 1) % size),
        deadline_(deadline) {}

  Result<std::unique_ptr<RingLink>> Run() {
    const StoreMeeting::OnCancel cancel(meeting_, [this] { interrupt_.Raise(); });
    MUSTER_RETURN_IF_ERROR(Introduce());
    MUSTER_RETURN_IF_ERROR(ConnectToRight());
    while (!from_left_.valid() || !right_proved_) MUSTER_RETURN_IF_ERROR(Step());
    return std::unique_ptr<RingLink>(std::make_unique<TcpLink>(
        TcpNeighbour{std::move(from_left_), left_}, TcpNeighbour{std::move(to_right_), right_}));
  }

 private:
  struct Client {
    UniqueFd socket;
    std::string heard;
  };

  // Each rank's word in the store is its nonce, then the socket's address.
  Status Introduce() {
    MUSTER_ASSIGN_OR_RETURN(listener_, ListenOn(meeting_.address()));
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
      return ErrnoStatus(errno, "getsockname");
    const std::string stem = prefix_ + "tcp/";
    const std::string nonce = Nonce();
    MUSTER_RETURN_IF_ERROR(
        meeting_.Publish(stem + std::to_string(rank_),
                         nonce + std::string(reinterpret_cast<const char*>(&address), length)));
    MUSTER_ASSIGN_OR_RETURN(const std::string left,
                            meeting_.Await(stem + std::to_string(left_), left_, deadline_));
    MUSTER_ASSIGN_OR_RETURN(const std::string right,
                            meeting_.Await(stem + std::to_string(right_), right_, deadline_));
    if (left.size() <= kNonceBytes || right.size() <= kNonceBytes ||
        right.size() > kNonceBytes + sizeof(right_address_)) {
      return Internal("a broken address of a neighbour");
    }
    right_length_ = static_cast<socklen_t>(right.size() - kNonceBytes);
    std::memcpy(&right_address_, right.data() + kNonceBytes, right_length_);
    // No proof of one end is one of the other's, though a ring of two has the same pair twice.
    const std::string connects = "ring connects " + prefix_;
    const std::string accepts = "ring accepts " + prefix_;
    said_to_left_ = PeerProof(token_, accepts, rank_, left_, left.substr(0, kNonceBytes));
    left_says_ = PeerProof(token_, connects, left_, rank_, nonce);
    said_to_right_ = PeerProof(token_, connects, rank_, right_, right.substr(0, kNonceBytes));
    right_says_ = PeerProof(token_, accepts, right_, rank_, nonce);
    return OkStatus();
  }

  Status ConnectToRight() {
    connected_ = false;
    heard_from_right_.clear();
    MUSTER_ASSIGN_OR_RETURN(to_right_, OpenSocket(right_address_.ss_family));
    if (::connect(to_right_.get(), reinterpret_cast<const sockaddr*>(&right_address_),
                  right_length_) != 0 &&
        errno != EINPROGRESS) {
      return CannotConnect(errno);
    }
    return OkStatus();
  }

  Status CannotConnect(int error) const {
    return Unavailable("cannot connect to " + Name(right_) + ": " + std::strerror(error));
  }

  Status Step() {
    entries_.assign({{listener_.get(), POLLIN, 0},
                     {right_proved_ ? -1 : to_right_.get(),
                      static_cast<short>(connected_ ? POLLIN : POLLOUT), 0}});
    for (const Client& client : clients_) entries_.push_back({client.socket.get(), POLLIN, 0});
    const Status ready = interrupt_.AwaitAny(entries_, deadline_);
    if (ready.code() == StatusCode::kCancelled) return Cancelled("forming the gang was aborted");
    if (ready.code() == StatusCode::kDeadlineExceeded) {
      return DeadlineExceeded(right_proved_ ? Name(left_) + " did not connect in time"
                                            : Name(right_) + " did not answer in time");
    }
    MUSTER_RETURN_IF_ERROR(ready);
    if (entries_[1].revents != 0) MUSTER_RETURN_IF_ERROR(GoOnWithRight());
    HearClients();
    return entries_[0].revents != 0 && listener_.valid() ? Accept() : OkStatus();
  }

  Status GoOnWithRight() {
    if (!connected_) {
      connected_ = SayProof(to_right_, said_to_right_);
      return connected_ ? OkStatus() : CannotConnect(errno);
    }
    // It has gone, or too many clients were there.
    if (!HearProof(to_right_, &heard_from_right_)) return ConnectToRight();
    if (heard_from_right_.size() < kProofBytes) return OkStatus();
    right_proved_ = SameProof(heard_from_right_, right_says_);
    return right_proved_ ? OkStatus()
                         : Unavailable(Name(right_) + " does not know this generation's token");
  }

  void HearClients() {
    auto entry = entries_.begin() + 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++entry) {
      const bool stays = entry->revents == 0 || Hear(*client);
      client = stays ? std::next(client) : clients_.erase(client);
      if (!from_left_.valid()) continue;
      listener_.reset();
      clients_.clear();
      return;
    }
  }

  // False: it has no business here any more.
  bool Hear(Client& client) {
    if (!HearProof(client.socket, &client.heard)) return false;
    if (client.heard.size() < kProofBytes) return true;
    // One that has proved something else learns from the answer that this is not its neighbour.
    (void)SayProof(client.socket, said_to_left_);
    if (SameProof(client.heard, left_says_)) from_left_ = std::move(client.socket);
    return false;
  }

  Status Accept() {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool crowded = !fd.valid() && (errno == EMFILE || errno == ENFILE);
    if (crowded && clients_.empty()) return ErrnoStatus(errno, "accepting " + Name(left_));
    if (crowded || clients_.size() == kMaxUnproved) clients_.pop_front();
    if (fd.valid()) clients_.push_back({std::move(fd), ""});
    return OkStatus();
  }

  StoreMeeting& meeting_;
  const std::string token_;
  const std::string prefix_;
  const int rank_;
  const int left_;
  const int right_;
  const Deadline deadline_;
  Interrupt interrupt_;
  std::vector<pollfd> entries_;

  UniqueFd listener_;  // until the left neighbour has come
  std::deque<Client> clients_;
  UniqueFd from_left_;
  sockaddr_storage right_address_{};
  socklen_t right_length_ = 0;
  UniqueFd to_right_;
  bool connected_ = false;
  std::string heard_from_right_;
  bool right_proved_ = false;
  std::string said_to_left_, left_says_, said_to_right_, right_says_;
};

}  // namespace

Result<std::unique_ptr<RingLink>> ConnectTcpRing(StoreMeeting& meeting, const std::string& token,
                                                 const std::string& prefix, int rank, int size,
                                                 Deadline deadline) {
  return RingForming(meeting, token, prefix, rank, size, deadline).Run();
}

}  // namespace muster
