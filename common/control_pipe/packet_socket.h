// PacketSocket: whole messages with attached file descriptors over a Unix SOCK_SEQPACKET socket.
//
// Used between guardian and trainer (an inherited descriptor) and between worker and guardian (a
// named socket). The kernel keeps message boundaries, so there is no framing to get wrong.
// Messages are at most kMaxPacketBytes. Send and Receive may be called from different threads at
// once; two concurrent Sends are each atomic.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

inline constexpr std::size_t kMaxPacketBytes = 160 * 1024;
inline constexpr std::size_t kMaxPacketFds = 72;  // a log, a socket, and locks of a node's devices

struct Packet {
  std::string data;
  std::vector<UniqueFd> fds;
};

class PacketSocket {
 public:
  PacketSocket() = default;
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // A connected pair, both ends close-on-exec.
  static Result<std::pair<PacketSocket, PacketSocket>> Pair();

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void Close() { fd_.reset(); }
  UniqueFd Release() { return std::move(fd_); }

  // Blocks at most until the deadline when the peer's queue is full (kDeadlineExceeded);
  // kUnavailable once the peer is gone.
  Status Send(std::string_view data, const std::vector<int>& fds, Deadline deadline);
  Status Send(std::string_view data) {
    return Send(data, {}, Deadline::After(std::chrono::seconds(5)));
  }

  // Waits for one message; kDeadlineExceeded, or kUnavailable once the peer has closed. An expired
  // deadline makes it a poll. Received descriptors are close-on-exec.
  Result<Packet> Receive(Deadline deadline);

 private:
  UniqueFd fd_;
};

}  // namespace muster
