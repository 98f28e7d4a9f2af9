// ShardState: what one rank keeps of the model for the whole run: per unit the master weights, both
// AdamW moments, the gradient, and where the compute type is another one the low-precision copy
// that gathers read.
//
// With a segment the master weights and moments lie in its slots: an update reads one and writes
// the other, and then that one is the state (ADR 9). Pointers to them are good until the next
// update; what gathers read is always a low-precision copy then. Gradients and low-precision copies
// never move: views and collectives keep pointers into them. What gathers read lies where
// UnshardedParameters wants it; all that does not lie in a segment is one allocation, zeroed. Owned
// by the engine; used by the trainer's thread. Padding is zero and stays zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/placement.h"
#include "trainer/fsdp/precision.h"
#include "trainer/ops/adamw.h"
#include "trainer/ops/device_ops.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

// Types are those of ShardState::precision(): master, moments, moments, gradient, compute.
struct UnitShard {
  std::int64_t count = 0;
  void* master = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* gradient = nullptr;
  void* low_precision = nullptr;  // null: gathers read the master weights, which never move

  // What a gather of this unit sends.
  void* GatherSource() const { return low_precision != nullptr ? low_precision : master; }
};

class ShardState {
 public:
  // `rank` is the one within the shard group. `placement` and `ops` outlive the state.
  // own_places[u]: where unit u's gather source lies; null: anywhere. `memory` makes the rest, for
  // `ops` to work on. `segment`: for StateArrays, in host memory that is `ops`' own, outlives the
  // state; its newest slot is the state where the placement has it there.
  using Memory = std::function<at::Tensor(std::size_t bytes)>;
  ShardState(const Placement& placement, int rank, const Precision& precision, DeviceOps& ops,
             const std::vector<void*>& own_places, const Memory& memory, Segment* segment);

  const std::vector<UnitShard>& units() const { return units_; }
  const Precision& precision() const { return precision_; }
  at::Device device() const { return ops_.device(); }
  std::int64_t bytes() const { return memory_.numel(); }

  // "<unit>/weight" alone, for loading a model.
  std::vector<ShardArray> WeightArrays() const;
  // StateArrays: all that a checkpoint holds.
  std::vector<ShardArray> CheckpointArrays() const;

  // Whether the state lies in a segment, and in which slot of it.
  bool in_segment() const { return segment_ != nullptr; }
  int slot() const { return slot_; }
  // Keeps CheckpointArrays() as they are while updates go on beside them; in_segment() only.
  SealedShard Seal() const { return segment_->Hold(slot_); }
  // Has memory ready for that.
  void PrepareSeal() const { segment_->PrepareHold(); }

  // How these arrays are reached from host memory; empty where they lie in it.
  ArrayMemory array_memory() const;

  // Rewrites the low-precision copies after the master weights were loaded.
  void RefreshLowPrecision();

  // Before the units are updated: what ForOptimizer writes is the state from here on.
  void BeginUpdate();
  OptimizerArrays ForOptimizer(int unit) const;

 private:
  void PlaceInSegment();

  const FlatLayout& layout_;
  const int rank_;
  const Precision precision_;
  DeviceOps& ops_;
  Segment* const segment_;
  int slot_ = 0;
  std::ptrdiff_t to_old_ = 0;  // bytes from the state to the one before it; 0: updates are in place
  at::Tensor memory_;
  std::vector<UnitShard> units_;
};

}  // namespace muster
