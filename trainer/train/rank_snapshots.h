// RankSnapshots: what one generation's training does with snapshots, from the cut that it resumes
// from to letting go of what no longer counts (docs/snapshot-format.md, "What the training loop
// does").
//
// Each rank trains in a segment of its own number: the one in which that rank trained before, where
// this process can read and write it, else a new one. Replicas hold equal shards, so anything else
// could put two ranks into one segment.
//
// Owned by the trainer; the trainer's thread. Begin, Restore, Keep are collective, in this order.
// The engine ends before it.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/state/snapshot/buddy.h"
#include "trainer/state/snapshot/cut.h"
#include "trainer/train/run_context.h"

namespace muster {

class RankSnapshots {
 public:
  // `run` outlives the object and has retained memory; its communicator is formed.
  explicit RankSnapshots(const RunContext& run)
      : run_(run), env_(run.env), retained_(run.retained->segments) {}

  // `origin`: what the trained state belongs to. Agrees on the cut, and has a segment ready for an
  // engine with these options, and puts it into them. Where a checkpoint is newer than the cut, the
  // segment is another one than those that hold the cut, which is needed where the checkpoint turns
  // out to be damaged; for want of memory the cut is given up for it. Where any rank has no memory
  // for its segment even so, none has one: no_memory() says so.
  Status Begin(const std::optional<AdapterOrigin>& origin, Step newest_checkpoint,
               FsdpOptions* options);
  const Status& no_memory() const { return no_memory_; }

  // The step of the cut, in place or not; -1: there is none.
  Step cut_step() const { return cut_ ? cut_->state.step : -1; }

  // Fills the engine's state from the cut. Nothing: there is no cut, or it could not be used, which
  // refused() reports then; the state is to be loaded from elsewhere, and there is no cut any more.
  // Fails with the communicator's errors alone.
  Result<std::optional<TrainCursor>> Restore(FsdpEngine& engine);
  // Whether the engine's arrays hold what an earlier course of training left there.
  bool holds_old_state() const { return holds_old_state_; }
  // The state was loaded from elsewhere: the cut is no part of its course.
  void ForgetCut() { cut_.reset(); }
  const Status& refused() const { return refused_; }

  // The state is loaded: each rank gets ready to keep another one's segment, if this gang does that
  // (`replicas` of each shard), and all learn which segments are in use.
  Status Keep(int replicas);
  // Null where no rank keeps copies.
  Buddy* buddy() const { return buddy_.get(); }

  // Every rank has sealed a step in its own segment: the older ones go.
  void LetGoOfOld();

 private:
  // Collective: own_ where every rank has one, else no_memory_.
  Status AgreeOnOwn(const SegmentSpec& plan);
  // Names among the segments that this rank can read.
  std::vector<std::string> NamesInCut() const;
  Segment* ChooseOwn(const SegmentSpec& plan);
  Result<Segment*> MakeOwn(const SegmentSpec& plan);
  Status KeepBuddy(int replicas);
  Status HoldKept();
  Status ShareNames();
  // Whether it was made as `suffix` by a rank of this number, in whatever generation.
  bool IsOfThisRank(const Segment& segment, const char* suffix) const;
  std::string NameFor(const char* suffix) const;

  const RunContext& run_;
  const RankEnv& env_;
  RetainedSegments& retained_;
  std::optional<Cut> cut_;
  bool keeps_cut_ = false;  // no segment that holds it is trained in, until it has been restored
  Segment* own_ = nullptr;
  bool in_place_ = false;
  bool holds_old_state_ = false;
  Status no_memory_;
  Status refused_;
  std::unique_ptr<Buddy> buddy_;
  std::set<std::string> in_use_;  // of all ranks
};

}  // namespace muster
