// Buddy: the shard of another node's rank, kept where it survives the loss of that node.
//
// The ranks with the same local rank form a ring over the nodes, and each keeps the segment of the
// one before it. Where all of a ring share a host, keeping is holding a descriptor of that segment:
// a killed process takes no memory file along. Otherwise every seal is followed by a copy round the
// ring, which travels under the next step and must have arrived before its last collective
// (sealing rule). MUSTER_SHM_DISABLE=1 forces the copy.
//
// Owned by the trainer; outlives the engine that calls it (FsdpOptions::buddy). The trainer's
// thread; Create and the copies are collective over the ring. It belongs to one forming of the
// communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/distributed/communicator.h"
#include "trainer/snapshot/segment.h"

namespace muster {

// Whether this gang keeps buddies: `on`, or `auto` with two or more nodes and no replica of the
// shards. Never on one node, where a buddy would be lost with its owner.
bool WantsBuddy(BuddyCopies wanted, int world_size, int ranks_per_node, int replicas);

struct BuddyOptions {
  int ranks_per_node = 1;  // equal on all nodes
  Generation generation = 0;
  // The name of the segment that copies are kept in, if one must be made.
  std::string name;
  // Copy even where a descriptor would do (MUSTER_SHM_DISABLE).
  bool force_copy = false;
};

class Buddy {
 public:
  // Collective over `world`, which outlives the object, as `own` does. `held`: one that was kept
  // for the same rank in an earlier generation, if there is one; it is kept on if it fits.
  static Result<std::unique_ptr<Buddy>> Create(Communicator& world, const Segment& own,
                                               std::vector<std::unique_ptr<Segment>>* held,
                                               const BuddyOptions& options);
  ~Buddy();

  // The segment that this rank keeps for the one before it: mapped read-only where it is that
  // rank's own, else the copy. Its descriptor is for the guardian to hold.
  const Segment& kept() const { return *kept_; }
  bool copies() const { return ring_ != nullptr; }

  // Follows the seal of `step` in `slot` of the own segment: starts the copy, if there are any.
  void Start(int slot, const TrainCursor& cursor);
  // Until the copy that was started last has arrived and is sealed. The communicator's errors.
  Status Finish();

 private:
  Buddy() = default;

  std::unique_ptr<Segment> kept_;
  std::unique_ptr<Communicator> ring_;  // null: by descriptor
};

}  // namespace muster
