// TcpLink: a RingLink over two TCP connections, one from the left neighbour, one to the right one.
//
// A message is its number, its size and its bytes, which go from the sender's memory to the
// receiver's with no buffer between but the kernel's. The number and size must be those that the
// receiver expects, else the ranks do not run the same operations. Against the stream goes one byte
// at most, the last word of a neighbour that leaves: a goodbye in order, or an alarm.
//
// There is no thread: bytes move, both ways, while the progress thread posts or waits. A wait is
// one poll over both connections and the interrupt that Close raises, so it ends when either
// neighbour is lost. A process that ends closes its connections; a host that vanishes is found by
// the probes of tcp_liveness.h. A rank that gives up alarms both neighbours, which give up when
// they next wait: so the news travels round the ring.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "trainer/comm/interrupt.h"
#include "trainer/comm/transport/ring_link.h"

namespace muster {

// A connected socket that does not block.
struct TcpNeighbour {
  UniqueFd socket;
  int rank = 0;
};

// Before the bytes of a message; in the host's byte order.
struct TcpMessageHead {
  std::uint64_t number = 0;  // counted from 0 in each connection
  std::uint64_t bytes = 0;

  friend bool operator==(const TcpMessageHead&, const TcpMessageHead&) = default;
};
// In place of a message: the sender has given up.
inline constexpr TcpMessageHead kTcpAlarm = {~std::uint64_t{0}, 0};

// The words against the stream.
inline constexpr char kTcpGoodbyeWord = 'g';
inline constexpr char kTcpAlarmWord = 'a';

class TcpLink final : public RingLink {
 public:
  TcpLink(TcpNeighbour left, TcpNeighbour right);
  ~TcpLink() override;

  Status PostSend(const void* data, std::size_t bytes) override;
  Status PostReceive(void* data, std::size_t bytes) override;
  Status WaitSend(Deadline deadline) override;
  Status WaitReceive(Deadline deadline) override;
  void Drop() override;
  void Close() override;

 private:
  struct Message {
    TcpMessageHead head;  // sent, or received
    TcpMessageHead expected;
    std::byte* data;
  };
  // What one call to the kernel moves.
  using Pieces = std::array<iovec, 16>;
  // One direction.
  struct Stream {
    std::deque<Message> messages;  // posted and not yet waited for
    std::size_t done = 0;          // of them, from the front
    std::size_t moved = 0;         // bytes of the first that is not done, with its head
    std::uint64_t posted = 0;      // since the link was made
    bool blocked = false;          // the socket is to be polled first

    bool under_way() const { return done < messages.size(); }
    bool can_move() const { return under_way() && !blocked; }
    void Post(void* data, std::size_t bytes);
    // What moves next, as far as it fits.
    msghdr Next(Pieces& pieces);
  };

  Status Wait(Stream& stream, const std::string& what, Deadline deadline);
  // Each is one call of the system, which does not wait.
  Status Send();
  Status Receive();
  // Counts `bytes` that have moved.
  Status Advance(Stream& stream, std::size_t bytes);
  // Until something can move, the deadline is over, or the link ends.
  Status Poll(Deadline deadline);
  Status HearRight();
  // An error ends the link.
  Status Ended(Status status);

  const TcpNeighbour left_;
  const TcpNeighbour right_;
  Interrupt interrupt_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;  // guards what is said: no alarm falls into a message
  Stream sends_;
  Stream receives_;
  bool left_finished_ = false;  // sends no more
  bool right_said_goodbye_ = false;
  std::vector<pollfd> entries_;
};

}  // namespace muster
