// Buddy: the shard of another node's rank, kept where it survives the loss of that node.
//
// The ranks with the same local rank form a ring over the nodes, in an order that their launcher
// may give (neighbours should not fail together), and each keeps the segment of the one before
// it. Where all of a ring share a host, keeping is holding a descriptor of that segment:
// a killed process takes no memory file along. Otherwise every seal is followed by a copy round the
// ring, which travels under the next step and must have arrived before its last collective
// (sealing rule). MUSTER_SHM_DISABLE=1 forces the copy.
//
// Owned by the trainer; outlives the engine that it was given to (FsdpEngine::SetBuddy), and does
// not outlive the world and the own segment. The trainer's thread; Create and the copies are
// collective. It belongs to one forming of the communicator; abort that one before the destructor,
// which waits for a copy under way, where a peer may be lost.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

struct BuddyOptions {
  BuddyCopies wanted = BuddyCopies::kAuto;
  int ranks_per_node = 1;
  int replicas = 1;       // of each shard (MeshShape)
  std::vector<int> ring;  // each node's number once; empty: in their order
  // The forming, and the state that it goes on from; nothing: from a checkpoint or the start.
  Generation generation = 0;
  std::optional<StateId> from;
  // The name of the segment for copies, if one must be made.
  std::string name;
  // Copy even where a descriptor would do.
  bool force_copy = false;
};

// Whether such a gang keeps buddies: `on`, or `auto` with no replica of the shards; and never on
// one node, where a buddy would be lost with its owner, or on nodes of different sizes.
bool WantsBuddy(const BuddyOptions& options, int world_size);

class Buddy {
 public:
  // Collective over `world`. Null where this gang keeps none, or its ranks were given different
  // rings. `held`: segments from earlier
  // generations; one that was filled with copies of the same shard is taken out and filled on.
  static Result<std::unique_ptr<Buddy>> Create(Communicator& world, const Segment& own,
                                               const BuddyOptions& options,
                                               std::vector<std::unique_ptr<Segment>>* held);
  ~Buddy();
  Buddy(const Buddy&) = delete;
  Buddy& operator=(const Buddy&) = delete;

  // What this rank keeps for the one before it: that rank's own segment, mapped read-only, or the
  // copy. Its descriptor is for the guardian to hold.
  const Segment& kept() const { return *kept_; }
  // Whether kept() is a copy.
  bool copies() const { return ring_ != nullptr; }

  // The own segment's `slot` has been sealed with `cursor`. Starts the copy, unless `changed` says
  // that the arrays are those of the last one. One at a time: Finish comes before the next.
  void Start(int slot, const TrainCursor& cursor, bool changed);
  // Until the copy has arrived and is sealed. The communicator's errors.
  Status Finish();

 private:
  Buddy() = default;
  Status KeepCopy(const BuddyOptions& options, std::vector<std::unique_ptr<Segment>>* held);
  Result<SegmentSpec> ReceiveSpec();

  const Segment* own_ = nullptr;
  std::unique_ptr<Segment> kept_;
  std::unique_ptr<Communicator> ring_;  // null: kept_ is the owner's
  std::unique_ptr<Work> copy_;
  std::optional<TrainCursor> arriving_;  // what kept_ is sealed with next
  int arriving_slot_ = 0;
};

}  // namespace muster
