// RingLink: one rank's two neighbours in a ring, as first-in-first-out queues of byte blocks.
//
// The collectives (ring_collectives.h) are written against it once; TCP and memory between
// threads implement it. A block that is sent must be met by a receive of the same
// size, in the same order.
//
// Owned by a RingTransport. Threads: Post*, Wait* and Drop are the progress thread's; Close may
// be called by any thread at any time. Errors: kUnavailable for a lost neighbour, kCancelled after
// Close, kDeadlineExceeded. After an error only Drop, Close and the destructor may be called.
#pragma once

#include <cstddef>
#include <memory>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

class RingLink {
 public:
  // Leaves in order if no error occurred: the neighbours are not alarmed.
  virtual ~RingLink() = default;

  // To the right neighbour, (rank + 1) % size. The memory belongs to the link until WaitSend.
  virtual Status PostSend(const void* data, std::size_t bytes) = 0;
  // From the left neighbour, (rank - 1 + size) % size.
  virtual Status PostReceive(void* data, std::size_t bytes) = 0;
  // Waits for the oldest posted send or receive that was not yet waited for.
  virtual Status WaitSend(Deadline deadline) = 0;
  virtual Status WaitReceive(Deadline deadline) = 0;

  // After an error: forgets what is posted. Afterwards the link touches none of that memory.
  virtual void Drop() = 0;
  // Cuts both connections without goodbye, so that neighbours notice, and wakes every wait.
  virtual void Close() = 0;
};

}  // namespace muster
