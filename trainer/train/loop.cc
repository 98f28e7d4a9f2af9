#include "trainer/train/loop.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "trainer/comm/long_work.h"
#include "trainer/core/lr_schedule.h"
#include "trainer/model/adapters.h"
#include "trainer/ops/device_memory.h"
#include "trainer/report/profile_report.h"
#include "trainer/train/evaluation.h"

namespace muster {
namespace {

// What a rank has to say in the step's last collective, which adds it up over the ranks: how many
// of them were asked to stop, and how many could not write the last checkpoint.
constexpr double kFailedVote = 1 << 24;  // beyond any number of ranks

// Limit for the last checkpoint's file, which does not grow meanwhile.
constexpr Duration kDrainTimeout = std::chrono::minutes(10);
static_assert(kDrainTimeout + LongWork::kRound < LongWork::kLimit, "the other ranks wait for it");

}  // namespace

TrainLoop::TrainLoop(const RunContext& run, StartedRun& started)
    : run_(run),
      started_(started),
      engine_(*started.engine),
      loader_(*started.loader),
      nonfinite_(run.train().nonfinite),
      saved_step_(started.saved_step),
      untouched_source_(started.untouched_source),
      cursor_(started.cursor),
      stopping_(started.stopping) {
  if (!run.is_first()) return;
  const std::optional<ExpertsConfig>& experts = run.inputs->config.experts;
  if (experts) routers_.emplace(RouterSettings{!run.train().lora, experts->balance_coefficient});
  throughput_.emplace(
      run.inputs->config, ActiveTrainedParameters(run.inputs->config, engine_.layout()),
      run.inputs->dataset->stats(), run.env.world_size, FindPeak(run.spec, run.ops.Describe()));
}

TrainStatus TrainLoop::Run() {
  ended_early_ = EndsEarly(run_.train().eval.early_stop, cursor_.evaluations);
  if (EvaluationIsDue()) {
    if (auto status = EvaluateNow(); !status.ok()) return status;
  }
  while (!Done() && !stopping_) {
    MUSTER_RETURN_IF_ERROR(run_.CalledOff());
    const Step number = cursor_.step + 1;
    // The times of all ranks count from one moment.
    if (started_.profiler.StartsWith(number)) MUSTER_RETURN_IF_ERROR(run_.communicator.Barrier());
    started_.profiler.BeginStep(number);
    if (auto status = RunStep(); !status.ok()) return status;
    // A checkpoint has the result of its step's evaluation, which is no part of the step.
    const bool evaluates = EvaluationIsDue();
    if (!evaluates) MUSTER_RETURN_IF_ERROR(SaveIfDue());
    started_.profiler.EndStep();
    if (evaluates) {
      if (auto status = EvaluateNow(); !status.ok()) return status;
      MUSTER_RETURN_IF_ERROR(SaveIfDue());
    }
    const bool last = stopping_ || Done();
    if (started_.profiler.Covers(number) && (last || !started_.profiler.Covers(number + 1))) {
      MUSTER_RETURN_IF_ERROR(ReportProfile());
    }
  }
  return {};
}

TrainStatus TrainLoop::RunStep() {
  const TrainSpec& train = run_.train();
  const TimePoint begin = run_.clock.Now();
  if (auto status = RunMicroBatches(); !status.ok()) return status;
  const double vote =
      (run_.stop_requested() ? 1 : 0) + (started_.checkpointer->failed() ? kFailedVote : 0);
  run_.faults.BeforeLastCollective(run_.clock.Now() - begin - run_.progress.waited());
  MUSTER_ASSIGN_OR_RETURN(const StepNumbers numbers, engine_.FinishGradients(vote));
  stopping_ = std::fmod(numbers.votes, kFailedVote) > 0;
  if (numbers.votes >= kFailedVote) started_.checkpointer->Discard();
  const double lr =
      LearningRate(train.schedule, train.optimizer.lr, cursor_.step, started_.max_steps);
  if (!numbers.finite()) {
    if (auto status = JudgeNonFinite(numbers); !status.ok()) return status;
  } else {
    nonfinite_.CountFinite();
    engine_.OptimizerStep(cursor_.optimizer_steps + 1, lr);
    if (!numbers.overflow) cursor_.optimizer_steps += 1;
    if (!numbers.overflow && lr > 0) untouched_source_.clear();
  }
  FinishStep(numbers, lr, begin);
  return {};
}

TrainStatus TrainLoop::RunMicroBatches() {
  run_.progress.EnterPhase(TrainPhase::kData);
  const int count = loader_.geometry().rounds();
  const double share = 1.0 / loader_.geometry().micro_batches;
  std::int64_t labels = 0;
  for (int m = 0; m < count; ++m) {
    run_.progress.StartMicroBatch(m);
    run_.faults.AtData();
    const auto read = [&] {
      const TraceSpan span(&started_.profiler, TracePhase::kData, "rows");
      if (m == 0) labels = loader_.WindowLabelCount(cursor_.step);
      return loader_.Get(cursor_.step, m);
    };
    MUSTER_ASSIGN_OR_RETURN(const MicroBatch batch, FromInput(FailureKind::kData, read()));
    const double scale = run_.faults.LossFactor() / static_cast<double>(labels);
    MUSTER_RETURN_IF_ERROR(engine_.ForwardBackward(batch, scale, m == count - 1, share));
  }
  return {};
}

// The step of these numbers leaves the weights as they are, or ends the job.
TrainStatus TrainLoop::JudgeNonFinite(const StepNumbers& numbers) {
  run_.progress.CountNonFinite();
  MUSTER_ASSIGN_OR_RETURN(const NonFiniteOrigin origin,
                          FindNonFinite(
                              engine_, run_.communicator, numbers.loss,
                              [this](int number) { return DescribeMicroBatch(number); },
                              [this] { return RunMicroBatches(); }));
  const NonFiniteGuard::Verdict verdict =
      nonfinite_.Judge({.number = cursor_.step + 1,
                        .loss = numbers.loss,
                        .grad_norm = numbers.grad_norm,
                        .where = origin.rank < 0 ? origin.found : DescribeOrigin(origin),
                        .untouched_source = untouched_source_});
  if (verdict.ends_job) {
    return {FailureKind::kNonFinite, FailedPrecondition(verdict.message),
            /*symptom=*/origin.rank >= 0 && origin.rank != run_.env.rank};
  }
  if (run_.is_first()) run_.Note("warning", verdict.message);
  return {};
}

std::string TrainLoop::DescribeMicroBatch(int number) const {
  const std::string text = "micro-batch " + std::to_string(number);
  const Result<MicroBatch> batch = loader_.Get(cursor_.step, number);
  if (!batch.ok() || batch->sample_ids.empty()) return text;
  return text + " (" + run_.inputs->dataset->Describe(batch->sample_ids) + ")";
}

void TrainLoop::FinishStep(const StepNumbers& numbers, double lr, TimePoint begin) {
  const std::int64_t labels = loader_.WindowLabelCount(cursor_.step);
  const std::int64_t samples = loader_.geometry().global_batch();
  cursor_.sample_chain = loader_.ChainSamples(cursor_.sample_chain, cursor_.step);
  cursor_.samples += samples;
  cursor_.tokens += labels;
  cursor_.step += 1;
  const LossScaleState loss_scale = engine_.loss_scale();
  cursor_.loss_scale = loss_scale.scale;
  cursor_.loss_scale_steps = loss_scale.finite_steps;
  const double seconds = ToSeconds(run_.clock.Now() - begin);
  if (throughput_) throughput_->Add(labels, seconds);
  const DeviceMemory device = ReadDeviceMemory(run_.ops.device());
  const StepMetrics metrics{.step = cursor_.step,
                            .max_steps = started_.max_steps,
                            .loss = numbers.loss,
                            .grad_norm = numbers.grad_norm,
                            .lr = lr,
                            .tokens = cursor_.tokens,
                            .samples = cursor_.samples,
                            .step_seconds = seconds,
                            .tokens_per_second = static_cast<double>(labels) / seconds,
                            .mfu = throughput_ ? throughput_->Utilization(labels, seconds) : 0,
                            .epoch = loader_.EpochAt(cursor_.step),
                            .sample_chain = cursor_.sample_chain,
                            .generation = started_.checkpointer->generation(),
                            .world_size = run_.env.world_size,
                            .skipped = numbers.overflow || !numbers.finite(),
                            .loss_scale = loss_scale.scale,
                            .rss_bytes = ResidentBytes(),
                            .device_bytes = device.reserved,
                            .device_capacity_bytes = device.capacity,
                            .experts = LoadOf(numbers)};
  if (metrics.experts && routers_) {
    if (const auto warning = routers_->Look(*metrics.experts)) run_.Note("warning", *warning);
  }
  ReportSaves();
  run_.progress.SetDeviceMemory(device);
  run_.progress.FinishStep(metrics, {.tokens = labels,
                                     .samples = samples,
                                     .flops = throughput_ ? throughput_->Flops(labels) : 0});
  // Before the step is sealed: a step that was never logged is done again then.
  started_.log.Write(metrics);
  if (run_.on_step) run_.on_step(metrics);
  engine_.Seal(cursor_);
  run_.progress.SetSnapshotStep(engine_.SealedStep());
  if (cursor_.step != started_.cursor.step + 1) return;
  run_.supervisor.FirstStep(run_.env.generation, cursor_.step);
  if (started_.snapshots) started_.snapshots->LetGoOfOld();
}

std::shared_ptr<const ExpertLoad> TrainLoop::LoadOf(const StepNumbers& numbers) const {
  if (numbers.expert_choices.empty()) return nullptr;
  return std::make_shared<const ExpertLoad>(
      MeasureLoad(run_.inputs->config, numbers.expert_choices));
}

// A step that a resume begins with may still be without the evaluation that a fault has cut off.
bool TrainLoop::EvaluationIsDue() const {
  const EvalSpec& eval = run_.train().eval;
  if (!started_.eval_loader || stopping_ || cursor_.evaluations.step == cursor_.step) return false;
  if (cursor_.step == 0) return eval.at_start;
  return cursor_.step % run_.train().eval_every() == 0 || cursor_.step >= started_.max_steps;
}

TrainStatus TrainLoop::EvaluateNow() {
  MUSTER_ASSIGN_OR_RETURN(const Evaluation found, Evaluate(run_, engine_, *started_.eval_loader,
                                                           cursor_.step, cursor_.evaluations));
  cursor_.evaluations = found.history;
  started_.log.Write(EvalMetrics{.step = cursor_.step,
                                 .max_steps = started_.max_steps,
                                 .loss = found.numbers.loss,
                                 .perplexity = found.numbers.perplexity(),
                                 .accuracy = found.numbers.accuracy(),
                                 .tokens = found.numbers.labels,
                                 .seconds = found.seconds,
                                 .history = found.history,
                                 .generation = started_.checkpointer->generation(),
                                 .world_size = run_.env.world_size});
  if (auto status = ShowSamples(); !status.ok()) return status;
  ended_early_ = found.ends_early;
  if (ended_early_ && run_.is_first() && cursor_.step < started_.max_steps) {
    run_.Note("info", EarlyEndText(found.history, started_.max_steps));
  }
  return found.is_best ? SaveBest() : OkStatus();
}

// In groups that need no more memory than a micro-batch.
TrainStatus TrainLoop::ShowSamples() {
  if (!run_.inputs->samples) return {};
  const std::span<const SamplePrompt> prompts = run_.inputs->samples->prompts();
  const auto at_once = static_cast<std::size_t>(run_.train().batch.per_rank);
  for (std::size_t first = 0; first < prompts.size(); first += at_once) {
    const std::size_t count = std::min(at_once, prompts.size() - first);
    MUSTER_ASSIGN_OR_RETURN(std::vector<GeneratedSample> samples,
                            GenerateSamples(run_, engine_, prompts.subspan(first, count)));
    for (GeneratedSample& sample : samples) {
      sample.step = cursor_.step;
      sample.generation = started_.checkpointer->generation();
      started_.log.Write(sample);
    }
  }
  return {};
}

// The last state is SaveLast's.
Status TrainLoop::SaveIfDue() {
  if (cursor_.step % run_.train().checkpoint.every != 0 || Done()) return OkStatus();
  return Save();
}

// One of this step that is there already does not have its evaluation.
Status TrainLoop::SaveBest() {
  if (!run_.train().keeps_best() || cursor_.step == 0) return OkStatus();
  saved_step_ = -1;
  return Done() ? OkStatus() : SaveLast();
}

Status TrainLoop::SaveLast() {
  run_.progress.EnterPhase(TrainPhase::kCheckpoint);
  if (saved_step_ == cursor_.step) return OkStatus();
  MUSTER_RETURN_IF_ERROR(DrainSavesTogether());
  return Save();
}

Status TrainLoop::Save() {
  if (saved_step_ == cursor_.step) return OkStatus();
  run_.progress.EnterPhase(TrainPhase::kCheckpoint);
  const TraceSpan span(&started_.profiler, TracePhase::kCheckpoint, "save");
  engine_.WaitForUpdate();
  const TimePoint begin = run_.clock.Now();
  const ShardState& state = engine_.state();
  std::function<SealedShard()> seal;
  if (state.in_segment()) seal = [&state] { return state.Seal(); };
  MUSTER_ASSIGN_OR_RETURN(
      const SaveOutcome saved,
      started_.checkpointer->Save(run_.communicator, cursor_, state.CheckpointArrays(), seal));
  if (saved == SaveOutcome::kTaken) {
    run_.progress.CountStage(ToSeconds(run_.clock.Now() - begin));
    saved_step_ = cursor_.step;
  } else if (run_.is_first()) {
    ReportSlowDisk();
  }
  return OkStatus();
}

void TrainLoop::ReportSlowDisk() const {
  const std::string reason =
      "the checkpoint before is still being written, so there is none of step " +
      std::to_string(cursor_.step) +
      "; raise train.checkpoint.every: " + std::to_string(run_.train().checkpoint.every);
  run_.Print("warning: slow disk: " + reason + "\n");
  run_.supervisor.CheckpointFailed(run_.env.generation, cursor_.step, CheckpointTrouble::kSlowDisk,
                                   reason);
}

// A phase of its own: a disk may need much longer for the shard than a step takes.
Status TrainLoop::DrainSaves(const std::function<void()>& on_moved) {
  run_.progress.EnterPhase(TrainPhase::kCheckpoint);
  Status drained = started_.checkpointer->DrainWhileMoving(kDrainTimeout, [&] {
    run_.progress.Move();
    on_moved();
  });
  ReportSaves();
  return drained;
}

Status TrainLoop::DrainSavesTogether() {
  LongWork writing(run_.communicator);
  // A failure of the one before has been reported.
  (void)DrainSaves([&writing] { writing.Move(); });
  MUSTER_RETURN_IF_ERROR(run_.CalledOff());
  return writing.Await();
}

void TrainLoop::ReportSaves() const {
  const ShardSaverCounters saves = run_.saver->counters();
  run_.progress.SetSaved(saves.write, saves.bytes);
}

// In a phase that may be quiet for long, for it writes files.
Status TrainLoop::ReportProfile() {
  Communicator& communicator = run_.communicator;
  run_.progress.EnterPhase(TrainPhase::kCheckpoint);
  MUSTER_ASSIGN_OR_RETURN(const ProfileTable table, GatherProfile(started_.profiler, communicator));
  const std::string directory = run_.output_dir() + "/profile";
  Status written;
  MUSTER_RETURN_IF_ERROR(WriteProfile(started_.profiler, table, directory, communicator, &written));
  if (!run_.is_first()) return OkStatus();
  run_.Print(ProfileText(table) + "trace: " + directory + "/trace.json\n");
  if (!written.ok()) run_.Note("warning", written.ToString());
  return OkStatus();
}

}  // namespace muster
