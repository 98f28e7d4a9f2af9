// ShardState: what one rank keeps of the model for the whole run: per unit the master weights, both
// AdamW moments, the gradient, and where the compute type is another one the shadow that gathers
// read.
//
// Allocated once, zeroed, never moved: checkpoints, views and collectives keep pointers into it.
// What gathers read lies where GatheredWeights wants it; the rest is one allocation.
// Owned by the engine; used by the trainer's thread. Padding is zero and stays zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/core/flat_layout.h"
#include "trainer/device/device_ops.h"
#include "trainer/sharding/precision.h"

namespace muster {

// Types are those of ShardState::precision(): master, moments, moments, gradient, compute.
struct UnitShard {
  std::int64_t count = 0;
  void* master = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* gradient = nullptr;
  void* shadow = nullptr;  // null: gathers read the master weights

  // What a gather of this unit sends.
  void* GatherSource() const { return shadow != nullptr ? shadow : master; }
};

class ShardState {
 public:
  // `rank` is the one within the shard group. `layout` and `ops` outlive the state. own_places[u]:
  // where unit u's gather source lies; null: anywhere. `memory` makes the rest, for `ops` to work
  // on.
  using Memory = std::function<at::Tensor(std::size_t bytes)>;
  ShardState(const FlatLayout& layout, int rank, const Precision& precision, DeviceOps& ops,
             const std::vector<void*>& own_places, const Memory& memory);

  const std::vector<UnitShard>& units() const { return units_; }
  const Precision& precision() const { return precision_; }
  at::Device device() const { return ops_.device(); }
  std::int64_t bytes() const { return memory_.numel(); }

  // "<unit>/weight" alone, for loading a model.
  std::vector<ShardArray> WeightArrays() const;
  // "<unit>/weight", "<unit>/exp_avg" and "<unit>/exp_avg_sq": all that a checkpoint holds.
  std::vector<ShardArray> CheckpointArrays() const;

  // How these arrays are reached from host memory; empty where they lie in it.
  ArrayMemory array_memory() const;

  // Rewrites the shadows after the master weights were loaded.
  void RefreshShadows();

  OptimizerArrays ForOptimizer(int unit) const;

 private:
  ShardArray Array(int unit, const char* kind, void* data, ElementType type) const;

  const FlatLayout& layout_;
  const int rank_;
  const Precision precision_;
  DeviceOps& ops_;
  at::Tensor memory_;
  std::vector<UnitShard> units_;
};

}  // namespace muster
