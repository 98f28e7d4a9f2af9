#include "trainer/train/trainer.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "common/control_pipe/trainer_protocol.h"
#include "common/job_spec/parse.h"
#include "trainer/comm/long_work.h"
#include "trainer/core/lr_schedule.h"
#include "trainer/ops/device_memory.h"
#include "trainer/report/profile_report.h"
#include "trainer/train/evaluation_policy.h"
#include "trainer/train/hf_export.h"

namespace muster {
namespace {

// Limit for the last checkpoint's file, which does not grow meanwhile.
constexpr Duration kDrainTimeout = std::chrono::minutes(10);
static_assert(kDrainTimeout + LongWork::kRound < LongWork::kLimit, "the other ranks wait for it");
constexpr Duration kRoomRetry =
    std::chrono::seconds(2);  // of an export that a full disk keeps back
// A step's line is waited for, so that no step is sealed whose line is lost with the process; but
// less long than a standstill may last.
constexpr Duration kLineTimeout = std::chrono::seconds(1);
constexpr Duration kLogTimeout = std::chrono::seconds(10);  // at the end of the job

// What a rank has to say in the step's last collective, which adds it up over the ranks: how many
// of them were asked to stop, and how many could not write the last checkpoint.
constexpr double kFailedVote = 1 << 24;  // beyond any number of ranks

}  // namespace

Trainer::Trainer(RankEnv env, int step_ranks, TrainerParts parts)
    : env_(std::move(env)),
      step_ranks_(step_ranks),
      parts_(std::move(parts)),
      output_dir_(std::filesystem::absolute(OutputDirectory(spec(), {env_.job_id})).string()),
      checkpoint_dir_(env_.checkpoint_dir.empty() ? output_dir_ + "/checkpoints"
                                                  : env_.checkpoint_dir),
      profiler_(train().profile, parts_.clock),
      nonfinite_(train().nonfinite) {}

std::optional<Failure> Trainer::Run() {
  std::optional<Failure> failure = RunStages();
  if (failure) CountCollectiveError(*failure);
  // Recovery waits for the log of a generation that is over.
  FinishLog(kLineTimeout);
  parts_.lines.Await(Deadline::After(kLineTimeout));
  return failure;
}

std::optional<Failure> Trainer::RunStages() {
  if (auto failure = Start()) return failure;
  if (auto failure = RunSteps()) return failure;
  return Finish();
}

// Outside of steps each rank reads, writes and waits at its own pace, and the others wait for it
// in whichever collective comes next.
std::optional<Failure> Trainer::Start() {
  const OperationLimit::AtLeast patient(parts_.communicator.limit(), LongWork::kLimit);
  if (auto failure = Form()) return failure;
  if (auto failure = LoadModelAndData()) return failure;
  if (auto failure = LoadState()) return failure;
  ReportTransport();
  if (auto failure = OpenMetrics()) return failure;
  if (auto failure = ReportMemory()) return failure;
  PrintStart();
  return AgreeOnStop();
}

std::optional<Failure> Trainer::Finish() {
  const OperationLimit::AtLeast patient(parts_.communicator.limit(), LongWork::kLimit);
  if (auto failure = SaveLast()) return failure;
  if (auto failure = ReportMemory()) return failure;
  if (!stopping_ && parts_.exports) {
    if (auto failure = TakeBest()) return failure;
    if (auto failure = Export()) return failure;
    if (auto failure = ReportMemory()) return failure;
  }
  // A checkpoint that cannot be kept is no reason to throw the trained model away.
  const Status drained = DrainSaves([] {});
  if (drained.code() == StatusCode::kCancelled) return CollectiveFailure(drained);
  if (!drained.ok()) Note("warning", drained.ToString());
  FinishLog(kLogTimeout);
  PrintThroughput();
  if (!stopping_) {
    parts_.supervisor.Finished(env_.generation, cursor_.step, ExportDirectory());
  }
  parts_.progress.EnterPhase(TrainPhase::kDone);
  return std::nullopt;
}

// One that was called off found no error.
void Trainer::CountCollectiveError(const Failure& failure) {
  if (failure.exit_code != kExitPeerLost) return;
  const StatusCode code = failure.status.code();
  if (code == StatusCode::kCancelled) return;
  parts_.progress.CountCollectiveError(code == StatusCode::kUnavailable ? CollectiveError::kPeerLost
                                       : code == StatusCode::kDeadlineExceeded
                                           ? CollectiveError::kTimeout
                                           : CollectiveError::kInternal);
}

void Trainer::Note(const char* severity, const std::string& message) {
  parts_.supervisor.Note(env_.generation, severity, message);
  Print(std::string(severity) + ": " + message + "\n");
}

// By the writer of lines, because the log may lie on a disk that does not answer, and the holder of
// the stream would then be waited for.
void Trainer::Print(std::string text) {
  if (!is_first()) return;
  parts_.lines.Add([text = std::move(text), out = parts_.out] {
    std::fputs(text.c_str(), out);
    std::fflush(out);
    return OkStatus();
  });
}

// Without peers no collective would report it.
std::optional<Failure> Trainer::CheckCalledOff() const {
  const Status called_off = parts_.supervisor.CalledOff(env_.generation);
  if (called_off.ok()) return std::nullopt;
  return CollectiveFailure(called_off);
}

// A stop that came while the state was loaded need not wait for a step. Along goes how far any of
// the processes has been, for who is new does not know which steps are done again.
std::optional<Failure> Trainer::AgreeOnStop() {
  std::array<std::int64_t, 2> most = {stop_requested() ? 1 : 0, parts_.progress.furthest_step()};
  if (parts_.communicator.size() > 1) {
    const Status agreed =
        parts_.communicator
            .AllReduce(most.data(), most.size(), ElementType::kInt64, ReduceOp::kMax)
            ->Wait();
    if (!agreed.ok()) return CollectiveFailure(agreed);
  }
  stopping_ = most[0] != 0;
  parts_.progress.SetFurthestStep(most[1]);
  return std::nullopt;
}

std::optional<Failure> Trainer::RunSteps() {
  memory_.Enter(MemoryStage::kTrain);
  ended_early_ = EndsEarly(train().eval.early_stop, cursor_.evaluations);
  if (EvaluationIsDue()) {
    if (auto failure = Evaluate()) return failure;
  }
  while (!Done() && !stopping_) {
    if (auto failure = CheckCalledOff()) return failure;
    const Step number = cursor_.step + 1;
    if (profiler_.StartsWith(number)) {
      // The times of all ranks count from one moment.
      const Status met = parts_.communicator.Barrier();
      if (!met.ok()) return CollectiveFailure(met);
    }
    profiler_.BeginStep(number);
    if (auto failure = RunStep()) return failure;
    // A checkpoint has the result of its step's evaluation, which is no part of the step.
    const bool evaluates = EvaluationIsDue();
    if (!evaluates) {
      if (auto failure = SaveIfDue()) return failure;
    }
    profiler_.EndStep();
    if (evaluates) {
      if (auto failure = Evaluate()) return failure;
      if (auto failure = SaveIfDue()) return failure;
    }
    const bool last = stopping_ || Done();
    if (profiler_.Covers(number) && (last || !profiler_.Covers(number + 1))) {
      if (auto failure = ReportProfile()) return failure;
    }
  }
  return std::nullopt;
}

std::optional<Failure> Trainer::RunStep() {
  const TimePoint begin = parts_.clock.Now();
  if (auto failure = RunMicroBatches()) return failure;
  const double vote = (stop_requested() ? 1 : 0) + (checkpointer_->failed() ? kFailedVote : 0);
  parts_.faults.BeforeLastCollective(parts_.clock.Now() - begin - parts_.progress.waited());
  const Result<StepNumbers> numbers = engine_->FinishGradients(vote);
  if (!numbers.ok()) return CollectiveFailure(numbers.status());
  stopping_ = std::fmod(numbers->votes, kFailedVote) > 0;
  if (numbers->votes >= kFailedVote) checkpointer_->Discard();
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
  const int count = loader_->geometry().rounds();
  std::int64_t labels = 0;
  for (int m = 0; m < count; ++m) {
    parts_.progress.StartMicroBatch(m);
    parts_.faults.AtData();
    std::optional<Result<MicroBatch>> batch;
    {
      const TraceSpan span(&profiler_, TracePhase::kData, "rows");
      if (m == 0) labels = loader_->WindowLabelCount(cursor_.step);
      batch.emplace(loader_->Get(cursor_.step, m));
    }
    if (!batch->ok()) return InputFailure("data", batch->status());
    const double scale = parts_.faults.LossFactor() / static_cast<double>(labels);
    const Status status = engine_->ForwardBackward(**batch, scale, m == count - 1);
    if (!status.ok()) return CollectiveFailure(status);
  }
  return std::nullopt;
}

// In a phase that may be quiet for long, for it writes files.
std::optional<Failure> Trainer::ReportProfile() {
  parts_.progress.EnterPhase(TrainPhase::kCheckpoint);
  const Result<ProfileTable> table = GatherProfile(profiler_, parts_.communicator);
  if (!table.ok()) return CollectiveFailure(table.status());
  const std::string directory = output_dir_ + "/profile";
  Status written;
  const Status collected =
      WriteProfile(profiler_, *table, directory, parts_.communicator, &written);
  if (!collected.ok()) return CollectiveFailure(collected);
  if (!is_first()) return std::nullopt;
  Print(ProfileText(*table) + "trace: " + directory + "/trace.json\n");
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
  cursor_.samples += loader_->geometry().global_batch();
  cursor_.tokens += labels;
  cursor_.step += 1;
  const LossScaleState loss_scale = engine_->loss_scale();
  cursor_.loss_scale = loss_scale.scale;
  cursor_.loss_scale_steps = loss_scale.finite_steps;
  const double seconds = ToSeconds(parts_.clock.Now() - begin);
  if (throughput_) throughput_->Add(labels, seconds);
  const DeviceMemory device = ReadDeviceMemory(parts_.ops.device());
  const StepMetrics metrics{.step = cursor_.step,
                            .max_steps = max_steps_,
                            .loss = numbers.loss,
                            .grad_norm = numbers.grad_norm,
                            .lr = lr,
                            .tokens = cursor_.tokens,
                            .samples = cursor_.samples,
                            .step_seconds = seconds,
                            .tokens_per_second = static_cast<double>(labels) / seconds,
                            .mfu = throughput_ ? throughput_->Utilization(labels, seconds) : 0,
                            .epoch = loader_->EpochAt(cursor_.step),
                            .sample_chain = cursor_.sample_chain,
                            .generation = checkpointer_->generation(),
                            .world_size = env_.world_size,
                            .skipped = numbers.overflow || !numbers.finite(),
                            .loss_scale = loss_scale.scale,
                            .rss_bytes = ResidentBytes(),
                            .device_bytes = device.reserved,
                            .device_capacity_bytes = device.capacity};
  ReportSaves();
  parts_.progress.SetDeviceMemory(device);
  parts_.progress.FinishStep(metrics, {.tokens = labels,
                                       .samples = loader_->geometry().global_batch(),
                                       .flops = throughput_ ? throughput_->Flops(labels) : 0});
  LogStep(metrics);
  if (parts_.on_step) parts_.on_step(metrics);
  SealStep();
  if (cursor_.step == first_step_ + 1) {
    parts_.supervisor.FirstStep(env_.generation, cursor_.step);
    if (snapshots_) snapshots_->LetGoOfOld();
  }
}

// Before the step is sealed: a step that was never logged is done again then. A disk that does not
// answer is not waited for, and gets the lines when it does.
void Trainer::LogStep(const StepMetrics& metrics) {
  if (!logs_) return;
  WriteLog([metrics](RunLogs& logs) { return logs.Write(metrics); }, LineForPeople(metrics));
}

void Trainer::WriteLog(std::function<Status(RunLogs&)> write, std::string line) {
  const bool taken = parts_.lines.Add(
      [logs = logs_, write = std::move(write), line = std::move(line), out = parts_.out] {
        if (!line.empty()) {
          std::fputs(line.c_str(), out);
          std::fflush(out);
        }
        return write(*logs);
      });
  if (!taken) return StopLogging("the disk has not taken the lines of the last steps");
  parts_.lines.Await(Deadline::After(kLineTimeout));
  const Status logged = parts_.lines.TakeFailure();
  if (!logged.ok()) StopLogging(logged.ToString());
}

// Figures are not worth a training run.
void Trainer::StopLogging(const std::string& reason) {
  Note("warning", reason + "; metrics are no longer written");
  FinishLog(Duration::zero());
}

// The files are closed where it is written, since that may take as long.
void Trainer::FinishLog(Duration limit) {
  if (!logs_) return;
  const bool written = parts_.lines.Await(Deadline::After(limit));
  const std::size_t lost = written ? 0 : parts_.lines.Forget();
  parts_.lines.Add([logs = std::exchange(logs_, nullptr)] { return OkStatus(); });
  const Status failed = parts_.lines.TakeFailure();
  if (!failed.ok()) Note("warning", failed.ToString());
  if (lost == 0) return;
  Note("warning", std::to_string(lost) +
                      " lines of metrics.jsonl are lost: the disk has not taken them in time");
}

void Trainer::SealStep() {
  engine_->Seal(cursor_);
  parts_.progress.SetSnapshotStep(engine_->SealedStep());
}

// Empty: not at this step.
std::string Trainer::LineForPeople(const StepMetrics& metrics) {
  if (metrics.step % train().logging_every != 0 && metrics.step != max_steps_) return {};
  const TimePoint now = parts_.clock.Now();
  const double seconds_per_step =
      ToSeconds(now - line_time_) / static_cast<double>(metrics.step - line_step_);
  line_time_ = now;
  line_step_ = metrics.step;
  return ProgressLine(metrics, seconds_per_step) + "\n";
}

// The last state is SaveLast's.
std::optional<Failure> Trainer::SaveIfDue() {
  if (cursor_.step % train().checkpoint.every != 0 || Done()) return std::nullopt;
  return Save();
}

std::optional<Failure> Trainer::Save() {
  if (saved_step_ == cursor_.step) return std::nullopt;
  parts_.progress.EnterPhase(TrainPhase::kCheckpoint);
  const TraceSpan span(&profiler_, TracePhase::kCheckpoint, "save");
  engine_->WaitForUpdate();
  const TimePoint begin = parts_.clock.Now();
  const Result<SaveOutcome> saved =
      checkpointer_->Save(parts_.communicator, cursor_, engine_->state().CheckpointArrays());
  if (!saved.ok()) return CollectiveFailure(saved.status());
  if (*saved == SaveOutcome::kTaken) {
    parts_.progress.CountStage(ToSeconds(parts_.clock.Now() - begin));
    saved_step_ = cursor_.step;
  } else if (is_first()) {
    ReportSlowDisk();
  }
  return std::nullopt;
}

void Trainer::ReportSlowDisk() {
  const std::string reason =
      "slow disk: the checkpoint before is still being written, so there is none of step " +
      std::to_string(cursor_.step) +
      "; raise train.checkpoint.every: " + std::to_string(train().checkpoint.every);
  Print("warning: " + reason + "\n");
  parts_.supervisor.CheckpointFailed(env_.generation, cursor_.step, reason);
}

// The state that training ends with waits for the one before, so that it is never left out.
std::optional<Failure> Trainer::SaveLast() {
  parts_.progress.EnterPhase(TrainPhase::kCheckpoint);
  if (saved_step_ == cursor_.step) return std::nullopt;
  if (auto failure = DrainSavesTogether()) return failure;
  return Save();
}

// A phase of its own: a disk may need much longer for the shard than a step takes.
Status Trainer::DrainSaves(const std::function<void()>& on_moved) {
  parts_.progress.EnterPhase(TrainPhase::kCheckpoint);
  Status drained = checkpointer_->DrainWhileMoving(kDrainTimeout, [&] {
    parts_.progress.Move();
    on_moved();
  });
  ReportSaves();
  return drained;
}

std::optional<Failure> Trainer::DrainSavesTogether() {
  LongWork writing(parts_.communicator);
  // A failure of the one before has been reported.
  (void)DrainSaves([&writing] { writing.Move(); });
  if (auto failure = CheckCalledOff()) return failure;
  const Status met = writing.Await();
  if (!met.ok()) return CollectiveFailure(met);
  return std::nullopt;
}

void Trainer::ReportSaves() {
  const ShardSaverCounters saves = parts_.saver->counters();
  parts_.progress.SetSaved(saves.write, saves.bytes);
}

// A full disk is waited for: the trained state may be nowhere but in this process and its snapshot.
std::optional<Failure> Trainer::Export() {
  memory_.Enter(MemoryStage::kExport);
  for (bool told = false;; told = true) {
    parts_.progress.EnterPhase(TrainPhase::kExporting);
    const Status status = ExportModel(
        inputs().config, *engine_, parts_.communicator,
        {.source_dir = inputs().model_dir,
         .target_dir = ExportDirectory(),
         .writer = parts_.supervisor.attached() ? ModelWriter{env_.job_id, env_.generation}
                                                : ModelWriter{},
         .replaced = ChangedFiles(inputs(), train().lora.has_value()),
         .lora = train().lora,
         .base_model = origin_ ? origin_->base_model : std::string(),
         .max_shard_bytes = train().output_max_shard_bytes,
         .called_off = [this] { return parts_.supervisor.CalledOff(env_.generation); },
         .on_moved = [this] { parts_.progress.Move(); }});
    if (status.ok()) return std::nullopt;
    if (status.code() != StatusCode::kResourceExhausted) {
      const Failure failure = CollectiveFailure(status);
      return failure.exit_code == kExitPeerLost ? failure : Failure{"io", kExitFailure, status};
    }
    if (!told && is_first()) {
      Note("warning", "the model waits for room on the disk: " + status.ToString());
    }
    if (auto failure = WaitForRoom()) return failure;
  }
}

// The phase changes with every try, for who does not move at all is taken to hang.
std::optional<Failure> Trainer::WaitForRoom() {
  parts_.progress.EnterPhase(TrainPhase::kCheckpoint);
  const Status called_off =
      parts_.supervisor.AwaitCalledOff(env_.generation, Deadline::After(kRoomRetry));
  if (called_off.ok()) return std::nullopt;
  return CollectiveFailure(called_off);
}

}  // namespace muster
