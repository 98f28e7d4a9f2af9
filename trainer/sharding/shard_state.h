// ShardState: what one rank keeps of the model for the whole run: per unit the fp32 master weights,
// both AdamW moments, the gradient, and in bf16 runs the shadow that gathers read.
//
// Allocated once, zeroed, never moved: checkpoints, views and collectives keep pointers into it.
// Owned by the engine; used by the trainer's thread. Padding is zero and stays zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/core/flat_layout.h"

namespace muster {

// Zeroed memory, aligned for vectors and for pages of large arrays.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::size_t bytes);
  void* data() const { return memory_.get(); }
  float* floats() const { return static_cast<float*>(memory_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

struct UnitShard {
  std::int64_t count = 0;
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  float* gradient = nullptr;
  std::uint16_t* shadow = nullptr;  // null in fp32 runs

  // What a gather of this unit sends.
  const void* GatherSource() const {
    return shadow != nullptr ? static_cast<const void*>(shadow) : master;
  }
};

class ShardState {
 public:
  ShardState(const FlatLayout& layout, int rank, MixedPrecision precision);

  const std::vector<UnitShard>& units() const { return units_; }
  // Of the weights that gathers move and blocks compute with.
  ElementType compute_type() const { return compute_type_; }

  // "<unit>/weight" alone, for loading a model.
  std::vector<ShardArray> WeightArrays() const;
  // "<unit>/weight", "<unit>/exp_avg" and "<unit>/exp_avg_sq": all that a checkpoint holds.
  std::vector<ShardArray> CheckpointArrays() const;

  // Rewrites the shadows after the master weights were loaded.
  void RefreshShadows();

 private:
  ShardArray Array(int unit, const char* kind, float* data) const;

  const FlatLayout& layout_;
  int rank_;
  ElementType compute_type_;
  HostBuffer floats_;
  HostBuffer shadows_;
  std::vector<UnitShard> units_;
};

}  // namespace muster
