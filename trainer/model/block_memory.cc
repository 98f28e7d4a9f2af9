#include "trainer/model/block_memory.h"

#include "trainer/model/linear.h"
#include "trainer/model/parallel_experts.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

bool KeepsInputsAlone(ActivationCheckpointing level) {
  return level == ActivationCheckpointing::kFull || level == ActivationCheckpointing::kFullOffload;
}

}  // namespace

BlockMemory::BlockMemory(const ModelConfig& config, const BlockLora& lora, DeviceOps& ops,
                         at::ScalarType type, ActivationCheckpointing level, bool experts_elsewhere)
    : config_(config),
      lora_(lora),
      type_(type),
      norms_before_(config.norm_placement != NormPlacement::kAfter),
      norms_after_(config.norm_placement != NormPlacement::kBefore),
      keeps_normed_(level != ActivationCheckpointing::kSelective),
      experts_elsewhere_(experts_elsewhere),
      kept_arena_(ops),
      scratch_arena_(ops),
      kept_(KeepsInputsAlone(level) ? 1 : config.num_hidden_layers) {}

void BlockMemory::Fit(const BatchShape& shape) {
  kept_arena_.Fit([&](BumpAllocator& allocator) {
    for (std::size_t p = 0; p < kept_.size(); ++p) kept_[p] = CutActivations(allocator, shape, p);
  });
  scratch_arena_.Fit(
      [&](BumpAllocator& allocator) { scratch_ = CutScratch(allocator, shape.tokens()); });
}

std::int64_t BlockMemory::BytesFor(const BatchShape& shape) const {
  BumpAllocator kept, scratch;
  for (std::size_t p = 0; p < kept_.size(); ++p) CutActivations(kept, shape, p);
  CutScratch(scratch, shape.tokens());
  return kept.used() + scratch.used();
}

NormActivations BlockMemory::CutNorm(BumpAllocator& allocator, std::int64_t tokens,
                                     bool keeps_normed) const {
  NormActivations kept;
  const auto cut = [&] { return allocator.Cut({tokens, config_.hidden_size}, type_); };
  if (norms_before_) kept.scale = allocator.Cut({tokens}, WideType(type_));
  if (norms_before_ && keeps_normed) kept.normed = cut();
  if (norms_after_) {
    kept.output_scale = allocator.Cut({tokens}, WideType(type_));
    kept.output = cut();
  }
  return kept;
}

bool BlockMemory::HasFeedForward(std::size_t place, bool sparse) const {
  for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block) {
    if (Place(block) == place && config_.IsSparse(block) == sparse) return true;
  }
  return false;
}

BlockActivations BlockMemory::CutActivations(BumpAllocator& allocator, const BatchShape& shape,
                                             std::size_t place) const {
  const std::int64_t tokens = shape.tokens(), hidden = config_.hidden_size;
  const std::int64_t heads = config_.num_attention_heads, head_dim = config_.head_dim;
  const std::int64_t joined = (heads + 2 * config_.num_key_value_heads) * head_dim;
  const bool dense = HasFeedForward(place, false), sparse = HasFeedForward(place, true);
  BlockActivations kept;
  kept.attention_norm = CutNorm(allocator, tokens, keeps_normed_);
  kept.qkv = allocator.Cut({tokens, joined}, type_);
  kept.attended = allocator.Cut({tokens, heads * head_dim}, type_);
  kept.lse = allocator.Cut({shape.rows, heads, shape.length}, WideType(type_));
  kept.middle = allocator.Cut({tokens, hidden}, type_);
  kept.feed_forward_norm = CutNorm(allocator, tokens, keeps_normed_ || sparse);
  allocator.Overlap(
      [&] {
        if (dense) CutFeedForward(allocator, tokens, false, kept);
      },
      [&] {
        if (sparse) CutFeedForward(allocator, tokens, true, kept);
      });
  kept.qkv_lora = CutLoraHidden(lora_.qkv, allocator, tokens, type_);
  kept.output_lora = CutLoraHidden(lora_.output, allocator, tokens, type_);
  return kept;
}

void BlockMemory::CutFeedForward(BumpAllocator& allocator, std::int64_t tokens, bool sparse,
                                 BlockActivations& kept) const {
  if (sparse) {
    kept.routing = CutRouting(*config_.experts, allocator, tokens, type_);
    if (config_.experts->shared_intermediate_size > 0)
      kept.shared = CutSharedExpertActivations(*config_.experts, lora_, allocator, tokens, type_);
    if (experts_elsewhere_) return;
    kept.expert_gate_up =
        CutExpertGateUp(config_, allocator, tokens * config_.experts->per_token, type_);
    return;
  }
  kept.gate_up = allocator.Cut({tokens, 2 * config_.intermediate_size}, type_);
  kept.gate_up_lora = CutLoraHidden(lora_.gate_up, allocator, tokens, type_);
}

BlockScratch BlockMemory::CutScratch(BumpAllocator& allocator, std::int64_t tokens) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const std::int64_t attended = config_.num_attention_heads * config_.head_dim;
  const std::int64_t joined = attended + 2 * config_.num_key_value_heads * config_.head_dim;
  const auto cut = [&](at::Tensor& tensor, std::int64_t width) {
    return [this, &allocator, &tensor, tokens, width] {
      tensor = allocator.Cut({tokens, width}, type_);
    };
  };
  const bool computes_normed = norms_before_ && !keeps_normed_;
  BlockScratch scratch;
  BlockScratch::Attention& a = scratch.attention;
  BlockScratch::FeedForward& f = scratch.feed_forward;
  cut(scratch.delta, hidden)();
  allocator.Overlap(
      [&] {
        if (computes_normed) cut(a.normed, hidden)();
        if (config_.qk_norms != QkNorms::kNone) {
          const bool per_head = config_.qk_norms == QkNorms::kPerHead;
          cut(a.rotated, joined)();
          a.head_scale = allocator.Cut(
              {tokens, per_head ? config_.num_attention_heads + config_.num_key_value_heads : 2},
              WideType(type_));
        }
        allocator.Overlap(cut(a.attended_gradient, attended), cut(a.normed_gradient, hidden));
        cut(a.qkv_gradient, joined)();
      },
      [&] {
        f.down_lora = CutLoraHidden(lora_.down, allocator, tokens, type_);
        allocator.Overlap(cut(f.gated, inner), cut(f.normed, computes_normed ? hidden : 0));
        allocator.Overlap(cut(f.gated_gradient, inner), cut(f.normed_gradient, hidden));
      },
      [&] {
        if (config_.SparseLayers() == 0) return;
        cut(scratch.sparse.logits, config_.experts->count)();
        cut(scratch.sparse.normed_gradient, hidden)();
        if (config_.experts->shared_intermediate_size > 0)
          scratch.sparse.shared = CutSharedExpertScratch(config_, lora_, allocator, tokens, type_);
        scratch.sparse.experts =
            experts_elsewhere_ ? ParallelExperts::CutScratch(config_, allocator, tokens, type_)
                               : CutExpertScratch(config_, lora_, allocator,
                                                  tokens * config_.experts->per_token, type_);
      });
  return scratch;
}

}  // namespace muster
