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
  // gate and up.
  kAttentionNorm,
  kQkv,
  kQkvBias,
  kQueryNorm,
  kKeyNorm,
  kAttentionOutput,
  kFeedForwardNorm,
  kGateUp,
  kDown,
  // In place of the two before, in a block with a mixture of experts: gate and up of all experts
  // are one matrix, and so are their down.
  kRouter,
  kExpertGateUp,
  kExpertDown,
  // Adapters of a block's matrices.
  kQkvLoraA,
  kQkvLoraB,
  kAttentionOutputLoraA,
  kAttentionOutputLoraB,
  kGateUpLoraA,
  kGateUpLoraB,
  kDownLoraA,
  kDownLoraB,
  kExpertGateUpLoraA,
  kExpertGateUpLoraB,
  kExpertDownLoraA,
  kExpertDownLoraB,
};

}  // namespace muster
