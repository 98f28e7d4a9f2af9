// BlockTensors: something for each tensor of a transformer block: the weights, or where their
// gradients go.
//
// H hidden size, D head_dim, J = (heads + 2 * kv heads) * D, A = heads * D, I inner size, of the
// shared expert where the block is sparse, E experts. An adapter of r ranks on s of a matrix's
// parts (query, key and value; gate and up) has a first matrix [s * r, in] and a second one [rows
// of those parts, r]. Those of experts are laid out as expert_adapters.h says.
//
// Plain values; what a model lacks is an empty T.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "common/base/check.h"
#include "trainer/core/tensor_role.h"
#include "trainer/model/packed_matrix.h"
#include "trainer/ops/device_ops.h"

namespace muster {

template <typename T>
struct LinearTensors {
  T weight;  // [out, in]
  T bias;    // [out], of all experts' where the matrix is theirs
  T lora_a;
  T lora_b;
};

// A layer's weights. A frozen matrix may be packed: then there is no `weight`.
struct LinearWeights : LinearTensors<at::Tensor> {
  std::shared_ptr<const PackedMatrix> packed;
};
using LinearGradients = LinearTensors<GradientTarget>;

template <typename T, typename Linear>
struct BlockTensors {
  T attention_norm;            // [H]
  Linear qkv;                  // [J, H]
  T query_norm;                // [D]
  T key_norm;                  // [D]
  T sinks;                     // [heads]
  Linear output;               // [H, A]
  T attention_output_norm;     // [H]
  T feed_forward_norm;         // [H]
  Linear gate_up;              // [2 * I, H]
  Linear down;                 // [H, I]
  T feed_forward_output_norm;  // [H]
  T router;                    // [E, H]
  T router_bias;               // [E]
  Linear shared_expert_gate;   // [1, H]
  Linear expert_gate_up;       // [E * 2 * I of experts, H]
  Linear expert_down;          // [E * H, I of experts]

  // The layer whose matrix has this role.
  Linear& LinearOf(TensorRole matrix) {
    switch (matrix) {
      case TensorRole::kQkv: return qkv;
      case TensorRole::kAttentionOutput: return output;
      case TensorRole::kGateUp: return gate_up;
      case TensorRole::kDown: return down;
      case TensorRole::kSharedExpertGate: return shared_expert_gate;
      case TensorRole::kExpertGateUp: return expert_gate_up;
      case TensorRole::kExpertDown: return expert_down;
      default: break;
    }
    MUSTER_CHECK(false, "a role that no matrix of a block has");
    return qkv;
  }

  T& Of(TensorRole role) {
    switch (role) {
      case TensorRole::kAttentionNorm: return attention_norm;
      case TensorRole::kQkv: return qkv.weight;
      case TensorRole::kQkvBias: return qkv.bias;
      case TensorRole::kQueryNorm: return query_norm;
      case TensorRole::kKeyNorm: return key_norm;
      case TensorRole::kSinks: return sinks;
      case TensorRole::kAttentionOutput: return output.weight;
      case TensorRole::kAttentionOutputBias: return output.bias;
      case TensorRole::kAttentionOutputNorm: return attention_output_norm;
      case TensorRole::kFeedForwardNorm: return feed_forward_norm;
      case TensorRole::kGateUp: return gate_up.weight;
      case TensorRole::kDown: return down.weight;
      case TensorRole::kFeedForwardOutputNorm: return feed_forward_output_norm;
      case TensorRole::kRouter: return router;
      case TensorRole::kRouterBias: return router_bias;
      case TensorRole::kSharedExpertGate: return shared_expert_gate.weight;
      case TensorRole::kExpertGateUp: return expert_gate_up.weight;
      case TensorRole::kExpertGateUpBias: return expert_gate_up.bias;
      case TensorRole::kExpertDown: return expert_down.weight;
      case TensorRole::kExpertDownBias: return expert_down.bias;
      case TensorRole::kQkvLoraA: return qkv.lora_a;
      case TensorRole::kQkvLoraB: return qkv.lora_b;
      case TensorRole::kAttentionOutputLoraA: return output.lora_a;
      case TensorRole::kAttentionOutputLoraB: return output.lora_b;
      case TensorRole::kGateUpLoraA: return gate_up.lora_a;
      case TensorRole::kGateUpLoraB: return gate_up.lora_b;
      case TensorRole::kDownLoraA: return down.lora_a;
      case TensorRole::kDownLoraB: return down.lora_b;
      case TensorRole::kSharedExpertGateLoraA: return shared_expert_gate.lora_a;
      case TensorRole::kSharedExpertGateLoraB: return shared_expert_gate.lora_b;
      case TensorRole::kExpertGateUpLoraA: return expert_gate_up.lora_a;
      case TensorRole::kExpertGateUpLoraB: return expert_gate_up.lora_b;
      case TensorRole::kExpertDownLoraA: return expert_down.lora_a;
      case TensorRole::kExpertDownLoraB: return expert_down.lora_b;
      case TensorRole::kEmbedding:
      case TensorRole::kFinalNorm:
      case TensorRole::kHead: break;
    }
    MUSTER_CHECK(false, "a tensor that no block has");
    return attention_norm;
  }
};

using BlockWeights = BlockTensors<at::Tensor, LinearWeights>;
using BlockGradients = BlockTensors<GradientTarget, LinearGradients>;

// Every role that a block's tensors have.
inline constexpr TensorRole kBlockRoles[] = {TensorRole::kAttentionNorm,
                                             TensorRole::kQkv,
                                             TensorRole::kQkvBias,
                                             TensorRole::kQueryNorm,
                                             TensorRole::kKeyNorm,
                                             TensorRole::kSinks,
                                             TensorRole::kAttentionOutput,
                                             TensorRole::kAttentionOutputBias,
                                             TensorRole::kAttentionOutputNorm,
                                             TensorRole::kFeedForwardNorm,
                                             TensorRole::kGateUp,
                                             TensorRole::kDown,
                                             TensorRole::kFeedForwardOutputNorm,
                                             TensorRole::kRouter,
                                             TensorRole::kRouterBias,
                                             TensorRole::kSharedExpertGate,
                                             TensorRole::kExpertGateUp,
                                             TensorRole::kExpertGateUpBias,
                                             TensorRole::kExpertDown,
                                             TensorRole::kExpertDownBias,
                                             TensorRole::kQkvLoraA,
                                             TensorRole::kQkvLoraB,
                                             TensorRole::kAttentionOutputLoraA,
                                             TensorRole::kAttentionOutputLoraB,
                                             TensorRole::kGateUpLoraA,
                                             TensorRole::kGateUpLoraB,
                                             TensorRole::kDownLoraA,
                                             TensorRole::kDownLoraB,
                                             TensorRole::kSharedExpertGateLoraA,
                                             TensorRole::kSharedExpertGateLoraB,
                                             TensorRole::kExpertGateUpLoraA,
                                             TensorRole::kExpertGateUpLoraB,
                                             TensorRole::kExpertDownLoraA,
                                             TensorRole::kExpertDownLoraB};

}  // namespace muster
