#include "trainer/fsdp/schedule.h"

#include <ATen/ATen.h>

#include "trainer/model/adapters.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/to_device.h"

namespace muster {

Schedule::Schedule(const ModelConfig& config, const Placement& placement,
                   const FsdpOptions& options, DeviceOps& ops, const UnitMovers& movers)
    : config_(config),
      layout_(placement.trained),
      parts_(placement.parts),
      options_(options),
      ops_(ops),
      movers_(movers),
      blocks_(config, ops, ScalarTypeOf(options.precision.compute),
              options.activation_checkpointing,
              options.lora ? LoraOf(config, *options.lora) : BlockLora(), movers.experts),
      head_(ops, ScalarTypeOf(options.precision.compute)),
      rotary_(config, {.buffer = ScalarTypeOf(options.precision.buffer),
                       .stored = ScalarTypeOf(options.precision.wide()),
                       .device = ops.device()}),
      embedding_multiplier_(EmbeddingMultiplier(config, ScalarTypeOf(options.precision.compute))) {
  for (int u = 0; u <= head_unit(); ++u) {
    UnitWeights& weights = weights_.emplace_back();
    if (movers_.frozen != nullptr) weights = movers_.frozen->weights(u);
    Overlay(ViewUnit(parts_[u], movers_.weights.data(u), options.precision.compute, ops.device()),
            &weights);
  }
}

Result<HeadTask> Schedule::Forward(const MicroBatch& batch, const LabelledPositions& labelled) {
  const BatchShape shape{
      .rows = batch.rows, .length = batch.length, .document_begins = batch.document_begins};
  blocks_.Begin(shape, rotary_.OfBatch(shape, batch.row_lengths), MaskOf(batch), RealTokens(batch));
  ids_ = OnDevice(batch.input_ids);
  Prefetch(0);
  Prefetch(1);
  MUSTER_RETURN_IF_ERROR(Wait(0));
  ResidualStream stream;
  {
    const TraceSpan span = Span(TracePhase::kForward, 0);
    stream.sum = blocks_.FirstInput();
    at::index_select_out(stream.sum, weights_.front().embedding, 0, ids_);
    if (embedding_multiplier_ != 1) stream.sum.mul_(embedding_multiplier_);
  }
  for (int u = 1; u < head_unit(); ++u) {
    Prefetch(u + 1);
    MUSTER_RETURN_IF_ERROR(Wait(u));
    BlocksForward(u, &stream);
    MUSTER_RETURN_IF_ERROR(blocks_.status());
  }
  MUSTER_RETURN_IF_ERROR(Wait(head_unit()));
  const UnitWeights& head = weights_.back();
  return HeadTask{.hidden = stream,
                  .norm = head.final_norm,
                  .head = config_.tie_word_embeddings ? weights_.front().embedding : head.head,
                  .positions = OnDevice(labelled.positions),
                  .labels = OnDevice(labelled.labels),
                  .eps = config_.rms_norm_eps,
                  .zero_centered = config_.zero_centered_norms,
                  .logits_scaling = config_.logits_scaling,
                  .cap = config_.logit_cap};
}

Status Schedule::Backward(HeadTask task, const BalanceTask& balance, at::Tensor& loss,
                          at::Tensor& balance_loss, bool last) {
  last_ = last;
  const double coefficient =
      config_.experts ? config_.experts->balance_coefficient * balance.share : 0;
  const at::Tensor uneven = blocks_.BalanceLoss(coefficient * balance.gradient_scale);
  if (uneven.defined()) balance_loss.add_(uneven, coefficient);
  const bool tied = config_.tie_word_embeddings;
  const bool trains_embedding = !layout_.units().front().tensors.empty();
  if (tied && trains_embedding && !tied_gradient_.defined()) {
    tied_gradient_ = at::empty_like(weights_.front().embedding);
  }
  at::Tensor gradient;
  MUSTER_RETURN_IF_ERROR(
      Reducing(head_unit(), TracePhase::kLoss, [&](const UnitGradients& gradients) {
        task.norm_gradient = gradients.final_norm;
        task.head_gradient = tied ? GradientTarget{.tensor = tied_gradient_} : gradients.head;
        gradient = head_.Run(task, loss);
      }));
  for (int u = head_unit() - 1; u >= 1; --u) {
    if (u > 1) Prefetch(u - 1);
    MUSTER_RETURN_IF_ERROR(Wait(u));
    MUSTER_RETURN_IF_ERROR(RunAgain(u));
    MUSTER_RETURN_IF_ERROR(Reducing(u, TracePhase::kBackward, [&](const UnitGradients& gradients) {
      BlocksBackward(u, gradients, gradient);
    }));
  }
  return Reducing(0, TracePhase::kBackward, [&](const UnitGradients& gradients) {
    if (trains_embedding) EmbeddingBackward(gradients, gradient);
  });
}

void Schedule::Prefetch(int unit) {
  if (movers_.updates != nullptr) {
    const TraceSpan span = Span(TracePhase::kOptimizer, unit);
    movers_.updates->WaitFor(unit);
  }
  if (movers_.frozen != nullptr) movers_.frozen->Prefetch(unit);
  movers_.weights.Prefetch(unit);
}

Status Schedule::Wait(int unit) {
  const TraceSpan span = Span(TracePhase::kGatherWait, unit);
  if (movers_.frozen != nullptr) MUSTER_RETURN_IF_ERROR(movers_.frozen->Wait(unit));
  return movers_.weights.Wait(unit);
}

template <typename Compute>
Status Schedule::Reducing(int unit, TracePhase phase, Compute compute) {
  GradientReducer::Target target;
  {
    const TraceSpan span = Span(TracePhase::kReduceWait, unit);
    MUSTER_ASSIGN_OR_RETURN(target, movers_.reducer.Begin(unit));
  }
  const UnitWeights views = ViewUnit(parts_[unit], target.flat, target.type, ops_.device());
  {
    const TraceSpan span = Span(phase, unit);
    compute(TargetsOf(views, weights_[unit].blocks.size(), target.add));
  }
  MUSTER_RETURN_IF_ERROR(blocks_.status());
  movers_.finder.LookAt(unit, target);
  const TraceSpan span = Span(TracePhase::kReduceWait, unit);
  return movers_.reducer.Reduce(unit, last_);
}

void Schedule::BlocksForward(int unit, ResidualStream* stream) {
  const TraceSpan span = Span(TracePhase::kForward, unit);
  const UnitBlocks& has = layout_.units()[unit].blocks;
  int block = has.first;
  for (const BlockWeights& weights : weights_[unit].blocks) {
    switch (has.part) {
      case BlockPart::kWhole: *stream = blocks_.Forward(block, *stream, weights); break;
      case BlockPart::kWithoutExperts: blocks_.ForwardToExperts(block, *stream, weights); break;
      case BlockPart::kExperts: *stream = blocks_.ForwardExperts(block, weights); break;
    }
    ++block;
  }
}

Status Schedule::RunAgain(int unit) {
  const UnitBlocks& has = layout_.units()[unit].blocks;
  if (has.part != BlockPart::kExperts || !blocks_.MustRunAgain(has.first)) return OkStatus();
  MUSTER_RETURN_IF_ERROR(Wait(unit - 1));
  const TraceSpan span = Span(TracePhase::kBackward, unit);
  blocks_.ForwardAgain(has.first, weights_[unit - 1].blocks.front());
  return OkStatus();
}

void Schedule::BlocksBackward(int unit, const UnitGradients& gradients, at::Tensor& gradient) {
  const UnitBlocks& has = layout_.units()[unit].blocks;
  const std::vector<BlockWeights>& blocks = weights_[unit].blocks;
  for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b) {
    const int block = has.first + b;
    const BlockGradients& targets = gradients.blocks[b];
    switch (has.part) {
      case BlockPart::kWhole: blocks_.Backward(block, blocks[b], targets, gradient); break;
      case BlockPart::kWithoutExperts:
        blocks_.BackwardToExperts(block, blocks[b], targets, gradient);
        break;
      case BlockPart::kExperts: blocks_.BackwardExperts(block, blocks[b], targets, gradient); break;
    }
  }
}

void Schedule::EmbeddingBackward(const UnitGradients& gradients, at::Tensor& gradient) {
  if (embedding_multiplier_ != 1) gradient.mul_(embedding_multiplier_);
  GradientTarget target = gradients.embedding;
  if (tied_gradient_.defined()) {
    if (target.add) {
      target.tensor.add_(tied_gradient_);
    } else {
      target.tensor.copy_(tied_gradient_);
    }
    target.add = true;
  }
  ops_.Run(op::EmbeddingBackward{gradient, ids_, target});
}

std::optional<DropoutKey> Schedule::MaskOf(const MicroBatch& batch) const {
  if (batch.number < 0) return std::nullopt;
  return PartOfKey({options_.seed}, static_cast<std::uint64_t>(batch.number));
}

at::Tensor Schedule::RealTokens(const MicroBatch& batch) const {
  if (config_.SparseLayers() == 0 || batch.row_lengths.empty()) return {};
  const at::ScalarType type = WideType(ScalarTypeOf(options_.precision.compute));
  at::Tensor real = at::zeros({batch.rows, batch.length}, at::TensorOptions(type));
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t length = batch.row_lengths[static_cast<std::size_t>(row)];
    real.select(0, row).narrow(0, 0, length).fill_(1);
  }
  return ToDevice(real.view({-1}), ops_.device());
}

at::Tensor Schedule::OnDevice(const std::vector<std::int64_t>& values) const {
  const at::Tensor host =
      at::from_blob(const_cast<std::int64_t*>(values.data()),
                    {static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kLong));
  return ToDevice(host, ops_.device());
}

}  // namespace muster
