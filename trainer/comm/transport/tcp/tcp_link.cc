#include "trainer/comm/transport/tcp/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace muster {
namespace {

constexpr std::size_t kHeadBytes = sizeof(TcpMessageHead);
constexpr int kAtOnce = MSG_DONTWAIT | MSG_NOSIGNAL;

Status Lost(int rank, const std::string& why) {
  return Unavailable("lost rank " + std::to_string(rank) + ": " + why);
}
Status Failed(int rank, int error) { return Lost(rank, std::strerror(error)); }
Status GaveUp(int rank) { return Lost(rank, "it gave up its generation"); }
Status HungUp(int rank) { return Lost(rank, "it closed the connection"); }

int ErrorOf(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::string Describe(const TcpMessageHead& head) {
  return "message " + std::to_string(head.number) + " of " + std::to_string(head.bytes) + " bytes";
}

}  // namespace

void TcpLink::Stream::Post(void* data, std::size_t bytes) {
  const TcpMessageHead head{posted++, bytes};
  messages.push_back({head, head, static_cast<std::byte*>(data)});
}

msghdr TcpLink::Stream::Next(Pieces& pieces) {
  std::size_t count = 0;
  std::size_t skip = moved;
  const auto add = [&](void* data, std::size_t bytes) {
    const std::size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (skipped < bytes)
      pieces[count++] = {static_cast<std::byte*>(data) + skipped, bytes - skipped};
  };
  for (std::size_t i = done; i < messages.size() && count + 2 <= pieces.size(); ++i) {
    add(&messages[i].head, kHeadBytes);
    add(messages[i].data, messages[i].expected.bytes);
  }
  msghdr next{};
  next.msg_iov = pieces.data();
  next.msg_iovlen = count;
  return next;
}

TcpLink::TcpLink(TcpNeighbour left, TcpNeighbour right)
    : left_(std::move(left)), right_(std::move(right)) {}

TcpLink::~TcpLink() {
  if (!closed_) (void)::send(left_.socket.get(), &kTcpGoodbyeWord, 1, kAtOnce);
}

void TcpLink::Close() {
  std::lock_guard lock(mutex_);
  if (closed_.exchange(true)) return;
  (void)::send(left_.socket.get(), &kTcpAlarmWord, 1, kAtOnce);
  // Who is in the middle of a message sees that it ends.
  if (sends_.moved == 0) (void)::send(right_.socket.get(), &kTcpAlarm, kHeadBytes, kAtOnce);
  ::shutdown(left_.socket.get(), SHUT_WR);
  ::shutdown(right_.socket.get(), SHUT_WR);
  interrupt_.Raise();
}

Status TcpLink::Ended(Status status) {
  if (!status.ok()) Close();
  return status;
}

void TcpLink::Drop() {
  std::lock_guard lock(mutex_);
  sends_ = {};
  receives_ = {};
}

Status TcpLink::PostSend(const void* data, std::size_t bytes) {
  sends_.Post(const_cast<void*>(data), bytes);
  return Ended(Send());
}

Status TcpLink::PostReceive(void* data, std::size_t bytes) {
  receives_.Post(data, bytes);
  return OkStatus();
}

Status TcpLink::WaitSend(Deadline deadline) {
  return Ended(Wait(sends_, "sending to rank " + std::to_string(right_.rank), deadline));
}

Status TcpLink::WaitReceive(Deadline deadline) {
  return Ended(Wait(receives_, "receiving from rank " + std::to_string(left_.rank), deadline));
}

Status TcpLink::Wait(Stream& stream, const std::string& what, Deadline deadline) {
  for (;;) {
    if (closed_) return Cancelled("the communicator was aborted");
    if (stream.done > 0) {
      stream.messages.pop_front();
      --stream.done;
      return OkStatus();
    }
    MUSTER_RETURN_IF_ERROR(Send());
    MUSTER_RETURN_IF_ERROR(Receive());
    if (stream.done > 0) continue;
    if (deadline.Expired()) return DeadlineExceeded(what + " timed out");
    if (!sends_.can_move() && !receives_.can_move()) MUSTER_RETURN_IF_ERROR(Poll(deadline));
  }
}

// An alarm that is there already comes before all that can still be sent and received.
Status TcpLink::Send() {
  if (!sends_.can_move()) return OkStatus();
  MUSTER_RETURN_IF_ERROR(HearRight());
  Pieces pieces;
  const msghdr next = sends_.Next(pieces);
  std::lock_guard lock(mutex_);
  if (closed_) return OkStatus();
  const ssize_t n = ::sendmsg(right_.socket.get(), &next, kAtOnce);
  if (n >= 0) return Advance(sends_, static_cast<std::size_t>(n));
  if (errno == EINTR) return OkStatus();
  sends_.blocked = errno == EAGAIN;
  if (sends_.blocked) return OkStatus();
  const Status failed = Failed(right_.rank, errno);
  // It may have said why.
  MUSTER_RETURN_IF_ERROR(HearRight());
  return failed;
}

Status TcpLink::Receive() {
  if (!receives_.can_move()) return OkStatus();
  Pieces pieces;
  msghdr next = receives_.Next(pieces);
  const ssize_t n = ::recvmsg(left_.socket.get(), &next, MSG_DONTWAIT);
  if (n > 0) return Advance(receives_, static_cast<std::size_t>(n));
  if (n == 0) return HungUp(left_.rank);
  if (errno == EINTR) return OkStatus();
  receives_.blocked = errno == EAGAIN;
  return receives_.blocked ? OkStatus() : Failed(left_.rank, errno);
}

Status TcpLink::Advance(Stream& stream, std::size_t bytes) {
  stream.moved += bytes;
  while (stream.under_way() && stream.moved >= kHeadBytes) {
    const Message& message = stream.messages[stream.done];
    if (message.head == kTcpAlarm) return GaveUp(left_.rank);
    if (message.head != message.expected) {
      return Internal("rank " + std::to_string(left_.rank) + " sent " + Describe(message.head) +
                      " and this one receives " + Describe(message.expected) +
                      ": the ranks do not run the same operations");
    }
    if (stream.moved < kHeadBytes + message.head.bytes) break;
    stream.moved -= kHeadBytes + message.head.bytes;
    ++stream.done;
  }
  return OkStatus();
}

// The left one is watched for its end also where nothing is awaited from it. Once it has finished
// in order, whatever becomes of its connection is no news.
Status TcpLink::Poll(Deadline deadline) {
  const bool receives = receives_.under_way();
  const bool sends = sends_.under_way();
  const bool watches_left = receives || !left_finished_;
  const bool watches_right = sends || !right_said_goodbye_;
  entries_.assign(
      {{watches_left ? left_.socket.get() : -1, static_cast<short>(receives ? POLLIN : POLLRDHUP),
        0},
       {watches_right ? right_.socket.get() : -1,
        static_cast<short>((sends ? POLLOUT : 0) | (right_said_goodbye_ ? 0 : POLLIN)), 0}});
  const Status ready = interrupt_.AwaitAny(entries_, deadline);
  // Wait looks at closed_ and at the deadline.
  if (ready.code() == StatusCode::kCancelled || ready.code() == StatusCode::kDeadlineExceeded) {
    return OkStatus();
  }
  MUSTER_RETURN_IF_ERROR(ready);
  const short left = entries_[0].revents;
  const short right = entries_[1].revents;
  if (left != 0) receives_.blocked = false;
  if (left != 0 && !receives) {
    if ((left & POLLERR) != 0) return Failed(left_.rank, ErrorOf(left_.socket.get()));
    left_finished_ = true;
  }
  if (right != 0) sends_.blocked = false;
  return (right & ~POLLOUT) == 0 ? OkStatus() : HearRight();
}

Status TcpLink::HearRight() {
  if (right_said_goodbye_) return OkStatus();
  char word = 0;
  const ssize_t n = ::recv(right_.socket.get(), &word, 1, MSG_DONTWAIT);
  if (n == 0) return HungUp(right_.rank);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
  if (n < 0) return Failed(right_.rank, errno);
  if (word != kTcpGoodbyeWord) return GaveUp(right_.rank);
  right_said_goodbye_ = true;
  return OkStatus();
}

}  // namespace muster
