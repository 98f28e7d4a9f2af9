// TensorRole: what a tensor is to a decoder, whatever its name and wherever it lies.
//
// Pure; any thread.
#pragma once

namespace muster {

enum class TensorRole {
  // Tensors of a unit of their own.
  kEmbedding,
  kFinalNorm,
  kHead,
  // Tensors of a block. Query, key and value have one role, because they are one matrix; so have
  // gate and up. An output norm follows attention or feed-forward, a norm precedes it.
  kAttentionNorm,
  kQkv,
  kQkvBias,
  kQueryNorm,
  kKeyNorm,
  kSinks,
  kAttentionOutput,
  kAttentionOutputBias,
  kAttentionOutputNorm,
  kFeedForwardNorm,
  kGateUp,
  kDown,
  kFeedForwardOutputNorm,
  // In a block with a mixture of experts: gate and up of all experts are one matrix, and so are
  // their down. kGateUp and kDown are the shared expert's there, where the model has one.
  kRouter,
  kRouterBias,
  kSharedExpertGate,
  kExpertGateUp,
  kExpertGateUpBias,
  kExpertDown,
  kExpertDownBias,
  // Adapters of a block's matrices.
  kQkvLoraA,
  kQkvLoraB,
  kAttentionOutputLoraA,
  kAttentionOutputLoraB,
  kGateUpLoraA,
  kGateUpLoraB,
  kDownLoraA,
  kDownLoraB,
  kSharedExpertGateLoraA,
  kSharedExpertGateLoraB,
  kExpertGateUpLoraA,
  kExpertGateUpLoraB,
  kExpertDownLoraA,
  kExpertDownLoraB,
};

}  // namespace muster
