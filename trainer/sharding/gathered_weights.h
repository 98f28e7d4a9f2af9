// GatheredWeights: the whole weights of the units that are being computed with.
//
// Blocks share two slots, block unit u in slot u % 2, so that the weights of one unit arrive while
// the other computes; embedding and head have a buffer of their own and stay for the whole step.
// Views into a unit's buffer stay valid for the run; they show the unit's weights between a Wait
// for it and the Prefetch of the next unit of the same slot. At world size 1 a unit's buffer is its
// shard itself and nothing is ever copied.
//
// A unit that is still in its slot is not gathered again until Invalidate. Which gathers are issued
// depends only on the order of calls, which is equal on all ranks.
//
// The trainer's thread. Errors are the communicator's. The destructor waits for gathers under way:
// abort the communicator first when a peer may be lost.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "trainer/core/flat_layout.h"
#include "trainer/distributed/communicator.h"
#include "trainer/sharding/shard_state.h"

namespace muster {

class GatheredWeights {
 public:
  GatheredWeights(const FlatLayout& layout, const ShardState& state, Communicator& communicator);
  ~GatheredWeights();

  // Starts the gather of `unit` unless its weights are there or on their way.
  void Prefetch(int unit);
  // Until the weights of `unit` are there; Prefetch is implied.
  Status Wait(int unit);
  // The shards have changed, or a step has failed: nothing gathered counts any more. Waits for
  // gathers under way.
  void Invalidate();

  void* data(int unit) const { return slots_[slot_of_[unit]].data; }

 private:
  struct Slot {
    HostBuffer memory;
    void* data = nullptr;
    int unit = -1;  // whose weights are there or on their way
    std::unique_ptr<Work> gather;
  };

  const FlatLayout& layout_;
  const ShardState& state_;
  Communicator& communicator_;
  std::vector<Slot> slots_;
  std::vector<int> slot_of_;  // by unit
};

}  // namespace muster
