// BlockMemory: what LlamaBlocks keeps from forward to backward, and where it computes in between.
//
// Everything is cut from one Arena per kind. N tokens, H hidden size, A = heads * head_dim, J the
// joined width of query, key and value, I inner size. The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/model/arena.h"
#include "trainer/model/experts.h"
#include "trainer/model/lora_form.h"
#include "trainer/model/router.h"
#include "trainer/model/shared_expert.h"
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
  // In a sparse layer instead. Its norm's output is always kept: experts have no norm's weight.
  Routing routing;
  at::Tensor expert_gate_up;  // [N * experts per token, 2 * I of experts]; likewise
  SharedExpertActivations shared;
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

  struct SparseFeedForward {
    ExpertScratch experts;
    SharedExpertScratch shared;  // its output lasts from one part of the block to the next
    at::Tensor logits;           // [N, E]
    at::Tensor normed_gradient;  // [N, H]
  } sparse;
};

class BlockMemory {
 public:
  // `ops` outlives the object. `experts_elsewhere`: what experts compute on is not among it
  // (parallel_experts.h).
  BlockMemory(const ModelConfig& config, const BlockLora& lora, DeviceOps& ops, at::ScalarType type,
              ActivationCheckpointing level, bool experts_elsewhere = false);

  // Tensors have this shape from here on; contents are lost.
  void Fit(const BatchShape& shape);
  // What Fit takes for this shape, without taking it.
  std::int64_t BytesFor(const BatchShape& shape) const;

  // With the levels that keep the inputs alone, all blocks share one.
  BlockActivations& Activations(int block) { return kept_[Place(block)]; }
  // How many blocks' activations there are at once.
  int places() const { return static_cast<int>(kept_.size()); }
  BlockScratch& scratch() { return scratch_; }
  std::int64_t bytes() const { return kept_arena_.bytes() + scratch_arena_.bytes(); }

 private:
  std::size_t Place(std::int64_t block) const {
    return static_cast<std::size_t>(block) % kept_.size();
  }
  // `place` is that of some blocks.
  BlockActivations CutActivations(BumpAllocator& allocator, const BatchShape& shape,
                                  std::size_t place) const;
  // What is kept of the feed-forward halves of those that are sparse, or of those that are not.
  bool HasFeedForward(std::size_t place, bool sparse) const;
  void CutFeedForward(BumpAllocator& allocator, std::int64_t tokens, bool sparse,
                      BlockActivations& kept) const;
  NormActivations CutNorm(BumpAllocator& allocator, std::int64_t tokens, bool keeps_normed) const;
  BlockScratch CutScratch(BumpAllocator& allocator, std::int64_t tokens) const;

  const ModelConfig config_;
  const BlockLora lora_;
  const at::ScalarType type_;
  const bool norms_before_, norms_after_;
  const bool keeps_normed_;
  const bool experts_elsewhere_;
  Arena kept_arena_;
  Arena scratch_arena_;
  std::vector<BlockActivations> kept_;
  BlockScratch scratch_;
};

}  // namespace muster
