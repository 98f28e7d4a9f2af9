// SharedLink: what a rank has in common with the peers of a group whose ranks all live on one host:
// memory that all of them map, and news of each other's end.
//
// SharedTransport is written against it once; Unix sockets with memfds, and threads of one process,
// implement it. The destructor notifies the peers that this rank leaves in order, unless it raised
// an alarm or was cut off.
//
// Threads: Alarm and Stop may be called by any thread, everything else by the trainer's alone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

// Mapped as long as `data` is held.
struct SharedMemory {
  std::shared_ptr<std::byte> data;
  std::shared_ptr<const UniqueFd> file;  // all that map it have the same bytes; null: none
};

class SharedLink {
 public:
  // What became of a peer; OK: it left in order. Called by any thread, at most once per peer that
  // left and at most once with an error; must not call the link.
  using News = std::function<void(int peer, const Status& why)>;

  virtual ~SharedLink() = default;

  // Once, before anything else. No news is given before, none is lost.
  virtual void Listen(News news) = 0;
  // Collective: memory that all ranks of the group map, aligned to pages, whatever becomes of the
  // peers. `kept`, which only rank 0's counts of: the file of such memory from before; -1: new
  // memory, zeroed.
  virtual Result<SharedMemory> Map(std::size_t bytes, int kept, Deadline deadline) = 0;
  // Tells all peers why this rank gives up the group, without waiting for any.
  virtual void Alarm(const Status& reason) = 0;
  // Wakes a Map under way, which then fails, and all to come.
  virtual void Stop() = 0;
};

// Zeroed memory for threads of this process, aligned to pages; kResourceExhausted.
Result<std::shared_ptr<std::byte>> AnonymousMemory(std::size_t bytes);
// A file of zeroed memory without a name. Its size cannot change any more: a peer that shrank it
// would end all others.
Result<UniqueFd> MakeMemoryFile(std::size_t bytes);
// Another descriptor of memory from before. kInternal where it has another size.
Result<UniqueFd> KeptMemoryFile(int kept, std::size_t bytes);
// The memory of a file descriptor, which the caller may close.
Result<std::shared_ptr<std::byte>> MapDescriptor(int fd, std::size_t bytes);

}  // namespace muster
