// GradientReducer: takes the gradients of one unit after the other and leaves each rank with the
// sum over all ranks of its own shard, added up over the micro-batches of a step in fp32.
//
// Two fp32 slots take turns: while one is being reduced, the backward pass fills the other. Begin
// gives the memory for a unit's gradients, Reduce sends them off. At world size 1 that memory is
// the gradient shard itself.
//
// The trainer's thread. Errors are the communicator's. The destructor waits for reductions under
// way: abort the communicator first when a peer may be lost.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/flat_layout.h"
#include "trainer/distributed/communicator.h"
#include "trainer/sharding/shard_state.h"

namespace muster {

class GradientReducer {
 public:
  // Where a unit's gradients go, laid out as the unit.
  struct Target {
    float* flat = nullptr;
    bool add = false;  // to what is there, instead of overwriting it
  };

  GradientReducer(const FlatLayout& layout, const ShardState& state, Communicator& communicator);
  ~GradientReducer();

  // The next gradients are the first of a step: they overwrite those of the step before, and what a
  // step that failed has left under way is waited for and forgotten.
  void StartStep();
  // One unit at a time: Begin, fill every tensor, Reduce.
  Result<Target> Begin(int unit);
  void Reduce(int unit);
  // Until every gradient shard is complete.
  Status Finish();

 private:
  struct Slot {
    HostBuffer memory;
    std::unique_ptr<Work> reduction;
    int unit = -1;
    bool add = false;  // the result lies in the slot and is added to the shard
  };

  Status Settle(Slot& slot);
  float* OwnPlace(const Slot& slot, int unit) const;

  const FlatLayout& layout_;
  const ShardState& state_;
  Communicator& communicator_;
  std::array<Slot, 2> slots_;
  int next_slot_ = 0;
  std::vector<bool> reduced_;  // by unit: once at least in this step
};

}  // namespace muster
