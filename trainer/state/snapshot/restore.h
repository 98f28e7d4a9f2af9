// From a cut into the arrays of a new gang, whatever its number of ranks.
//
// Shards that a rank can read are copied by intersecting intervals; those that some rank needs and
// cannot read are broadcast by their provider, array by array in bounded pieces, and all keep what
// is theirs. A rank whose arrays lie in the very slot of the cut copies nothing.
//
// Collective, on the trainer's thread. A failure on one rank is one on all; the arrays are then
// undefined, and so is nothing else: the segments are only read.
#pragma once

#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/snapshot/cut.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

struct RestoreOptions {
  // The arrays already hold the state: they lie in the slot of the cut (IsInPlace).
  bool in_place = false;
  ArrayMemory memory;  // of the arrays
};

struct RestoreOutcome {
  TrainCursor cursor;            // equal on all ranks
  std::int64_t local_bytes = 0;  // copied from segments that this rank can read
  std::int64_t sent_bytes = 0;   // of state, broadcast to this rank or by it
};

// Whether `segment` is the one for this shard of this plan and holds the cut, so that an engine
// made for it goes on where it is. `plan`: PlanSegment's of this rank in the new gang.
bool IsInPlace(const Segment& segment, const SegmentSpec& plan, const Cut& cut);

// Fills `arrays` (ShardState::CheckpointArrays). kFailedPrecondition when the state does not fit
// them (another model, other types), kDataLoss when it turns out to be incomplete, and the
// communicator's errors.
Result<RestoreOutcome> RestoreCut(Communicator& communicator, const Cut& cut,
                                  const std::vector<const Segment*>& segments,
                                  const std::vector<ShardArray>& arrays,
                                  const RestoreOptions& options);

}  // namespace muster
