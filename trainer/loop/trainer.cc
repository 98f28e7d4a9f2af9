#include "trainer/loop/trainer.h"

#include <filesystem>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "common/job_spec/parse.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/core/lr_schedule.h"
#include "trainer/loop/engine_options.h"
#include "trainer/loop/hf_export.h"
#include "trainer/loop/input_agreement.h"
#include "trainer/loop/profile_report.h"
#include "trainer/loop/start_notes.h"
#include "trainer/sharding/load_weights.h"

namespace muster {
namespace {

// For all ranks to come up; the supervisor gives up on a launch much earlier.
constexpr Duration kFormTimeout = std::chrono::minutes(5);
constexpr Duration kDrainTimeout = std::chrono::minutes(10);

}  // namespace

Trainer::Trainer(JobSpec spec, RankEnv env, TrainerParts parts)
    : spec_(std::move(spec)),
      env_(std::move(env)),
      parts_(parts),
      output_dir_(std::filesystem::absolute(OutputDirectory(spec_, {env_.job_id})).string()),
      profiler_(spec_.train->profile, parts_.clock),
      nonfinite_(spec_.train->nonfinite) {}

std::optional<Failure> Trainer::Run() {
  if (auto failure = Form()) return failure;
  if (auto failure = LoadModelAndData()) return failure;
  if (auto failure = LoadState()) return failure;
  if (auto failure = OpenMetrics()) return failure;
  if (auto failure = ReportMemory()) return failure;
  PrintStart();
  if (auto failure = RunSteps()) return failure;
  if (auto failure = SaveLast()) return failure;
  if (auto failure = ReportMemory()) return failure;
  if (!stopping_) {
    if (auto failure = Export()) return failure;
    if (auto failure = ReportMemory()) return failure;
  }
  // A checkpoint that cannot be kept is no reason to throw the trained model away.
  const Status drained = checkpointer_->Drain(Deadline::After(kDrainTimeout));
  if (!drained.ok()) Note("warning", drained.ToString());
  if (!stopping_) parts_.supervisor.Finished(cursor_.step, output_dir_ + "/model");
  parts_.progress.EnterPhase(TrainPhase::kDone);
  return std::nullopt;
}

std::optional<Failure> Trainer::Form() {
  parts_.progress.EnterPhase(TrainPhase::kForming);
  Status status = parts_.communicator.Form(TakeRendezvous(&env_), Deadline::After(kFormTimeout));
  if (status.ok()) status = parts_.communicator.Barrier();
  if (!status.ok()) return CollectiveFailure(status);
  parts_.progress.Watch(&parts_.communicator);
  parts_.supervisor.Formed();
  return std::nullopt;
}

std::optional<Failure> Trainer::LoadModelAndData() {
  parts_.progress.EnterPhase(TrainPhase::kLoading);
  memory_.Enter(MemoryStage::kLoad);
  std::variant<TrainInputs, Failure> loaded = LoadTrainInputs(spec_);
  if (auto* failure = std::get_if<Failure>(&loaded)) return std::move(*failure);
  inputs_.emplace(std::get<TrainInputs>(std::move(loaded)));
  loader_.emplace(*inputs_->dataset,
                  BatchGeometry{.per_rank = train().batch.per_rank,
                                .accumulation = train().batch.accumulation,
                                .world_size = env_.world_size,
                                .rank = env_.rank},
                  BatchOrder{.seed = train().seed, .shuffle = train().data.shuffle},
                  inputs_->pad_id);
  max_steps_ = train().schedule.max_steps > 0 ? train().schedule.max_steps
                                              : loader_->StepsForEpochs(train().schedule.epochs);
  NoteInputs();
  return AgreeOnInputs(spec_, *inputs_, parts_.communicator);
}

void Trainer::Note(const char* severity, const std::string& message) {
  parts_.supervisor.Note(severity, message);
  if (is_first()) std::fprintf(parts_.out, "%s: %s\n", severity, message.c_str());
}

void Trainer::NoteInputs() {
  if (!is_first()) return;
  const DatasetStats& stats = inputs_->dataset->stats();
  const std::string length = std::to_string(train().data.max_seq_len);
  if (stats.truncated > 0 || stats.dropped > 0) {
    Note(stats.dropped > 0 ? "warning" : "info",
         train().data.train + ": " + std::to_string(stats.truncated) + " of " +
             std::to_string(stats.rows + stats.dropped) + " rows were cut to " + length +
             " tokens, " + std::to_string(stats.dropped) +
             " had nothing left to train on and were dropped");
  }
  if (stats.trailing_tokens > 0) {
    Note("info", train().data.train + ": " + std::to_string(stats.trailing_tokens) +
                     " tokens after the last whole row of " + length + " were dropped");
  }
}

std::optional<Failure> Trainer::MakeEngine() {
  FsdpOptions options = MakeEngineOptions(train(), env_);
  options.on_phase = [this](TrainPhase phase) { parts_.progress.EnterPhase(phase); };
  options.tracer = &profiler_;
  Result<std::unique_ptr<FsdpEngine>> engine =
      FsdpEngine::Create(inputs_->config, parts_.communicator, parts_.ops, std::move(options));
  if (!engine.ok()) {
    return engine.status().code() == StatusCode::kInvalidArgument
               ? InputFailure("config", engine.status())
               : CollectiveFailure(engine.status());
  }
  engine_ = *std::move(engine);
  return std::nullopt;
}

std::optional<Failure> Trainer::LoadState() {
  if (auto failure = MakeEngine()) return failure;
  checkpoint_arrays_ = engine_->state().CheckpointArrays();
  const std::string directory =
      env_.checkpoint_dir.empty() ? output_dir_ + "/checkpoints" : env_.checkpoint_dir;
  checkpointer_ = std::make_unique<Checkpointer>(
      CheckpointerOptions{.directory = directory,
                          .job_id = env_.job_id,
                          .generation = env_.generation,
                          .rank = env_.rank,
                          .world_size = env_.world_size,
                          .resume_file = env_.resume_file,
                          .parameters = engine_->layout().parameter_count(),
                          .writes = engine_->is_first_replica()},
      parts_.supervisor.attached()
          ? MakeSupervisorCommitter(&parts_.supervisor)
          : MakeLocalCommitter({.directory = directory, .keep = train().checkpoint.keep}));
  cursor_.seed = train().seed;
  const Result<LoadOutcome> outcome =
      checkpointer_->LoadNewest(parts_.communicator, checkpoint_arrays_, &cursor_);
  if (!outcome.ok()) {
    const Failure failure = CollectiveFailure(outcome.status());
    return failure.exit_code == kExitPeerLost ? failure : InputFailure("config", outcome.status());
  }
  if (outcome->step == 0) {
    const Status loaded = LoadFirstState();
    if (!loaded.ok()) {
      const Failure failure = CollectiveFailure(loaded);
      return failure.exit_code == kExitPeerLost ? failure : InputFailure("model", loaded);
    }
  } else {
    untouched_source_ = outcome->directory;
    engine_->RestoreLossScale({cursor_.loss_scale, cursor_.loss_scale_steps});
  }
  engine_->WeightsLoaded();
  NoteResume(*outcome);
  first_step_ = cursor_.step;
  saved_step_ = cursor_.step;
  // A job that saves at its end alone need not keep memory for it.
  if (cursor_.step + train().checkpoint.every < max_steps_) {
    checkpointer_->Prepare(checkpoint_arrays_);
  }
  parts_.supervisor.Resumed(cursor_.step, outcome->rejected);
  parts_.progress.StartAt(checkpointer_->generation(), cursor_.step, max_steps_);
  return std::nullopt;
}

// The state of a job that has no checkpoint of its own yet.
Status Trainer::LoadFirstState() {
  const InitFromSpec& init = train().init_from;
  if (init.path.empty()) return LoadModelWeights();
  untouched_source_ = ResolvePath(spec_, init.path);
  MUSTER_ASSIGN_OR_RETURN(const TrainCursor from, InitFrom(untouched_source_, checkpoint_arrays_,
                                                           {.optimizer = init.optimizer}));
  if (init.optimizer) cursor_.optimizer_steps = from.optimizer_steps;
  if (is_first()) {
    Note("info", "starts from the weights" +
                     std::string(init.optimizer ? " and the optimizer's state" : "") + " of " +
                     untouched_source_ + " (its step " + std::to_string(from.step) + ")");
  }
  return OkStatus();
}

// Where some nodes have no files, a rank that has them reads for all.
Status Trainer::LoadModelWeights() {
  untouched_source_ = inputs_->model_dir;
  const Result<SafetensorsModel>& weights = inputs_->weights;
  const Status loaded = LoadIntervalsTogether(weights.ok() ? &*weights : nullptr, engine_->layout(),
                                              engine_->state().WeightArrays(), parts_.communicator);
  // This rank's own reason says more.
  return loaded.code() == StatusCode::kNotFound && !weights.ok() ? weights.status() : loaded;
}

void Trainer::NoteResume(const LoadOutcome& outcome) {
  if (is_first()) {
    for (const RejectedCheckpoint& each : outcome.rejected) {
      std::fprintf(parts_.out, "checkpoint %s is not used: %s\n", each.directory.c_str(),
                   each.reason.c_str());
    }
  }
  const std::int64_t batch =
      std::int64_t{train().batch.per_rank} * train().batch.accumulation * env_.world_size;
  if (is_first() && (cursor_.seed != train().seed || cursor_.samples != cursor_.step * batch)) {
    Note("warning", outcome.directory +
                        " was made with another train.seed or batch size: some rows will be "
                        "trained on again, others left out");
  }
  cursor_.seed = train().seed;
}

std::optional<Failure> Trainer::OpenMetrics() {
  if (!is_first()) return std::nullopt;
  Status status = MakeDirectories(output_dir_);
  if (status.ok()) {
    Result<MetricsLog> log = MetricsLog::Open(output_dir_ + "/metrics.jsonl");
    status = log.status();
    if (status.ok()) metrics_.emplace(*std::move(log));
  }
  if (!status.ok()) return InputFailure("config", status);
  return std::nullopt;
}

void Trainer::PrintStart() {
  line_time_ = parts_.clock.Now();
  line_step_ = cursor_.step;
  if (!is_first()) return;
  for (const std::string& note : StartNotes(spec_, env_)) Note("info", note);
  std::fprintf(
      parts_.out, "%s: %.2f M parameters, %d ranks, %lld rows, batch of %lld rows, %lld steps\n",
      inputs_->model_dir.c_str(), static_cast<double>(engine_->layout().parameter_count()) / 1e6,
      env_.world_size, static_cast<long long>(inputs_->dataset->size()),
      static_cast<long long>(train().batch.per_rank) * train().batch.accumulation * env_.world_size,
      static_cast<long long>(max_steps_));
  if (cursor_.step > 0) {
    std::fprintf(parts_.out, "going on after step %lld\n", static_cast<long long>(cursor_.step));
  }
  std::fflush(parts_.out);
}

std::optional<Failure> Trainer::RunSteps() {
  memory_.Enter(MemoryStage::kTrain);
  while (cursor_.step < max_steps_ && !stopping_) {
    const Step number = cursor_.step + 1;
    if (profiler_.StartsWith(number)) {
      // The times of all ranks count from one moment.
      const Status met = parts_.communicator.Barrier();
      if (!met.ok()) return CollectiveFailure(met);
    }
    profiler_.BeginStep(number);
    if (auto failure = RunStep()) return failure;
    // The last state is SaveLast's.
    if (number % train().checkpoint.every == 0 && number < max_steps_) {
      if (auto failure = Save()) return failure;
    }
    profiler_.EndStep();
    const bool last = stopping_ || number == max_steps_;
    if (profiler_.Covers(number) && (last || !profiler_.Covers(number + 1))) {
      if (auto failure = ReportProfile()) return failure;
    }
  }
  return std::nullopt;
}

std::optional<Failure> Trainer::RunStep() {
  const TimePoint begin = parts_.clock.Now();
  if (auto failure = RunMicroBatches()) return failure;
  const Result<StepNumbers> numbers =
      engine_->FinishGradients(parts_.supervisor.stop_requested() ? 1 : 0);
  if (!numbers.ok()) return CollectiveFailure(numbers.status());
  stopping_ = numbers->votes > 0;
  const double lr = LearningRate(train().schedule, train().optimizer.lr, cursor_.step, max_steps_);
  if (!numbers->finite()) {
    if (auto failure = JudgeNonFinite(*numbers)) return failure;
  } else {
    nonfinite_.CountFinite();
    engine_->OptimizerStep(cursor_.optimizer_steps + 1, lr);
    if (!numbers->overflow) cursor_.optimizer_steps += 1;
    if (!numbers->overflow && lr > 0) untouched_source_.clear();
  }
  FinishStep(*numbers, lr, begin);
  return std::nullopt;
}

std::optional<Failure> Trainer::RunMicroBatches() {
  parts_.progress.EnterPhase(TrainPhase::kData);
  const int count = train().batch.accumulation;
  std::int64_t labels = 0;
  for (int m = 0; m < count; ++m) {
    parts_.progress.StartMicroBatch(m);
    std::optional<Result<MicroBatch>> batch;
    {
      const TraceSpan span(&profiler_, TracePhase::kData, "rows");
      if (m == 0) labels = loader_->WindowLabelCount(cursor_.step);
      batch.emplace(loader_->Get(cursor_.step, m));
    }
    if (!batch->ok()) return InputFailure("data", batch->status());
    const Status status =
        engine_->ForwardBackward(**batch, 1.0 / static_cast<double>(labels), m == count - 1);
    if (!status.ok()) return CollectiveFailure(status);
  }
  return std::nullopt;
}

// The step of these numbers leaves the weights as they are, or ends the job.
std::optional<Failure> Trainer::JudgeNonFinite(const StepNumbers& numbers) {
  parts_.progress.CountNonFinite();
  Result<std::string> where = engine_->FindNonFinite();
  if (!where.ok()) return CollectiveFailure(where.status());
  const NonFiniteGuard::Verdict verdict = nonfinite_.Judge({.number = cursor_.step + 1,
                                                            .loss = numbers.loss,
                                                            .grad_norm = numbers.grad_norm,
                                                            .where = *std::move(where),
                                                            .untouched_source = untouched_source_});
  if (verdict.ends_job) {
    return Failure{"nonfinite", kExitNonFinite, FailedPrecondition(verdict.message)};
  }
  if (is_first()) Note("warning", verdict.message);
  return std::nullopt;
}

std::optional<Failure> Trainer::ReportProfile() {
  const Result<ProfileTable> table = GatherProfile(profiler_, parts_.communicator);
  if (!table.ok()) return CollectiveFailure(table.status());
  const std::string directory = output_dir_ + "/profile";
  Status written;
  const Status collected =
      WriteProfile(profiler_, *table, directory, parts_.communicator, &written);
  if (!collected.ok()) return CollectiveFailure(collected);
  if (!is_first()) return std::nullopt;
  std::fprintf(parts_.out, "%strace: %s/trace.json\n", ProfileText(*table).c_str(),
               directory.c_str());
  std::fflush(parts_.out);
  if (!written.ok()) Note("warning", written.ToString());
  return std::nullopt;
}

std::optional<Failure> Trainer::ReportMemory() {
  Status written;
  const Status gathered =
      memory_.Write(engine_->memory(), output_dir_ + "/memory.json", parts_.communicator, &written);
  if (!gathered.ok()) return CollectiveFailure(gathered);
  if (!written.ok()) Note("warning", written.ToString());
  return std::nullopt;
}

void Trainer::FinishStep(const StepNumbers& numbers, double lr, TimePoint begin) {
  const std::int64_t labels = loader_->WindowLabelCount(cursor_.step);
  cursor_.sample_chain = loader_->ChainSamples(cursor_.sample_chain, cursor_.step);
  cursor_.samples +=
      std::int64_t{train().batch.per_rank} * train().batch.accumulation * env_.world_size;
  cursor_.tokens += labels;
  cursor_.step += 1;
  const LossScaleState loss_scale = engine_->loss_scale();
  cursor_.loss_scale = loss_scale.scale;
  cursor_.loss_scale_steps = loss_scale.finite_steps;
  const double seconds = ToSeconds(parts_.clock.Now() - begin);
  const StepMetrics metrics{.step = cursor_.step,
                            .max_steps = max_steps_,
                            .loss = numbers.loss,
                            .grad_norm = numbers.grad_norm,
                            .lr = lr,
                            .tokens = cursor_.tokens,
                            .samples = cursor_.samples,
                            .step_seconds = seconds,
                            .tokens_per_second = static_cast<double>(labels) / seconds,
                            .epoch = loader_->EpochAt(cursor_.step),
                            .sample_chain = cursor_.sample_chain,
                            .generation = checkpointer_->generation(),
                            .world_size = env_.world_size,
                            .skipped = numbers.overflow || !numbers.finite(),
                            .loss_scale = loss_scale.scale,
                            .rss_bytes = ResidentBytes()};
  parts_.progress.FinishStep(metrics, labels);
  if (cursor_.step == first_step_ + 1) parts_.supervisor.FirstStep(cursor_.step);
  if (!metrics_) return;
  ReportStep(metrics);
  const Status logged = metrics_->Append(metrics);
  if (!logged.ok()) {
    // Figures are not worth a training run.
    Note("warning", logged.ToString() + "; metrics are no longer written");
    metrics_.reset();
  }
}

void Trainer::ReportStep(const StepMetrics& metrics) {
  if (metrics.step % train().logging_every != 0 && metrics.step != max_steps_) return;
  const TimePoint now = parts_.clock.Now();
  const double seconds_per_step =
      ToSeconds(now - line_time_) / static_cast<double>(metrics.step - line_step_);
  line_time_ = now;
  line_step_ = metrics.step;
  std::fprintf(parts_.out, "%s\n", ProgressLine(metrics, seconds_per_step).c_str());
  std::fflush(parts_.out);
}

std::optional<Failure> Trainer::Save() {
  if (saved_step_ == cursor_.step) return std::nullopt;
  parts_.progress.EnterPhase(TrainPhase::kCheckpoint);
  const TraceSpan span(&profiler_, TracePhase::kCheckpoint, "save");
  engine_->WaitForUpdate();
  const Result<SaveOutcome> saved =
      checkpointer_->Save(parts_.communicator, cursor_, checkpoint_arrays_);
  if (!saved.ok()) return CollectiveFailure(saved.status());
  if (*saved == SaveOutcome::kTaken) {
    saved_step_ = cursor_.step;
  } else if (is_first()) {
    Note("warning", "no checkpoint of step " + std::to_string(cursor_.step) +
                        ": the one before is still being written. The disk is too slow for "
                        "train.checkpoint.every: " +
                        std::to_string(train().checkpoint.every));
  }
  return std::nullopt;
}

// The state that training ends with waits for the one before, so that it is never left out.
std::optional<Failure> Trainer::SaveLast() {
  if (saved_step_ == cursor_.step) return std::nullopt;
  (void)checkpointer_->Drain(Deadline::After(kDrainTimeout));  // its failure has been reported
  return Save();
}

std::optional<Failure> Trainer::Export() {
  parts_.progress.EnterPhase(TrainPhase::kExporting);
  memory_.Enter(MemoryStage::kExport);
  const Status status =
      ExportModel(inputs_->config, *engine_, parts_.communicator,
                  {.source_dir = inputs_->model_dir, .target_dir = output_dir_ + "/model"});
  if (status.ok()) return std::nullopt;
  const Failure failure = CollectiveFailure(status);
  return failure.exit_code == kExitPeerLost ? failure : Failure{"io", kExitFailure, status};
}

}  // namespace muster
