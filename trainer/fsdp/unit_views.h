// A unit's matrices as tensors over a flat array, weights or gradients.
//
// Views own nothing: the array outlives them. Joined tensors (query, key and value; gate and up)
// are one matrix. Plain values; the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "trainer/core/element_type.h"
#include "trainer/core/flat_layout.h"
#include "trainer/model/block_tensors.h"

namespace muster {

// Something for each tensor of a unit; an empty T for what the unit lacks.
template <typename T, typename Block>
struct UnitTensors {
  T embedding;
  T final_norm;
  T head;
  std::vector<Block> blocks;

  // Makes room for the block.
  T& Of(TensorRole role, int block) {
    switch (role) {
      case TensorRole::kEmbedding: return embedding;
      case TensorRole::kFinalNorm: return final_norm;
      case TensorRole::kHead: return head;
      default: break;
    }
    return OfBlock(block).Of(role);
  }
  Block& OfBlock(int block) {
    const auto index = static_cast<std::size_t>(block);
    if (index >= blocks.size()) blocks.resize(index + 1);
    return blocks[index];
  }
};

using UnitWeights = UnitTensors<at::Tensor, BlockWeights>;
using UnitGradients = UnitTensors<GradientTarget, BlockGradients>;

// Views of `flat`, elements of `type` laid out as the unit.
UnitWeights ViewUnit(const FlatUnit& unit, void* flat, ElementType type, at::Device device);

// Gives `weights` every tensor that `views` has.
void Overlay(const UnitWeights& views, UnitWeights* weights);

// The same views as targets that gradients are written or added to, for `blocks` blocks.
UnitGradients TargetsOf(const UnitWeights& views, std::size_t blocks, bool add);

}  // namespace muster
