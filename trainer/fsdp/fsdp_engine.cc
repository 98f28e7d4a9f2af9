#include "trainer/fsdp/fsdp_engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "trainer/fsdp/engine.h"
#include "trainer/model/adapters.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/scalar_type.h"
#include "trainer/ops/sum_of_squares.h"

namespace muster {
namespace {

constexpr Duration kSplitTimeout = std::chrono::minutes(5);

}  // namespace

Engine::Engine(const ModelConfig& config, const std::vector<UnitSpec>& trained, Mesh mesh,
               DeviceOps& ops, FsdpOptions options)
    : config_(config),
      mesh_(std::move(mesh)),
      ops_(ops),
      options_(std::move(options)),
      precision_(options_.precision),
      layout_(trained, mesh_.shape().shard_size),
      blocks_(config, ops, ScalarTypeOf(precision_.compute), options_.activation_checkpointing,
              options_.lora ? LoraOf(config, *options_.lora) : BlockLora()),
      head_(ops, ScalarTypeOf(precision_.compute)),
      rotary_(config, {.buffer = ScalarTypeOf(precision_.buffer),
                       .stored = ScalarTypeOf(precision_.wide()),
                       .device = ops.device()}),
      scaler_(precision_.scales_loss()) {
  if (!options_.cpu_offload || ops_.is_host()) return;
  host_ops_ = MakeCpuOps();
  updates_ = std::make_unique<AsyncCpuOptimizer>();
}

bool Engine::reshards() const {
  return options_.strategy == ShardingStrategy::kFullShard ||
         options_.strategy == ShardingStrategy::kNoShard ||
         options_.strategy == ShardingStrategy::kHybridShard;
}

Status Engine::Allocate(std::vector<UnitSpec> frozen) {
  MUSTER_RETURN_IF_ERROR(PlaceWeights(std::move(frozen)));
  MUSTER_RETURN_IF_ERROR(PlaceState());
  MUSTER_ASSIGN_OR_RETURN(reducer_,
                          GradientReducer::Create(layout_, *state_, mesh_, ops_, host_ops_.get(),
                                                  options_.reduce_every_micro_batch));
  sums_ = at::zeros({kSumCount}, at::TensorOptions().dtype(at::kDouble).device(ops_.device()));
  losses_ = at::zeros({1}, sums_.options());
  eval_sums_ = at::zeros({kEvalSumCount}, sums_.options());
  squares_ = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(state_ops().device()));
  return OkStatus();
}

Status Engine::PlaceWeights(std::vector<UnitSpec> frozen) {
  const bool adapters = !frozen.empty();
  // Adapters are small: once gathered they stay until they are updated.
  MUSTER_ASSIGN_OR_RETURN(
      weights_, UnshardedParameters::Create(layout_, mesh_.shard(), ops_,
                                            {.rank = mesh_.shard_rank(),
                                             .type = precision_.compute,
                                             .reshard_after_forward = reshards() && !adapters,
                                             .from_host = host_ops_ != nullptr}));
  if (adapters) {
    MUSTER_ASSIGN_OR_RETURN(
        frozen_, FrozenWeights::Create(std::move(frozen), mesh_.shard(), ops_,
                                       {.rank = mesh_.shard_rank(),
                                        .ranks = mesh_.shape().shard_size,
                                        .form = {precision_.compute, options_.quantization},
                                        .reshard_after_forward = reshards(),
                                        .in_host_memory = host_ops_ != nullptr,
                                        .retained = options_.retained_weights,
                                        .source = options_.frozen_source}));
  }
  for (int u = 0; u <= head_unit(); ++u) {
    UnitWeights& weights = unit_weights_.emplace_back();
    if (frozen_ != nullptr) weights = frozen_->weights(u);
    Overlay(ViewUnit(layout_.units()[u], weights_->data(u), precision_.compute, ops_.device()),
            &weights);
  }
  return OkStatus();
}

Status Engine::PlaceState() {
  Segment* const segment = options_.segment;
  const bool in_segment =
      segment != nullptr && options_.snapshot_every == 1 && state_ops().is_host();
  state_ = std::make_unique<ShardState>(
      layout_, mesh_.shard_rank(), precision_, state_ops(), weights_->OwnPlaces(),
      [this](std::size_t bytes) {
        return host_ops_ != nullptr ? ops_.AllocateHost(bytes) : ops_.Allocate(bytes);
      },
      in_segment ? segment : nullptr);
  if (segment != nullptr) {
    snapshots_ =
        std::make_unique<StateSnapshots>(*state_, *segment, state_ops(), options_.snapshot_every);
  }
  std::vector<const void*> sources;
  for (const UnitShard& unit : state_->units()) sources.push_back(unit.GatherSource());
  weights_->SetSources(std::move(sources));
  return OkStatus();
}

Status Engine::LoadFrozen(const SafetensorsModel* model, const std::function<void()>& on_read) {
  if (frozen_ == nullptr) return OkStatus();
  return frozen_->Load(model, mesh_.world(), on_read);
}

std::int64_t Engine::parameter_count() const {
  return layout_.parameter_count() + (frozen_ != nullptr ? frozen_->parameter_count() : 0);
}

void Engine::WeightsLoaded() {
  WaitForUpdate();
  state_->RefreshLowPrecision();
  weights_->Invalidate();
}

Status Engine::ForwardBackward(const MicroBatch& batch, double loss_scale, bool last) {
  const at::NoGradGuard no_grad;
  if (!step_open_) {
    reducer_->StartStep();
    sums_.zero_();
    step_open_ = true;
    micro_batch_ = 0;
  }
  label_scale_ = loss_scale;
  last_micro_batch_ = last;
  Status status = RunMicroBatch(PadToFewLengths(batch));
  if (!status.ok()) {
    AbandonStep();
    return status;
  }
  NoteLoss(loss_scale);
  return OkStatus();
}

// Kept on the device: to look at each would make the host wait for every micro-batch.
void Engine::NoteLoss(double loss_scale) {
  const at::Tensor loss = sums_.narrow(0, kLoss, 1);
  // All ranks must see it, and the scale is this one's alone.
  if (!std::isfinite(loss_scale)) loss.fill_(loss_scale);
  if (micro_batch_ >= losses_.numel()) losses_.resize_({2 * micro_batch_ + 1});
  losses_.narrow(0, micro_batch_, 1).copy_(loss);
  ++micro_batch_;
}

void Engine::AbandonStep() {
  SealUpdated();
  if (snapshots_ != nullptr) snapshots_->Complete();
  step_open_ = false;
  eval_sums_.zero_();
  tied_gradient_.reset();
  weights_->Invalidate();
  if (frozen_ != nullptr) frozen_->Abandon();
}

std::optional<DropoutKey> Engine::MaskOf(const MicroBatch& batch) const {
  if (batch.number < 0) return std::nullopt;
  return PartOfKey({options_.seed}, static_cast<std::uint64_t>(batch.number));
}

Status Engine::RunMicroBatch(const MicroBatch& batch) {
  const at::Tensor ids = OnDevice(batch.input_ids);
  EnterPhase(TrainPhase::kForward);
  MUSTER_ASSIGN_OR_RETURN(const ResidualStream hidden, Forward(batch, ids));
  SealUpdated();
  EnterPhase(TrainPhase::kBackward);
  MUSTER_ASSIGN_OR_RETURN(at::Tensor gradient, HeadBackward(hidden, batch));
  MUSTER_RETURN_IF_ERROR(BlocksBackward(gradient));
  return EmbeddingBackward(gradient, ids);
}

Result<ResidualStream> Engine::Forward(const MicroBatch& batch, const at::Tensor& ids) {
  rotary_.Ensure(batch.length);
  blocks_.Begin(
      {.rows = batch.rows, .length = batch.length, .document_begins = batch.document_begins},
      rotary_.Cos(batch.length), rotary_.Sin(batch.length), MaskOf(batch));
  Prefetch(0);
  Prefetch(1);
  MUSTER_RETURN_IF_ERROR(WaitForWeights(0));
  ResidualStream stream;
  {
    const TraceSpan span(options_.tracer, TracePhase::kForward, unit_name(0), 0);
    stream.sum = blocks_.FirstInput();
    at::index_select_out(stream.sum, embedding(), 0, ids);
  }
  for (int u = 1; u < head_unit(); ++u) {
    Prefetch(u + 1);
    MUSTER_RETURN_IF_ERROR(WaitForWeights(u));
    const TraceSpan span(options_.tracer, TracePhase::kForward, unit_name(u), u);
    const int first = (u - 1) * options_.blocks_per_unit;
    const std::vector<BlockWeights>& blocks = weights_of(u).blocks;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      stream = blocks_.Forward(first + static_cast<int>(b), stream, blocks[b]);
    }
  }
  return stream;
}

Result<at::Tensor> Engine::HeadBackward(const ResidualStream& hidden, const MicroBatch& batch) {
  const int head = head_unit();
  MUSTER_RETURN_IF_ERROR(WaitForWeights(head));
  MUSTER_ASSIGN_OR_RETURN(UnitGradients gradients, BeginGradients(head));
  at::Tensor gradient;
  {
    const TraceSpan span(options_.tracer, TracePhase::kLoss, unit_name(head), head);
    const LabelledPositions labelled = FindLabels(batch);
    const bool tied = config_.tie_word_embeddings;
    if (tied && trains_embedding() && !tied_gradient_.defined()) {
      tied_gradient_ = at::empty_like(embedding());
    }
    at::Tensor loss = sums_.narrow(0, kLoss, 1);
    HeadTask task = TaskOf(hidden, labelled);
    task.scale = label_scale_ * scaler_.scale();
    task.norm_gradient = gradients.final_norm;
    task.head_gradient = tied ? GradientTarget{.tensor = tied_gradient_} : gradients.head;
    gradient = head_.Run(task, loss);
  }
  MUSTER_RETURN_IF_ERROR(ReduceGradients(head));
  return gradient;
}

HeadTask Engine::TaskOf(const ResidualStream& hidden, const LabelledPositions& labelled) const {
  const UnitWeights& weights = weights_of(head_unit());
  return {.hidden = hidden,
          .norm = weights.final_norm,
          .head = config_.tie_word_embeddings ? embedding() : weights.head,
          .positions = OnDevice(labelled.positions),
          .labels = OnDevice(labelled.labels),
          .eps = config_.rms_norm_eps};
}

Status Engine::BlocksBackward(at::Tensor& gradient) {
  for (int u = head_unit() - 1; u >= 1; --u) {
    if (u > 1) Prefetch(u - 1);
    MUSTER_RETURN_IF_ERROR(WaitForWeights(u));
    MUSTER_ASSIGN_OR_RETURN(UnitGradients gradients, BeginGradients(u));
    {
      const TraceSpan span(options_.tracer, TracePhase::kBackward, unit_name(u), u);
      const int first = (u - 1) * options_.blocks_per_unit;
      const std::vector<BlockWeights>& blocks = weights_of(u).blocks;
      for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b) {
        blocks_.Backward(first + b, blocks[b], gradients.blocks[b], gradient);
      }
    }
    MUSTER_RETURN_IF_ERROR(ReduceGradients(u));
  }
  return OkStatus();
}

Status Engine::EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids) {
  MUSTER_ASSIGN_OR_RETURN(UnitGradients gradients, BeginGradients(0));
  {
    const TraceSpan span(options_.tracer, TracePhase::kBackward, unit_name(0), 0);
    GradientTarget target = gradients.embedding;
    if (tied_gradient_.defined()) {
      if (target.add) {
        target.tensor.add_(tied_gradient_);
      } else {
        target.tensor.copy_(tied_gradient_);
      }
      target.add = true;
    }
    if (trains_embedding()) ops_.Run(op::EmbeddingBackward{gradient, ids, target});
  }
  return ReduceGradients(0);
}

Status Engine::WaitForWeights(int unit) {
  const TraceSpan span(options_.tracer, TracePhase::kGatherWait, unit_name(unit), unit);
  if (frozen_ != nullptr) MUSTER_RETURN_IF_ERROR(frozen_->Wait(unit));
  return weights_->Wait(unit);
}

Result<UnitGradients> Engine::BeginGradients(int unit) {
  const TraceSpan span(options_.tracer, TracePhase::kReduceWait, unit_name(unit), unit);
  MUSTER_ASSIGN_OR_RETURN(target_, reducer_->Begin(unit));
  return TargetsOf(ViewUnit(layout_.units()[unit], target_.flat, target_.type, ops_.device()),
                   weights_of(unit).blocks.size(), target_.add);
}

Status Engine::ReduceGradients(int unit) {
  if (watching_) LookAtGradients(unit);
  const TraceSpan span(options_.tracer, TracePhase::kReduceWait, unit_name(unit), unit);
  return reducer_->Reduce(unit, last_micro_batch_);
}

Result<StepNumbers> Engine::FinishGradients(double vote) {
  const at::NoGradGuard no_grad;
  Result<StepNumbers> numbers = SumUp(vote);
  if (!numbers.ok()) AbandonStep();
  return numbers;
}

Result<StepNumbers> Engine::SumUp(double vote) {
  {
    const TraceSpan span(options_.tracer, TracePhase::kReduceWait, "finish");
    MUSTER_RETURN_IF_ERROR(reducer_->Finish());
  }
  if (snapshots_ != nullptr) {
    const TraceSpan span(options_.tracer, TracePhase::kCheckpoint, "snapshot");
    MUSTER_RETURN_IF_ERROR(snapshots_->Finish());
  }
  const TraceSpan span(options_.tracer, TracePhase::kOptimizer, "norm");
  squares_.zero_();
  // Replicas hold the same gradients: they count once.
  for (const UnitShard& unit : state_->units()) {
    if (!is_first_replica()) break;
    state_ops().Run(op::SumOfSquares{unit.gradient, precision_.gradient, unit.count, squares_});
  }
  sums_.narrow(0, kSquares, 1).copy_(squares_);
  sums_.narrow(0, kVotes, 1).fill_(vote);
  // Over host memory, where OK says that the step's collectives have ended well on all ranks: what
  // a lost peer cut short must not be taken for numbers.
  at::Tensor sums = sums_.cpu();
  MUSTER_RETURN_IF_ERROR(AddUp(sums));
  const double* values = sums.const_data_ptr<double>();
  step_open_ = false;
  StepNumbers numbers{.loss = values[kLoss] * label_scale_,
                      .grad_norm = std::sqrt(values[kSquares]) / scaler_.scale(),
                      .votes = values[kVotes]};
  gradient_factor_ = 1 / scaler_.scale();
  // A loss that is not finite is no fault of the loss scale.
  overflow_ = std::isfinite(numbers.loss) && scaler_.Overflowed(std::isfinite(numbers.grad_norm));
  numbers.overflow = overflow_;
  // As torch.nn.utils.clip_grad_norm_, down to the small constant.
  if (options_.grad_clip > 0) {
    gradient_factor_ *= std::min(1.0, options_.grad_clip / (numbers.grad_norm + 1e-6));
  }
  return numbers;
}

Status Engine::AddUp(at::Tensor& sums) {
  if (mesh_.world().size() == 1) return OkStatus();
  return mesh_.world()
      .AllReduce(sums.data_ptr(), sums.numel(), ElementType::kFloat64, ReduceOp::kSum)
      ->Wait();
}

void Engine::OptimizerStep(Step step, double lr) {
  if (overflow_) return;
  EnterPhase(TrainPhase::kOptimizer);
  const AdamWStep update{.number = step, .lr = lr, .gradient_scale = gradient_factor_};
  const auto update_unit = [this, update](int unit) {
    state_ops().Run(op::AdamW{state_->ForOptimizer(unit), options_.adamw, update});
  };
  weights_->Invalidate();
  state_->BeginUpdate();
  if (snapshots_ != nullptr) snapshots_->NoteUpdate();
  if (updates_ != nullptr) {
    updates_->Start(head_unit() + 1, update_unit);
    return;
  }
  for (int u = 0; u <= head_unit(); ++u) {
    const TraceSpan span(options_.tracer, TracePhase::kOptimizer, unit_name(u), u);
    update_unit(u);
  }
}

void Engine::WaitForUpdate() {
  if (updates_ != nullptr) updates_->WaitForAll();
}

void Engine::Seal(const TrainCursor& cursor) {
  if (snapshots_ == nullptr) return;
  unsealed_ = cursor;
  if (updates_ == nullptr) SealUpdated();
}

void Engine::SealUpdated() {
  if (!unsealed_) return;
  WaitForUpdate();
  snapshots_->Take(*std::exchange(unsealed_, std::nullopt));
}

Step Engine::SealedStep() const {
  return options_.segment != nullptr ? options_.segment->NewestStep() : -1;
}

void Engine::SetBuddy(Buddy* buddy) {
  if (snapshots_ != nullptr) snapshots_->SetBuddy(buddy);
}

void Engine::Prefetch(int unit) {
  if (updates_ != nullptr) {
    const TraceSpan span(options_.tracer, TracePhase::kOptimizer, unit_name(unit), unit);
    updates_->WaitFor(unit);
  }
  if (frozen_ != nullptr) frozen_->Prefetch(unit);
  weights_->Prefetch(unit);
}

int Engine::FirstNonFiniteLoss() {
  const at::Tensor losses = losses_.cpu();
  const double* values = losses.const_data_ptr<double>();
  for (int m = 0; m < micro_batch_; ++m) {
    if (!std::isfinite(values[m])) return m;
  }
  return -1;
}

std::string Engine::FirstNonFinite(ShardArrays arrays) {
  const at::NoGradGuard no_grad;
  WaitForUpdate();
  return NonFiniteTensor(layout_, *state_, mesh_.shard_rank(), arrays, state_ops());
}

void Engine::WatchGradients(bool watch) {
  watching_ = watch;
  if (watch) bad_gradient_ = {};
}

void Engine::LookAtGradients(int unit) {
  if (bad_gradient_.micro_batch >= 0) return;
  const std::string tensor =
      NonFiniteTensor(layout_.units()[unit], target_.flat, target_.type, ops_);
  if (!tensor.empty()) bad_gradient_ = {micro_batch_, tensor};
}

LossScaleState Engine::loss_scale() const { return {scaler_.scale(), scaler_.finite_steps()}; }

void Engine::RestoreLossScale(const LossScaleState& state) {
  scaler_.Restore(state.scale, state.finite_steps);
}

EngineMemory Engine::memory() const {
  const Segment* segment = options_.segment;
  const std::size_t slots = segment != nullptr ? kSegmentSlots * segment->slot_bytes() : 0;
  return {.frozen = frozen_ != nullptr ? frozen_->shard_bytes() : 0,
          .state = state_->bytes(),
          .snapshots = static_cast<std::int64_t>(slots),
          .gathered = weights_->bytes() + (frozen_ != nullptr ? frozen_->gathered_bytes() : 0),
          .gradients = reducer_->bytes(),
          .activations = blocks_.bytes()};
}

// From pinned memory, since a copy from other memory waits for all that the device has in hand: the
// head's labels would wait for the whole forward pass.
at::Tensor Engine::OnDevice(const std::vector<std::int64_t>& values) const {
  const at::Tensor host =
      at::from_blob(const_cast<std::int64_t*>(values.data()),
                    {static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kLong));
  if (ops_.device().is_cpu()) return host.clone();
  return host.pin_memory().to(ops_.device(), /*non_blocking=*/true);
}

bool StepNumbers::finite() const {
  return std::isfinite(loss) && (overflow || std::isfinite(grad_norm));
}

Result<std::unique_ptr<FsdpEngine>> FsdpEngine::Create(const ModelConfig& config,
                                                       Communicator& communicator, DeviceOps& ops,
                                                       FsdpOptions options) {
  MUSTER_ASSIGN_OR_RETURN(Mesh mesh,
                          Mesh::Make(communicator, options.strategy, options.ranks_per_node,
                                     Deadline::After(kSplitTimeout)));
  SplitUnits units = SplitModel(config, options.blocks_per_unit, options.lora);
  auto engine =
      std::make_unique<Engine>(config, units.trained, std::move(mesh), ops, std::move(options));
  MUSTER_RETURN_IF_ERROR(engine->Allocate(std::move(units.frozen)));
  return std::unique_ptr<FsdpEngine>(std::move(engine));
}

}  // namespace muster
