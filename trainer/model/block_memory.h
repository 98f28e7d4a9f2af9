// BlockMemory: what LlamaBlocks keeps from forward to backward, and where it computes in between.
//
// Everything is cut from one Arena per kind. N tokens, H hidden size, A = heads * head_dim, J the
// joined width of query, key and value, I inner size. The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/model/arena.h"
#include "trainer/model/lora_form.h"
#include "trainer/model/sublayer_norm.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// What backward reads of one block's forward, beside its input.
struct BlockActivations {
  NormActivations attention_norm;
  at::Tensor qkv;       // [N, J], rotated; before norm and rotation where heads are normed
  at::Tensor attended;  // [N, A]
  at::Tensor lse;       // [rows, heads, length] W
  at::Tensor middle;    // [N, H]: the residual after attention
  NormActivations feed_forward_norm;
  at::Tensor gate_up;  // [N, 2 * I]; backward turns it into its gradient
  // [N, hidden width of the adapters]; undefined where there are none.
  at::Tensor qkv_lora, output_lora, gate_up_lora;
};

// Memory of every block in turn. `delta` lasts from one half of a block to the next; the members
// of a half share memory where they are not alive at the same time, and so do the halves.
struct BlockScratch {
  at::Tensor delta;  // [N, H]

  struct Attention {
    at::Tensor normed;             // [N, H]
    at::Tensor rotated;            // [N, J]: the normed heads, where heads are normed
    at::Tensor head_scale;         // [N, heads + kv heads] W (all heads together: [N, 2]), likewise
    at::Tensor attended_gradient;  // [N, A]; before normed_gradient
    at::Tensor normed_gradient;    // [N, H]
    at::Tensor qkv_gradient;       // [N, J]
  } attention;

  struct FeedForward {
    at::Tensor gated;            // [N, I]; not together with normed
    at::Tensor normed;           // [N, H]
    at::Tensor gated_gradient;   // [N, I]; before normed_gradient
    at::Tensor normed_gradient;  // [N, H]
    at::Tensor down_lora;        // [N, hidden width of the adapters]; undefined without any
  } feed_forward;
};

class BlockMemory {
 public:
  // `ops` outlives the object.
  BlockMemory(const ModelConfig& config, const BlockLora& lora, DeviceOps& ops, at::ScalarType type,
              ActivationCheckpointing level);

  // Tensors have this shape from here on; contents are lost.
  void Fit(const BatchShape& shape);
  // What Fit takes for this shape, without taking it.
  std::int64_t BytesFor(const BatchShape& shape) const;

  // With the levels that keep the inputs alone, all blocks share one.
  BlockActivations& Activations(int block) { return kept_[block % kept_.size()]; }
  BlockScratch& scratch() { return scratch_; }
  std::int64_t bytes() const { return kept_arena_.bytes() + scratch_arena_.bytes(); }

 private:
  BlockActivations CutActivations(BumpAllocator& allocator, const BatchShape& shape) const;
  NormActivations CutNorm(BumpAllocator& allocator, std::int64_t tokens) const;
  BlockScratch CutScratch(BumpAllocator& allocator, std::int64_t tokens) const;

  const ModelConfig config_;
  const BlockLora lora_;
  const at::ScalarType type_;
  const bool norms_after_;
  const bool keeps_normed_;
  Arena kept_arena_;
  Arena scratch_arena_;
  std::vector<BlockActivations> kept_;
  BlockScratch scratch_;
};

}  // namespace muster
