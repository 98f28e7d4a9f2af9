#include "trainer/fsdp/fsdp_engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/fsdp/async_cpu_optimizer.h"
#include "trainer/fsdp/frozen_weights.h"
#include "trainer/fsdp/gradient_reducer.h"
#include "trainer/fsdp/non_finite.h"
#include "trainer/fsdp/schedule.h"
#include "trainer/fsdp/state_snapshots.h"
#include "trainer/fsdp/step_batch.h"
#include "trainer/fsdp/unsharded_parameters.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/sum_of_squares.h"

namespace muster {
namespace {

constexpr Duration kSplitTimeout = std::chrono::minutes(5);

}  // namespace

bool StepNumbers::finite() const {
  return std::isfinite(loss) && (overflow || std::isfinite(grad_norm));
}

Result<std::unique_ptr<FsdpEngine>> FsdpEngine::Create(const ModelConfig& config,
                                                       Communicator& communicator, DeviceOps& ops,
                                                       FsdpOptions options) {
  MUSTER_ASSIGN_OR_RETURN(Mesh mesh,
                          Mesh::Make(communicator, options.strategy, options.ranks_per_node,
                                     options.expert_parallel, Deadline::After(kSplitTimeout)));
  std::unique_ptr<FsdpEngine> engine(
      new FsdpEngine(config, std::move(mesh), ops, std::move(options)));
  MUSTER_RETURN_IF_ERROR(engine->Allocate());
  return engine;
}

FsdpEngine::FsdpEngine(const ModelConfig& config, Mesh mesh, DeviceOps& ops, FsdpOptions options)
    : config_(config),
      mesh_(std::move(mesh)),
      ops_(ops),
      options_(std::move(options)),
      placement_(
          PlaceUnits(config, options_,
                     {.ranks = mesh_.shape().shard_size,
                      .rank = mesh_.shard_rank(),
                      .expert_ways = mesh_.shape().expert_ways,
                      .on_host = ops.is_host(),
                      .shares_memory = mesh_.shard() != nullptr && mesh_.shard()->shares_memory(),
                      .takes_snapshots = options_.segment != nullptr})),
      scaler_(options_.precision.scales_loss()) {
  if (!options_.cpu_offload || ops_.is_host()) return;
  host_ops_ = MakeCpuOps();
  updates_ = std::make_unique<AsyncCpuOptimizer>();
}

FsdpEngine::~FsdpEngine() = default;

Status FsdpEngine::Allocate() {
  const FlatLayout& layout = placement_.trained;
  const int rank = mesh_.shard_rank();
  MUSTER_ASSIGN_OR_RETURN(
      weights_, UnshardedParameters::Create(layout, placement_.gathered, mesh_.shard(), ops_,
                                            {.rank = rank, .slices = mesh_.expert_shards()}));
  if (!placement_.frozen_units.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        frozen_, FrozenWeights::Create(placement_, mesh_.shard(), ops_,
                                       {.rank = rank,
                                        .slices = mesh_.expert_shards(),
                                        .form = {options_.precision.compute, options_.quantization},
                                        .retained = options_.retained_weights,
                                        .source = options_.frozen_source}));
  }
  const auto memory = [this](std::size_t bytes) {
    return host_ops_ != nullptr ? ops_.AllocateHost(bytes) : ops_.Allocate(bytes);
  };
  state_ = std::make_unique<ShardState>(placement_, rank, options_.precision, state_ops(),
                                        weights_->OwnPlaces(), memory, options_.segment);
  if (options_.segment != nullptr) {
    snapshots_ = std::make_unique<StateSnapshots>(*state_, *options_.segment, state_ops(),
                                                  options_.snapshot_every);
  }
  std::vector<const void*> sources;
  for (const UnitShard& unit : state_->units()) sources.push_back(unit.GatherSource());
  weights_->SetSources(std::move(sources));
  MUSTER_ASSIGN_OR_RETURN(reducer_,
                          GradientReducer::Create(placement_, *state_, mesh_, ops_, host_ops_.get(),
                                                  options_.reduce_every_micro_batch));
  finder_ = std::make_unique<NonFiniteFinder>(layout, *state_, rank, ops_, state_ops());
  schedule_ = std::make_unique<Schedule>(
      config_, placement_, options_, ops_,
      UnitMovers{*weights_, frozen_.get(), *reducer_, updates_.get(), *finder_, mesh_.experts()});
  const std::int64_t choices =
      config_.experts ? config_.SparseLayers() * config_.experts->count : 0;
  sums_ = at::zeros({kSumCount + choices},
                    at::TensorOptions().dtype(at::kDouble).device(ops_.device()));
  eval_sums_ = at::zeros({kEvalSumCount}, sums_.options());
  squares_ = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(state_ops().device()));
  return OkStatus();
}

Status FsdpEngine::LoadFrozen(const SafetensorsModel* model, const std::function<void()>& on_read) {
  if (frozen_ == nullptr) return OkStatus();
  return frozen_->Load(model, mesh_.world(), on_read);
}

bool FsdpEngine::frozen_kept() const { return frozen_ != nullptr && frozen_->kept(); }

std::int64_t FsdpEngine::parameter_count() const {
  return layout().parameter_count() + (frozen_ != nullptr ? frozen_->parameter_count() : 0);
}

void FsdpEngine::WeightsLoaded() {
  WaitForUpdate();
  state_->RefreshLowPrecision();
  weights_->Invalidate();
}

Status FsdpEngine::ForwardBackward(const MicroBatch& batch, double loss_scale, bool last,
                                   double share) {
  const at::NoGradGuard no_grad;
  if (!step_open_) {
    reducer_->StartStep();
    sums_.zero_();
    step_open_ = true;
    finder_->BeginStep();
  }
  label_scale_ = loss_scale;
  if (Status status = RunMicroBatch(PadToFewLengths(batch), last, share); !status.ok()) {
    return AbandonStep(std::move(status));
  }
  at::Tensor loss = sums_.narrow(0, kLoss, 1);
  // All ranks must see it, and the scale is this one's alone.
  if (!std::isfinite(loss_scale)) loss.fill_(loss_scale);
  finder_->NoteLoss(loss);
  return OkStatus();
}

Status FsdpEngine::RunMicroBatch(const MicroBatch& batch, bool last, double share) {
  EnterPhase(TrainPhase::kForward);
  MUSTER_ASSIGN_OR_RETURN(HeadTask task, schedule_->Forward(batch, FindLabels(batch)));
  SealUpdated();
  EnterPhase(TrainPhase::kBackward);
  task.scale = label_scale_ * scaler_.scale();
  at::Tensor loss = sums_.narrow(0, kLoss, 1), balance = sums_.narrow(0, kBalance, 1);
  if (const at::Tensor choices = schedule_->ExpertChoices(); choices.defined())
    sums_.narrow(0, kSumCount, choices.numel()).add_(choices.view({-1}));
  return schedule_->Backward(std::move(task), {share, scaler_.scale()}, loss, balance, last);
}

Status FsdpEngine::AbandonStep(Status error) {
  SealUpdated();
  if (snapshots_ != nullptr) snapshots_->Complete();
  step_open_ = false;
  eval_sums_.zero_();
  weights_->Invalidate();
  if (frozen_ != nullptr) frozen_->Abandon();
  return error;
}

Result<StepNumbers> FsdpEngine::FinishGradients(double vote) {
  const at::NoGradGuard no_grad;
  Result<StepNumbers> numbers = SumUp(vote);
  if (!numbers.ok()) return AbandonStep(numbers.status());
  return numbers;
}

Result<StepNumbers> FsdpEngine::SumUp(double vote) {
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
    state_ops().Run(
        op::SumOfSquares{unit.gradient, options_.precision.gradient, unit.count, squares_});
  }
  sums_.narrow(0, kSquares, 1).copy_(squares_);
  sums_.narrow(0, kVotes, 1).fill_(vote);
  // Over host memory, where OK says that the step's collectives have ended well on all ranks: what
  // a lost peer cut short must not be taken for numbers.
  at::Tensor sums = sums_.cpu();
  MUSTER_RETURN_IF_ERROR(AddUp(sums));
  const double* values = sums.const_data_ptr<double>();
  step_open_ = false;
  StepNumbers numbers{.loss = values[kLoss] * label_scale_ + values[kBalance],
                      .grad_norm = std::sqrt(values[kSquares]) / scaler_.scale(),
                      .votes = values[kVotes],
                      .expert_choices = {values + kSumCount, values + sums.numel()}};
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

Status FsdpEngine::AddUp(at::Tensor& sums) {
  if (mesh_.world().size() == 1) return OkStatus();
  return mesh_.world()
      .AllReduce(sums.data_ptr(), sums.numel(), ElementType::kFloat64, ReduceOp::kSum)
      ->Wait();
}

void FsdpEngine::OptimizerStep(Step step, double lr) {
  if (overflow_) return;
  EnterPhase(TrainPhase::kOptimizer);
  const AdamWStep update{.number = step, .lr = lr, .gradient_scale = gradient_factor_};
  const auto update_unit = [this, update](int unit) {
    state_ops().Run(op::AdamW{state_->ForOptimizer(unit), options_.adamw, update});
  };
  weights_->Invalidate();
  state_->BeginUpdate();
  if (snapshots_ != nullptr) snapshots_->NoteUpdate();
  const auto units = static_cast<int>(layout().units().size());
  if (updates_ != nullptr) {
    updates_->Start(units, update_unit);
    return;
  }
  for (int u = 0; u < units; ++u) {
    const TraceSpan span(options_.tracer, TracePhase::kOptimizer, layout().units()[u].name, u);
    update_unit(u);
  }
}

void FsdpEngine::WaitForUpdate() {
  if (updates_ != nullptr) updates_->WaitForAll();
}

void FsdpEngine::Seal(const TrainCursor& cursor) {
  if (snapshots_ == nullptr) return;
  unsealed_ = cursor;
  if (updates_ == nullptr) SealUpdated();
}

void FsdpEngine::SealUpdated() {
  if (!unsealed_) return;
  WaitForUpdate();
  snapshots_->Take(*std::exchange(unsealed_, std::nullopt));
}

Step FsdpEngine::SealedStep() const {
  return options_.segment != nullptr ? options_.segment->NewestStep() : -1;
}

void FsdpEngine::SetBuddy(Buddy* buddy) {
  if (snapshots_ != nullptr) snapshots_->SetBuddy(buddy);
}

NonFiniteFinder& FsdpEngine::non_finite() {
  WaitForUpdate();
  return *finder_;
}

EngineMemory FsdpEngine::memory() const {
  const std::int64_t choices = sums_.numel() - kSumCount;
  const Segment* segment = options_.segment;
  const std::size_t slots = segment != nullptr ? kTrainingSlots * segment->slot_bytes() : 0;
  return {.frozen = frozen_ != nullptr ? frozen_->shard_bytes() : 0,
          .state = state_->bytes(),
          .snapshots = static_cast<std::int64_t>(slots),
          .gathered = weights_->bytes() + (frozen_ != nullptr ? frozen_->gathered_bytes() : 0),
          .gradients = reducer_->bytes(),
          .activations = schedule_->activation_bytes() +
                         static_cast<std::int64_t>(sums_.narrow(0, kSumCount, choices).nbytes()),
          .head = schedule_->head_bytes()};
}

}  // namespace muster
