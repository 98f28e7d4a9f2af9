// The forward pass of a decoder as plain tensor operations over views of weights.
//
// Inference uses it, and the tests of the hand-written blocks (llama_block.h), which differentiate
// it: every operation has a gradient, and whether a graph is recorded is the caller's grad mode.
// Nothing here owns a weight. Activations have the weights' element type; norms, rotation and
// activation are computed in its wide type (trainer/ops/scalar_type.h) and rounded as Hugging
// Face's are.
//
// Letters: B rows, T positions, H hidden size, V vocabulary.
//
// Any thread, several at once. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

#include "trainer/core/model_config.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/kv_cache.h"

namespace muster {

// What a rotary table is made of. Angles are fp32 whatever the model computes in, as Hugging
// Face's are.
struct RotaryTypes {
  at::ScalarType buffer = at::kFloat;  // cosines and sines are rounded to this type
  at::ScalarType stored = at::kFloat;  // and stored in this one
  at::Device device = at::kCPU;
};

// Cosines and sines of the rotary embedding, half-rotation form. Grown by Ensure; shared by all
// blocks of a rank.
class RotaryTable {
 public:
  explicit RotaryTable(const ModelConfig& config, const RotaryTypes& types = {});

  // Makes positions 0 .. length - 1 available.
  void Ensure(std::int64_t length);
  at::Tensor Cos(std::int64_t length) const;  // [length, head_dim / 2]
  at::Tensor Sin(std::int64_t length) const;

 private:
  std::int64_t head_dim_;
  double theta_;
  std::optional<RopeScaling> scaling_;
  RotaryTypes types_;
  std::int64_t length_ = 0;
  at::Tensor cos_;
  at::Tensor sin_;
};

// x / rms(x) * weight; x [..., H], weight [H].
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// [B, T] ids -> [B, T, H].
at::Tensor EmbedTokens(const at::Tensor& embedding, const at::Tensor& ids);

// hidden [B, T, H] -> the block's output, residuals included. Attention is causal over the row, as
// far back as config.sliding_window says; right padding needs no mask, since nothing before it sees
// it. With a cache the T positions follow those that it has seen, attend to them too, and are added
// to it (no gradients then); with a cache for each row, T is 1, and rows may have seen different
// numbers of positions. `rotary` holds all positions; null: this block does not rotate. Adapters
// are not applied: who infers has merged them.
at::Tensor BlockForward(const ModelConfig& config, const RotaryTable* rotary,
                        const at::Tensor& hidden, const BlockWeights& weights,
                        std::span<BlockCache* const> caches = {});

}  // namespace muster
