// Shapes, weights and comparisons that the tests of blocks and head share.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "trainer/core/model_config.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/lora_form.h"
#include "trainer/ops/scalar_type.h"

namespace muster {

// Sizes that no vector width divides, and two query heads to a key head.
inline ModelConfig OddConfig(int blocks) {
  ModelConfig config;
  config.hidden_size = 37;
  config.intermediate_size = 43;
  config.num_hidden_layers = blocks;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.vocab_size = 29;
  config.rms_norm_eps = 1e-5;
  return config;
}

inline BlockWeights RandomBlock(const ModelConfig& c, at::ScalarType type, std::int64_t layer = 0) {
  const std::int64_t hidden = c.hidden_size;
  const std::int64_t query = c.num_attention_heads * c.head_dim;
  const std::int64_t key = c.num_key_value_heads * c.head_dim;
  const auto random = [&](at::IntArrayRef shape, double scale) {
    return (at::randn(shape, at::kDouble) * scale).to(type);
  };
  BlockWeights block;
  const bool before = c.norm_placement != NormPlacement::kAfter;
  const bool after = c.norm_placement != NormPlacement::kBefore;
  if (before) block.attention_norm = random({hidden}, 0.5);
  if (after) block.attention_output_norm = random({hidden}, 0.5);
  block.qkv.weight = random({query + 2 * key, hidden}, 0.2);
  if (c.qkv_bias) block.qkv.bias = random({query + 2 * key}, 0.2);
  if (c.qk_norms != QkNorms::kNone) {
    const bool per_head = c.qk_norms == QkNorms::kPerHead;
    block.query_norm = random({per_head ? c.head_dim : query}, 0.5);
    block.key_norm = random({per_head ? c.head_dim : key}, 0.5);
  }
  block.output.weight = random({hidden, query}, 0.2);
  if (c.output_bias) block.output.bias = random({hidden}, 0.2);
  if (c.attention.sinks) block.sinks = random({c.num_attention_heads}, 1);
  if (before) block.feed_forward_norm = random({hidden}, 0.5);
  if (after) block.feed_forward_output_norm = random({hidden}, 0.5);
  if (c.IsSparse(layer)) {
    const std::int64_t experts = c.experts->count, inner = c.experts->intermediate_size;
    block.router = random({experts, hidden}, 0.5);
    block.expert_gate_up.weight = random({experts * 2 * inner, hidden}, 0.2);
    block.expert_down.weight = random({experts * hidden, inner}, 0.2);
    if (const std::int64_t shared = c.experts->shared_intermediate_size; shared > 0) {
      block.gate_up.weight = random({2 * shared, hidden}, 0.2);
      block.down.weight = random({hidden, shared}, 0.2);
      block.shared_expert_gate.weight = random({1, hidden}, 0.5);
    }
    if (c.experts->biases) {
      block.router_bias = random({experts}, 0.5);
      block.expert_gate_up.bias = random({experts * 2 * inner}, 0.2);
      block.expert_down.bias = random({experts * hidden}, 0.2);
    }
    return block;
  }
  block.gate_up.weight = random({2 * c.intermediate_size, hidden}, 0.2);
  block.down.weight = random({hidden, c.intermediate_size}, 0.2);
  return block;
}

// Random adapters on every matrix of `lora` for a block.
inline void AddRandomLora(const BlockLora& lora, BlockWeights* block) {
  const auto add = [](const LoraForm& form, LinearWeights* linear) {
    if (form.segments.empty()) return;
    std::int64_t rows = 0;
    for (const LoraSegment& segment : form.segments) rows += segment.rows;
    const auto random = [&](at::IntArrayRef shape) {
      return (at::randn(shape, at::kDouble) * 0.2).to(linear->weight.scalar_type());
    };
    linear->lora_a = random({form.hidden_width(), linear->weight.size(1)});
    linear->lora_b = random({rows, form.rank});
  };
  add(lora.qkv, &block->qkv);
  add(lora.output, &block->output);
  add(lora.gate_up, &block->gate_up);
  add(lora.down, &block->down);
  if (!block->router.defined()) return;
  const std::int64_t experts = block->router.size(0);
  const auto add_to_experts = [experts](const LoraForm& form, LinearWeights* linear) {
    if (form.segments.empty()) return;
    const auto random = [&](at::IntArrayRef shape) {
      return (at::randn(shape, at::kDouble) * 0.2).to(linear->weight.scalar_type());
    };
    linear->lora_a = random({experts * form.rank, linear->weight.size(1)});
    linear->lora_b = random({linear->weight.size(0) / experts, form.rank * experts});
  };
  add_to_experts(lora.expert_gate_up, &block->expert_gate_up);
  add_to_experts(lora.expert_down, &block->expert_down);
}

// The matrix with its adapters added: W + scale * B A.
inline at::Tensor Merged(const LinearWeights& linear, const LoraForm& form) {
  at::Tensor delta = at::zeros_like(linear.weight);
  std::int64_t row = 0, column = 0;
  std::vector<at::Tensor> rows;
  std::int64_t covered = 0;
  const auto skip_to = [&](std::int64_t begin) {
    if (begin > covered) rows.push_back(delta.narrow(0, covered, begin - covered));
    covered = begin;
  };
  for (const LoraSegment& segment : form.segments) {
    skip_to(segment.begin);
    rows.push_back(form.scale * at::matmul(linear.lora_b.narrow(0, row, segment.rows),
                                           linear.lora_a.narrow(0, column, form.rank)));
    covered += segment.rows;
    row += segment.rows;
    column += form.rank;
  }
  skip_to(delta.size(0));
  return linear.weight + at::cat(rows);
}

// The matrices of all experts with their adapters added, as PEFT adds them to its parameters.
inline at::Tensor MergedExperts(const LinearWeights& linear, const LoraForm& form,
                                std::int64_t experts) {
  const at::Tensor a = linear.lora_a.view({experts, form.rank, -1});
  const at::Tensor b = linear.lora_b.view({-1, form.rank, experts});
  return linear.weight + form.scale * at::einsum("ore,eri->eoi", {b, a}).flatten(0, 1);
}

// |a - b| / |b| in the Euclidean norm.
inline double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor want = b.to(at::kDouble);
  return ((a.to(at::kDouble) - want).norm() / want.norm()).item<double>();
}

// What rounding to `type` at every step may add up to.
inline double Tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-12;
    case at::kFloat: return 1e-5;
    case at::kHalf: return 4e-3;
    default: return 3e-2;
  }
}

}  // namespace muster
