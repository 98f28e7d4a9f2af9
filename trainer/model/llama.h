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
#include <span>

#include "trainer/core/model_config.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/kv_cache.h"
#include "trainer/model/rotary_table.h"

namespace muster {

// x / rms(x) * weight; x [..., H], weight [H]. A zero-centered weight is one less.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps,
                   bool zero_centered = false);

// What embedded tokens of this type are multiplied by.
double EmbeddingMultiplier(const ModelConfig& config, at::ScalarType type);

// [B, T] ids -> [B, T, H].
at::Tensor EmbedTokens(const ModelConfig& config, const at::Tensor& embedding,
                       const at::Tensor& ids);

// What a cap leaves of logits of any shape; 0: all.
at::Tensor CapLogits(const at::Tensor& logits, double cap);

// hidden [B, T, H] -> the output of block `layer`, residuals included. Attention is causal over the
// row, as far back as the layer's window reaches; right padding needs no mask, since nothing before
// it sees it. With a cache the T positions follow those that it has seen, attend to them too, and
// are added to it (no gradients then); with a cache for each row, T is 1, and rows may have seen
// different numbers of positions. `rotary` null: this block does not rotate. Where angles depend on
// the length of a text, `lengths` has that of each row, or of all; empty: no position follows, and
// no row is padded; and a cache then holds keys that are not rotated yet, so that a text which
// grows longer has the angles of its length throughout. Adapters are not applied: who infers has
// merged them.
at::Tensor BlockForward(const ModelConfig& config, std::int64_t layer, RotaryTable* rotary,
                        const at::Tensor& hidden, const BlockWeights& weights,
                        std::span<BlockCache* const> caches = {},
                        std::span<const std::int64_t> lengths = {});

}  // namespace muster
