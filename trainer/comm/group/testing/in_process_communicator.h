// InProcessGroup: a gang whose ranks are threads of one process, for tests and for the parity
// oracle.
//
// It runs the very collectives of the communicators between processes, over memory of this one:
// the same queues, the same chunks, the same order of additions. Results therefore match bit for
// bit at equal world size.
//
// The group outlives its communicators. Join and Kill may be called from any thread; each
// communicator keeps to the rules of communicator.h.
//
//   InProcessGroup group(2);
//   // in thread r:
//   auto communicator = group.Join(r);
//   MUSTER_RETURN_IF_ERROR(communicator->Form({.generation = 1, .rank = r, .world_size = 2}, ...));
#pragma once

#include <memory>

#include "trainer/comm/communicator.h"

namespace muster {

class InProcessHub;

enum class InProcessTransport { kSharedMemory, kRing };

class InProcessGroup {
 public:
  explicit InProcessGroup(int world_size,
                          InProcessTransport transport = InProcessTransport::kSharedMemory);
  ~InProcessGroup();
  InProcessGroup(const InProcessGroup&) = delete;
  InProcessGroup& operator=(const InProcessGroup&) = delete;

  int world_size() const { return world_size_; }

  // A communicator of `rank`, unformed: Form meets the others, as with sockets. rank and
  // world_size given to Form must be those of the group. A rank that was killed joins again to
  // take part in a later generation.
  std::unique_ptr<Communicator> Join(int rank,
                                     Duration operation_timeout = std::chrono::minutes(10));

  // What a SIGKILL of that rank's process does: its operations end with kUnavailable and every
  // neighbour sees a lost peer. The rank's communicator object stays, dead, until its owner
  // destroys it. A fresh communicator of the rank that is still forming is not meant, unless it is
  // the rank's first.
  void Kill(int rank);

 private:
  const int world_size_;
  const InProcessTransport transport_;
  std::shared_ptr<InProcessHub> hub_;
};

}  // namespace muster
