// UnixLink: a SharedLink of memfds that rank 0 makes and hands to the others over Unix sockets.
//
// Every rank has a connection to every other, and a thread that sleeps in poll on all of them. A
// process that dies, however, closes its connections, so the news reaches all within milliseconds.
// Nothing has a name: whatever dies, nothing stays behind.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"
#include "trainer/comm/transport/shared/shared_link.h"

namespace muster {

class UnixLink final : public SharedLink {
 public:
  // `peers[r]` is connected to rank r; this rank's own entry is invalid.
  static Result<std::unique_ptr<UnixLink>> Start(std::vector<PacketSocket> peers, int rank);
  ~UnixLink() override;

  void Listen(News news) override;
  Result<SharedMemory> Map(std::size_t bytes, int kept, Deadline deadline) override;
  void Alarm(const Status& reason) override;
  void Stop() override;

 private:
  UnixLink(std::vector<PacketSocket> peers, int rank, UniqueFd wake);

  void RunWatch();
  // Takes what a peer has sent; false when nothing more can come.
  bool Hear(int peer);
  void Report(int peer, Status why);
  Status SendMemory(int fd);
  Result<UniqueFd> AwaitMemory(Deadline deadline);

  std::vector<PacketSocket> peers_;
  const int rank_;
  const UniqueFd wake_;  // readable: the watcher ends

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  std::deque<std::pair<int, Status>> unheard_;  // until they are read
  std::deque<UniqueFd> memory_;                 // from rank 0, not yet mapped
  std::optional<Status> broken_;                // why no more memory will come
  bool alarmed_ = false;
  std::thread watcher_;
};

}  // namespace muster
