// Of Trainer: everything before the first step.
#include "trainer/train/trainer.h"

#include <malloc.h>

#include <cstdio>

#include "common/base/files.h"
#include "trainer/comm/long_work.h"
#include "trainer/fsdp/adapter_weights.h"
#include "trainer/fsdp/load_weights.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/inputs/input_agreement.h"
#include "trainer/inputs/origin_agreement.h"
#include "trainer/state/checkpoint/checkpoint_search.h"
#include "trainer/state/checkpoint/init_from.h"
#include "trainer/supervise/supervisor_committer.h"
#include "trainer/train/engine_options.h"
#include "trainer/train/start_notes.h"

namespace muster {
namespace {

// For all ranks to come up; the supervisor gives up on a launch much earlier.
constexpr Duration kFormTimeout = std::chrono::minutes(5);

// A disk that is not mounted, or damage: no reason for a training of weeks to begin anew.
Status NoneUsable(const LoadOutcome& outcome) {
  const std::size_t count = outcome.rejected.size() + outcome.missing.size();
  if (count == 0) return OkStatus();
  const RejectedCheckpoint& first =
      outcome.missing.empty() ? outcome.rejected.front() : outcome.missing.front();
  return Internal("none of the job's checkpoints can be used (" + std::to_string(count) +
                  " were tried): " + first.directory + ": " + first.reason +
                  "; if a disk belongs there, mount it; to start from the beginning, use another "
                  "output directory");
}

// What the packs hold, and the part of their room that no token takes.
std::string PackingNote(const DatasetStats& stats, int length) {
  const double room = static_cast<double>(stats.rows) * length;
  char percent[20];
  std::snprintf(percent, sizeof percent, "%.1f",
                100 - 100 * static_cast<double>(stats.tokens) / room);
  std::string text = ": " + std::to_string(stats.documents) + " documents were packed into " +
                     std::to_string(stats.rows) + " rows of " + std::to_string(length) +
                     " tokens, of which " + percent + " % are padding";
  if (stats.split > 0)
    text +=
        "; " + std::to_string(stats.split) + " rows of plain text were longer and became several";
  return text;
}

}  // namespace

std::optional<Failure> Trainer::Form() {
  parts_.progress.EnterPhase(TrainPhase::kForming);
  parts_.progress.Watch(&parts_.communicator);
  Status status = parts_.communicator.Form(TakeRendezvous(&env_), Deadline::After(kFormTimeout));
  if (status.ok()) status = parts_.communicator.Barrier();
  if (!status.ok()) return CollectiveFailure(status);
  parts_.supervisor.Formed(env_.generation);
  return std::nullopt;
}

// On one node the rows may be there, while another one tokenizes for hours.
std::optional<Failure> Trainer::LoadInputs() {
  LongWork reading(parts_.communicator);
  if (auto failure = parts_.inputs.Load([&reading] { reading.Move(); })) return failure;
  const Status met = reading.Await();
  if (!met.ok()) return CollectiveFailure(met);
  return std::nullopt;
}

std::optional<Failure> Trainer::LoadModelAndData() {
  parts_.progress.EnterPhase(TrainPhase::kReadingRows);
  memory_.Enter(MemoryStage::kLoad);
  if (auto failure = LoadInputs()) return failure;
  loader_.emplace(*inputs().dataset,
                  BatchGeometry{.per_rank = train().batch.per_rank,
                                .micro_batches = train().batch.accumulation * step_ranks_,
                                .world_size = env_.world_size,
                                .rank = env_.rank},
                  BatchOrder{.seed = train().seed,
                             .shuffle = train().data.shuffle,
                             .group_by_length = train().data.group_by_length},
                  inputs().pad_id);
  max_steps_ = train().schedule.max_steps > 0 ? train().schedule.max_steps
                                              : loader_->StepsForEpochs(train().schedule.epochs);
  if (inputs().eval) {
    eval_loader_.emplace(*inputs().eval, train().batch.per_rank, env_.world_size, env_.rank,
                         inputs().pad_id);
  }
  NoteInputs();
  return AgreeOnModelAndData();
}

std::optional<Failure> Trainer::AgreeOnModelAndData() {
  std::optional<std::uint64_t> base;
  if (auto failure = AgreeOnInputs(spec(), inputs(), parts_.communicator, &base)) return failure;
  Result<std::optional<AdapterOrigin>> origin =
      AgreeOnOrigin(train(), inputs().model_dir, base, parts_.communicator);
  if (!origin.ok()) return CollectiveFailure(origin.status());
  origin_ = *std::move(origin);
  base_weights_ = base;
  return std::nullopt;
}

void Trainer::NoteInputs() {
  if (env_.local_rank == 0) {
    for (const std::string& note : inputs().notes) Note("warning", note);
  }
  if (!is_first()) return;
  if (inputs().growth) Note("info", inputs().growth->Describe());
  const DatasetStats& stats = inputs().dataset->stats();
  const std::string name = NameOfFiles(train().data.train);
  const std::string length = std::to_string(train().data.max_seq_len);
  const std::int64_t rows = stats.documents > 0 ? stats.documents : stats.rows;
  if (stats.documents > 0) {
    Note("info", name + PackingNote(stats, train().data.max_seq_len));
  }
  if (stats.truncated > 0 || stats.dropped > 0) {
    Note(stats.dropped > 0 ? "warning" : "info",
         name + ": " + std::to_string(stats.truncated) + " of " +
             std::to_string(rows + stats.dropped) + " rows were cut to " + length + " tokens, " +
             std::to_string(stats.dropped) + " had nothing left to train on and were dropped");
  }
  if (stats.trailing_tokens > 0) {
    Note("info", name + ": " + std::to_string(stats.trailing_tokens) +
                     " tokens after the last whole row of " + length + " were dropped");
  }
}

// How the ranks reach each other, and for each group that has to do without its host's memory why:
// by the group's first rank, once per attempt.
void Trainer::ReportTransport() {
  if (parts_.communicator.size() == 1) return;
  Print("the ranks reach each other by: " + parts_.communicator.Describe() + "\n");
  std::vector<const Communicator*> groups = {&parts_.communicator};
  if (engine_->shard_group() != groups[0]) groups.push_back(engine_->shard_group());
  for (const Communicator* group : groups) {
    if (group == nullptr || group->fallback().empty()) continue;
    const std::string text =
        std::to_string(group->size()) +
        " ranks of one host use sockets, which are slower than its memory: " + group->fallback();
    Note("warning", text);
    parts_.progress.CountSocketFallback();
    if (is_first()) continue;
    parts_.lines.Add([line = "muster-trainer: warning: " + text + "\n"] {
      std::fputs(line.c_str(), stderr);
      return OkStatus();
    });
  }
}

std::optional<Failure> Trainer::MakeEngine() {
  FsdpOptions options = MakeEngineOptions(train(), env_);
  options.on_phase = [this](TrainPhase phase) { parts_.progress.EnterPhase(phase); };
  options.tracer = &profiler_;
  options.retained_weights = parts_.frozen;
  options.frozen_source = base_weights_.value_or(0);
  if (auto failure = PlanSnapshots(&options)) return failure;
  Result<std::unique_ptr<FsdpEngine>> engine =
      FsdpEngine::Create(inputs().config, parts_.communicator, parts_.ops, std::move(options));
  if (!engine.ok()) {
    return engine.status().code() == StatusCode::kInvalidArgument
               ? InputFailure("config", engine.status())
               : CollectiveFailure(engine.status());
  }
  engine_ = *std::move(engine);
  return std::nullopt;
}

std::optional<Failure> Trainer::PlanSnapshots(FsdpOptions* options) {
  if (parts_.segments == nullptr || train().snapshot.every == 0) return std::nullopt;
  const Result<Step> newest =
      CheckpointSearch(parts_.communicator, checkpoint_dir_, env_.resume_file, {}).NewestStep();
  if (!newest.ok()) return SharedInputFailure("config", newest.status());
  newest_checkpoint_ = *newest;
  const Status same = AgreeOnSegments(parts_.segments->readable(), origin_, parts_.communicator);
  if (!same.ok()) return SharedInputFailure("config", same);
  snapshots_.emplace(train().snapshot, env_, *parts_.segments, parts_.communicator,
                     parts_.supervisor);
  const Status begun = snapshots_->Begin(
      {.config = inputs().config,
       .adapter = origin_,
       .newest_checkpoint = newest_checkpoint_,
       .also_held = parts_.frozen != nullptr ? parts_.frozen->names() : std::vector<std::string>()},
      options);
  if (!begun.ok()) return SharedInputFailure("config", begun);
  if (!snapshots_->no_memory().ok() && is_first()) {
    Note("warning", "no snapshots are taken, a recovery goes back to the last checkpoint: " +
                        snapshots_->no_memory().message());
  }
  return std::nullopt;
}

void Trainer::MakeCheckpointer() {
  checkpointer_ = std::make_unique<Checkpointer>(
      CheckpointerOptions{.directory = checkpoint_dir_,
                          .job_id = env_.job_id,
                          .generation = env_.generation,
                          .rank = env_.rank,
                          .world_size = env_.world_size,
                          .resume_file = env_.resume_file,
                          .parameters = engine_->layout().parameter_count(),
                          .writes = engine_->is_first_replica(),
                          .memory = engine_->state().array_memory(),
                          .adapter = origin_,
                          .fits =
                              [this](const std::optional<AdapterOrigin>& saved) {
                                return CheckOrigin(saved, origin_);
                              },
                          .on_read = [this] { parts_.progress.Move(); }},
      parts_.supervisor.attached() ? MakeSupervisorCommitter(&parts_.supervisor)
                                   : MakeLocalCommitter({.directory = checkpoint_dir_,
                                                         .keep = train().checkpoint.keep,
                                                         .keep_best = train().keeps_best()}),
      parts_.saver);
}

std::optional<Failure> Trainer::LoadState() {
  parts_.progress.EnterPhase(TrainPhase::kLoading);
  if (auto failure = MakeEngine()) return failure;
  MakeCheckpointer();
  // A state that belongs to another base is refused before that one is read.
  if (auto failure = LoadNewestState()) return failure;
  if (auto failure = LoadFrozen()) return failure;
  if (resumed_from_ != ResumeSource::kStart) {
    engine_->RestoreLossScale({cursor_.loss_scale, cursor_.loss_scale_steps});
  }
  engine_->WeightsLoaded();
  if (auto failure = ForgetLostBest()) return failure;
  if (auto failure = BeginSnapshots()) return failure;
  first_step_ = cursor_.step;
  // A job that saves at its end alone need not keep memory for it.
  if (cursor_.step + train().checkpoint.every < max_steps_ || train().keeps_best()) {
    checkpointer_->Prepare(engine_->state().CheckpointArrays());
  }
  parts_.supervisor.Resumed(env_.generation, cursor_.step, resumed_from_, rejected_);
  parts_.progress.StartAt(checkpointer_->generation(), cursor_.step, max_steps_);
  return std::nullopt;
}

// A rank's own reason says more than one that it has from others.
Status Trainer::WithOwnReason(const Status& loaded) const {
  const Result<SafetensorsModel>& weights = inputs().weights;
  return loaded.code() == StatusCode::kNotFound && !weights.ok() ? weights.status() : loaded;
}

// Null where this node has no files.
const SafetensorsModel* Trainer::ModelFiles() const {
  const Result<SafetensorsModel>& weights = inputs().weights;
  return weights.ok() ? &*weights : nullptr;
}

// The guardian holds them for processes to come.
void Trainer::ReportFrozen() {
  if (parts_.frozen == nullptr) return;
  const RetainedWeights::News news = parts_.frozen->TakeNews();
  for (const std::string& name : news.dropped) parts_.supervisor.DropSegment(env_.generation, name);
  for (const auto& [name, file] : news.held)
    parts_.supervisor.HoldSegment(env_.generation, name, file);
}

std::optional<Failure> Trainer::LoadFrozen() {
  if (train().lora) parts_.progress.EnterPhase(TrainPhase::kLoadingFrozen);
  const Status loaded = WithOwnReason(engine_->LoadFrozen(ModelFiles(), [this] {
    parts_.progress.Move();
    ReportFrozen();  // what is of no use any more goes while memory is filled
  }));
  if (!loaded.ok()) return SharedInputFailure("model", loaded);
  ReportFrozen();
  // What they were quantised in, in fp32, would stay with the process: it keeps freed memory
  // (verb_train.cc).
  if (train().lora) ::malloc_trim(0);
  if (engine_->frozen_kept() && is_first()) Print("the frozen weights were still in memory\n");
  return std::nullopt;
}

// Newest first: checkpoints beyond the cut, the cut, older checkpoints, the start. All ranks have
// the same cut and the same list, and agree on each verdict.
std::optional<Failure> Trainer::LoadNewestState() {
  bool loaded = false;
  const Step cut = snapshots_ ? snapshots_->cut_step() : -1;
  if (cut >= 0 && newest_checkpoint_ > cut) {
    if (auto failure = LoadCheckpoint(cut, &loaded)) return failure;
    if (loaded) snapshots_->ForgetCut();
  }
  if (!loaded) {
    if (auto failure = RestoreSnapshot(&loaded)) return failure;
  }
  if (!loaded) {
    if (auto failure = LoadCheckpoint(0, &loaded)) return failure;
  }
  if (loaded) return std::nullopt;
  if (!none_usable_.ok()) return InputFailure("config", none_usable_);
  // The model's files say nothing of the moments, which are zero in new memory alone.
  if (snapshots_ && snapshots_->holds_old_state()) {
    ZeroArrays(engine_->state().CheckpointArrays(), engine_->state().array_memory());
  }
  const Status first = LoadFirstState();
  if (!first.ok()) return SharedInputFailure("model", first);
  saved_step_ = cursor_.step;
  return std::nullopt;
}

std::optional<Failure> Trainer::RestoreSnapshot(bool* restored) {
  if (!snapshots_) return std::nullopt;
  const Result<std::optional<TrainCursor>> cursor = snapshots_->Restore(*engine_);
  if (!cursor.ok()) return CollectiveFailure(cursor.status());
  if (!snapshots_->refused().ok()) {
    Note("warning", "the snapshot is not used: " + snapshots_->refused().message());
  }
  *restored = cursor->has_value();
  if (!*restored) return std::nullopt;
  cursor_ = **cursor;
  resumed_from_ = cursor_.step > 0 ? ResumeSource::kSnapshot : ResumeSource::kStart;
  saved_step_ = newest_checkpoint_ == cursor_.step ? cursor_.step : -1;
  return std::nullopt;
}

std::optional<Failure> Trainer::LoadCheckpoint(Step above, bool* loaded) {
  cursor_ = {.seed = train().seed};
  const std::vector<ShardArray> arrays = engine_->state().CheckpointArrays();
  Result<LoadOutcome> outcome =
      checkpointer_->LoadNewest(parts_.communicator, arrays, &cursor_, above);
  if (!outcome.ok()) return SharedInputFailure("config", outcome.status());
  *loaded = outcome->step > 0;
  if (*loaded) {
    untouched_source_ = outcome->directory;
    resumed_from_ = ResumeSource::kCheckpoint;
    saved_step_ = cursor_.step;
  }
  NoteResume(*outcome);
  none_usable_ = *loaded ? OkStatus() : NoneUsable(*outcome);
  rejected_ = std::move(outcome->rejected);
  return std::nullopt;
}

// From here on the state that training begins with can be resumed from, by this generation's name.
std::optional<Failure> Trainer::BeginSnapshots() {
  if (!snapshots_) return std::nullopt;
  const Result<MeshShape> shape =
      ShapeOf(train().fsdp.strategy, env_.world_size, env_.local_world_size);
  if (!shape.ok()) return InputFailure("config", shape.status());
  const Status kept = snapshots_->Keep(shape->replicas);
  if (!kept.ok()) return CollectiveFailure(kept);
  engine_->SetBuddy(snapshots_->buddy());
  SealStep();
  return std::nullopt;
}

// The state of a job that has no checkpoint of its own yet.
Status Trainer::LoadFirstState() {
  const InitFromSpec& init = train().init_from;
  if (init.path.empty()) return LoadModelWeights();
  untouched_source_ = ResolvePath(spec(), init.path);
  MUSTER_ASSIGN_OR_RETURN(
      const TrainCursor from,
      InitFrom(parts_.communicator, untouched_source_, engine_->state().CheckpointArrays(),
               {.optimizer = init.optimizer,
                .memory = engine_->state().array_memory(),
                .on_read = [this] { parts_.progress.Move(); }}));
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
  untouched_source_ = inputs().model_dir;
  if (train().lora) return LoadFirstAdapters();
  const ShardState& state = engine_->state();
  return WithOwnReason(LoadIntervalsTogether(ModelFiles(), engine_->layout(), state.WeightArrays(),
                                             parts_.communicator, state.array_memory(),
                                             [this] { parts_.progress.Move(); }));
}

Status Trainer::LoadFirstAdapters() {
  const LoraSpec& lora = *train().lora;
  const std::vector<ShardArray> arrays = engine_->state().WeightArrays();
  const ArrayMemory memory = engine_->state().array_memory();
  const TrainedTensors trained{engine_->layout(), arrays, memory};
  const auto on_read = [this] { parts_.progress.Move(); };
  if (!lora.init_from.empty()) {
    const std::string dir = ResolvePath(spec(), lora.init_from);
    untouched_source_ = dir;
    if (is_first()) Note("info", "goes on from the adapter " + dir);
    return LoadAdapter(dir, lora, trained, parts_.communicator, on_read);
  }
  InitAdapters(trained, train().seed);
  return WithOwnReason(LoadTrainedOfModel(ModelFiles(), trained, parts_.communicator, on_read));
}

void Trainer::NoteResume(const LoadOutcome& outcome) {
  for (const std::vector<RejectedCheckpoint>* list : {&outcome.rejected, &outcome.missing}) {
    for (const RejectedCheckpoint& each : *list) {
      Print("checkpoint " + each.directory + " is not used: " + each.reason + "\n");
    }
  }
  const std::int64_t batch = loader_->geometry().global_batch();
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
    // Under a supervisor generations keep each other out, and one that hangs somewhere must not
    // keep the next one from training.
    const MetricsLock lock =
        parts_.supervisor.attached() ? MetricsLock::kNone : MetricsLock::kExclusive;
    Result<RunLogs> logs = RunLogs::Open(output_dir_, {.lock = lock,
                                                       .evaluations = eval_loader_.has_value(),
                                                       .samples = inputs().samples.has_value(),
                                                       .generation = checkpointer_->generation()});
    status = logs.status();
    if (status.ok()) logs_ = std::make_shared<RunLogs>(*std::move(logs));
  }
  if (!status.ok()) return InputFailure("config", status);
  if (inputs().growth && !train().lora) {
    const Status written =
        WriteGrownFiles(inputs().model_dir, ChangedFiles(inputs(), /*adapter=*/false),
                        output_dir_ + "/model-files");
    if (!written.ok()) Note("warning", written.ToString());
  }
  return std::nullopt;
}

void Trainer::PrintStart() {
  line_time_ = parts_.clock.Now();
  line_step_ = cursor_.step;
  if (!is_first()) return;
  throughput_.emplace(inputs().config, engine_->layout().parameter_count(),
                      inputs().dataset->stats(), env_.world_size,
                      FindPeak(spec(), parts_.ops.Describe()));
  for (const std::string& note : StartNotes(spec(), env_)) Note("info", note);
  char numbers[200];
  const auto all = static_cast<double>(engine_->parameter_count());
  const auto trained = static_cast<double>(engine_->layout().parameter_count());
  std::string text = inputs().model_dir;
  if (trained < all) {
    std::snprintf(numbers, sizeof numbers, ": trains %.2f M (%.2f %%) of", trained / 1e6,
                  100 * trained / all);
    text += numbers;
  } else {
    text += ":";
  }
  std::snprintf(numbers, sizeof numbers,
                " %.2f M parameters, %d ranks, %lld rows, batch of %lld rows, %lld steps\n",
                all / 1e6, env_.world_size, static_cast<long long>(inputs().dataset->size()),
                static_cast<long long>(loader_->geometry().global_batch()),
                static_cast<long long>(max_steps_));
  text += numbers;
  if (inputs().eval) {
    text += "evaluates on " + std::to_string(inputs().eval->size()) + " rows every " +
            std::to_string(train().eval_every()) + " steps\n";
  }
  if (cursor_.step > 0) text += "going on after step " + std::to_string(cursor_.step) + "\n";
  Print(std::move(text));
}

void Trainer::PrintThroughput() {
  const std::string summary = throughput_ ? throughput_->Summary() : std::string();
  if (!summary.empty()) Print("trained at " + summary + "\n");
}

}  // namespace muster
