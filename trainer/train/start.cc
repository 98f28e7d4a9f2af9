#include "trainer/train/start.h"

#include <malloc.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "trainer/comm/long_work.h"
#include "trainer/fsdp/adapter_weights.h"
#include "trainer/fsdp/load_weights.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/inputs/input_agreement.h"
#include "trainer/inputs/origin_agreement.h"
#include "trainer/state/checkpoint/init_from.h"
#include "trainer/train/evaluation.h"
#include "trainer/train/start_notes.h"

namespace muster {
namespace {

// For all ranks to come up; the supervisor gives up on a launch much earlier.
constexpr Duration kFormTimeout = std::chrono::minutes(5);

Status Form(const RunContext& run) {
  run.progress.EnterPhase(TrainPhase::kForming);
  run.progress.Watch(&run.communicator);
  RankEnv env = run.env;
  MUSTER_RETURN_IF_ERROR(
      run.communicator.Form(TakeRendezvous(&env), Deadline::After(kFormTimeout)));
  MUSTER_RETURN_IF_ERROR(run.communicator.Barrier());
  run.supervisor.Formed(run.env.generation);
  return OkStatus();
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

void NoteInputs(const RunContext& run) {
  const TrainInputs& inputs = *run.inputs;
  if (run.env.local_rank == 0) {
    for (const std::string& note : inputs.notes) run.Note("warning", note);
  }
  if (!run.is_first()) return;
  if (inputs.growth) run.Note("info", inputs.growth->Describe());
  const DataSpec& data = run.train().data;
  const DatasetStats& stats = inputs.dataset->stats();
  const std::string name = NameOfFiles(data.train);
  const std::string length = std::to_string(data.max_seq_len);
  const std::int64_t rows = stats.documents > 0 ? stats.documents : stats.rows;
  if (stats.documents > 0) run.Note("info", name + PackingNote(stats, data.max_seq_len));
  if (stats.truncated > 0 || stats.dropped > 0) {
    run.Note(stats.dropped > 0 ? "warning" : "info",
             name + ": " + std::to_string(stats.truncated) + " of " +
                 std::to_string(rows + stats.dropped) + " rows were cut to " + length +
                 " tokens, " + std::to_string(stats.dropped) +
                 " had nothing left to train on and were dropped");
  }
  if (stats.trailing_tokens > 0) {
    run.Note("info", name + ": " + std::to_string(stats.trailing_tokens) +
                         " tokens after the last whole row of " + length + " were dropped");
  }
}

// On one node the rows may be there, while another one tokenizes for hours.
TrainStatus LoadInputs(const RunContext& run) {
  LongWork reading(run.communicator);
  if (auto status = run.inputs.Load([&reading] { reading.Move(); }); !status.ok()) return status;
  return reading.Await();
}

// The libraries keep compiled products of bf16 for 1,024 shapes. Those of experts, whose numbers of
// rows hardly ever come again, then take a third of a small model's memory, of which no plan knows.
// They read these when the first product is made.
void BoundKeptProducts(const ModelConfig& config) {
  if (!config.experts) return;
  for (const char* name : {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"})
    ::setenv(name, "24", /*overwrite=*/0);
}

TrainStatus ReadInputs(const RunContext& run, StartedRun* started) {
  run.progress.EnterPhase(TrainPhase::kReadingRows);
  started->memory.Enter(MemoryStage::kLoad);
  if (auto status = LoadInputs(run); !status.ok()) return status;
  const TrainSpec& train = run.train();
  const TrainInputs& inputs = *run.inputs;
  BoundKeptProducts(inputs.config);
  started->loader.emplace(*inputs.dataset,
                          BatchGeometry{.per_rank = train.batch.per_rank,
                                        .micro_batches = train.batch.accumulation * run.step_ranks,
                                        .world_size = run.env.world_size,
                                        .rank = run.env.rank},
                          BatchOrder{.seed = train.seed,
                                     .shuffle = train.data.shuffle,
                                     .group_by_length = train.data.group_by_length},
                          inputs.pad_id);
  started->max_steps = train.schedule.max_steps > 0
                           ? train.schedule.max_steps
                           : started->loader->StepsForEpochs(train.schedule.epochs);
  if (inputs.eval) {
    started->eval_loader.emplace(*inputs.eval, train.batch.per_rank, run.env.world_size,
                                 run.env.rank, inputs.pad_id);
  }
  NoteInputs(run);
  MUSTER_ASSIGN_OR_RETURN(started->base_weights, AgreeOnInputs(run.spec, inputs, run.communicator));
  MUSTER_ASSIGN_OR_RETURN(started->origin, AgreeOnOrigin(train, inputs.model_dir,
                                                         started->base_weights, run.communicator));
  return {};
}

// Into the options, where snapshots are taken.
TrainStatus PlanSnapshots(const RunContext& run, StartedRun* started, FsdpOptions* options) {
  if (run.retained == nullptr || run.train().snapshot.every == 0) return {};
  CheckpointSearch search(run.communicator, run.checkpoint_dir(), run.env.resume_file, {});
  MUSTER_ASSIGN_OR_RETURN(started->newest_checkpoint,
                          FromSharedInput(FailureKind::kConfig, search.NewestStep()));
  Status begun =
      AgreeOnSegments(run.retained->segments.readable(), started->origin, run.communicator);
  if (begun.ok()) {
    started->snapshots.emplace(run);
    begun = started->snapshots->Begin(started->origin, started->newest_checkpoint, options);
  }
  if (!begun.ok()) return FromSharedInput(FailureKind::kConfig, begun);
  const Status& no_memory = started->snapshots->no_memory();
  if (!no_memory.ok() && run.is_first()) {
    run.Note("warning", "no snapshots are taken, a recovery goes back to the last checkpoint: " +
                            no_memory.message());
  }
  return {};
}

TrainStatus MakeEngine(const RunContext& run, StartedRun* started) {
  FsdpOptions options = OptionsOf(run.train(), run.env.local_world_size);
  options.on_phase = [&progress = run.progress](TrainPhase phase) { progress.EnterPhase(phase); };
  options.tracer = &started->profiler;
  if (run.retained != nullptr) options.retained_weights = &run.retained->weights;
  options.frozen_source = started->base_weights.value_or(0);
  if (auto status = PlanSnapshots(run, started, &options); !status.ok()) return status;
  Result<std::unique_ptr<FsdpEngine>> engine =
      FsdpEngine::Create(run.inputs->config, run.communicator, run.ops, std::move(options));
  if (engine.status().code() == StatusCode::kInvalidArgument) {
    return FromInput(FailureKind::kConfig, engine.status());
  }
  MUSTER_ASSIGN_OR_RETURN(started->engine, std::move(engine));
  return {};
}

void MakeCheckpointer(const RunContext& run, StartedRun* started) {
  const std::string directory = run.checkpoint_dir();
  started->checkpointer = std::make_unique<Checkpointer>(
      CheckpointerOptions{
          .directory = directory,
          .job_id = run.env.job_id,
          .generation = run.env.generation,
          .rank = run.env.rank,
          .world_size = run.env.world_size,
          .resume_file = run.env.resume_file,
          .parameters = started->engine->layout().parameter_count(),
          .writes = started->engine->is_first_replica(),
          .memory = started->engine->state().array_memory(),
          .adapter = started->origin,
          .fits = [started](const auto& saved) { return CheckOrigin(saved, started->origin); },
          .on_read = run.on_moved()},
      run.supervisor.attached() ? MakeSupervisorCommitter(&run.supervisor)
                                : MakeLocalCommitter({.directory = directory,
                                                      .keep = run.train().checkpoint.keep,
                                                      .keep_best = run.train().keeps_best()}),
      run.saver);
}

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

// What the checkpointer has looked at, for people.
void NoteResume(const RunContext& run, const LoadOutcome& outcome, const StartedRun& started) {
  for (const std::vector<RejectedCheckpoint>* list : {&outcome.rejected, &outcome.missing}) {
    for (const RejectedCheckpoint& each : *list) {
      run.Print("checkpoint " + each.directory + " is not used: " + each.reason + "\n");
    }
  }
  const TrainCursor& cursor = started.cursor;
  const std::int64_t batch = started.loader->geometry().global_batch();
  if (run.is_first() &&
      (cursor.seed != run.train().seed || cursor.samples != cursor.step * batch)) {
    run.Note("warning", outcome.directory +
                            " was made with another train.seed or batch size: some rows will be "
                            "trained on again, others left out");
  }
}

// The newest usable checkpoint beyond `above`, if there is one.
TrainResult<LoadOutcome> LoadCheckpoint(const RunContext& run, Step above, StartedRun* started) {
  started->cursor = {.seed = run.train().seed};
  MUSTER_ASSIGN_OR_RETURN(
      LoadOutcome outcome,
      FromSharedInput(FailureKind::kConfig,
                      started->checkpointer->LoadNewest(run.communicator,
                                                        started->engine->state().CheckpointArrays(),
                                                        &started->cursor, above)));
  if (outcome.step > 0) {
    started->untouched_source = outcome.directory;
    started->resumed_from = ResumeSource::kCheckpoint;
    started->saved_step = started->cursor.step;
  }
  NoteResume(run, outcome, *started);
  started->cursor.seed = run.train().seed;
  started->rejected = outcome.rejected;
  return outcome;
}

// False: there is no cut, or it could not be used.
TrainResult<bool> RestoreSnapshot(const RunContext& run, StartedRun* started) {
  if (!started->snapshots) return false;
  MUSTER_ASSIGN_OR_RETURN(const std::optional<TrainCursor> cursor,
                          started->snapshots->Restore(*started->engine));
  const Status& refused = started->snapshots->refused();
  if (!refused.ok()) run.Note("warning", "the snapshot is not used: " + refused.message());
  if (!cursor) return false;
  started->cursor = *cursor;
  if (cursor->step > 0) started->resumed_from = ResumeSource::kSnapshot;
  if (started->newest_checkpoint == cursor->step) started->saved_step = cursor->step;
  return true;
}

// Null where this node has no files.
const SafetensorsModel* ModelFiles(const RunContext& run) {
  const Result<SafetensorsModel>& weights = run.inputs->weights;
  return weights.ok() ? &*weights : nullptr;
}

// A rank's own reason says more than one that it has from others.
Status WithOwnReason(const RunContext& run, const Status& loaded) {
  const Result<SafetensorsModel>& weights = run.inputs->weights;
  return loaded.code() == StatusCode::kNotFound && !weights.ok() ? weights.status() : loaded;
}

Status LoadFirstAdapters(const RunContext& run, StartedRun* started) {
  const LoraSpec& lora = *run.train().lora;
  const FsdpEngine& engine = *started->engine;
  const std::vector<ShardArray> arrays = engine.state().WeightArrays();
  const ArrayMemory memory = engine.state().array_memory();
  const TrainedTensors trained{engine.layout(), arrays, memory};
  if (!lora.init_from.empty()) {
    const std::string dir = ResolvePath(run.spec, lora.init_from);
    started->untouched_source = dir;
    if (run.is_first()) run.Note("info", "goes on from the adapter " + dir);
    return LoadAdapter(dir, lora, trained, run.communicator, run.on_moved());
  }
  InitAdapters(trained, run.train().seed);
  return WithOwnReason(
      run, LoadTrainedOfModel(ModelFiles(run), trained, run.communicator, run.on_moved()));
}

// Where some nodes have no files, a rank that has them reads for all.
Status LoadModelWeights(const RunContext& run, StartedRun* started) {
  started->untouched_source = run.inputs->model_dir;
  if (run.train().lora) return LoadFirstAdapters(run, started);
  const ShardState& state = started->engine->state();
  return WithOwnReason(
      run, LoadIntervalsTogether(ModelFiles(run), started->engine->layout(), state.WeightArrays(),
                                 run.communicator, state.array_memory(), run.on_moved()));
}

// The state of a job that has no checkpoint of its own yet.
Status LoadFirstState(const RunContext& run, StartedRun* started) {
  const InitFromSpec& init = run.train().init_from;
  const ShardState& state = started->engine->state();
  // The model's files say nothing of the moments, which are zero in new memory alone.
  if (started->snapshots && started->snapshots->holds_old_state()) {
    ZeroArrays(state.CheckpointArrays(), state.array_memory());
  }
  started->saved_step = started->cursor.step;
  if (init.path.empty()) return LoadModelWeights(run, started);
  const std::string path = ResolvePath(run.spec, init.path);
  started->untouched_source = path;
  MUSTER_ASSIGN_OR_RETURN(const TrainCursor from,
                          InitFrom(run.communicator, path, state.CheckpointArrays(),
                                   {.optimizer = init.optimizer,
                                    .memory = state.array_memory(),
                                    .on_read = run.on_moved()}));
  if (init.optimizer) started->cursor.optimizer_steps = from.optimizer_steps;
  if (run.is_first()) {
    run.Note("info", "starts from the weights" +
                         std::string(init.optimizer ? " and the optimizer's state" : "") + " of " +
                         path + " (its step " + std::to_string(from.step) + ")");
  }
  return OkStatus();
}

// All ranks have the same cut and the same list of checkpoints, and agree on each verdict.
TrainStatus LoadNewestState(const RunContext& run, StartedRun* started) {
  const Step cut = started->snapshots ? started->snapshots->cut_step() : -1;
  if (cut >= 0 && started->newest_checkpoint > cut) {
    MUSTER_ASSIGN_OR_RETURN(const LoadOutcome newer, LoadCheckpoint(run, cut, started));
    if (newer.step > 0) {
      started->snapshots->ForgetCut();
      return {};
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const bool restored, RestoreSnapshot(run, started));
  if (restored) return {};
  MUSTER_ASSIGN_OR_RETURN(const LoadOutcome older, LoadCheckpoint(run, 0, started));
  if (older.step > 0) return {};
  const Status unusable = NoneUsable(older);
  if (!unusable.ok()) return FromInput(FailureKind::kConfig, unusable);
  return FromSharedInput(FailureKind::kModel, LoadFirstState(run, started));
}

TrainStatus LoadFrozen(const RunContext& run, FsdpEngine& engine) {
  const bool adapters = run.train().lora.has_value();
  if (adapters) run.progress.EnterPhase(TrainPhase::kLoadingFrozen);
  const Status loaded = engine.LoadFrozen(ModelFiles(run), run.on_moved());
  if (!loaded.ok()) return FromSharedInput(FailureKind::kModel, WithOwnReason(run, loaded));
  // What they were quantised in, in fp32, would stay with the process: it keeps freed memory
  // (verb_train.cc).
  if (adapters) ::malloc_trim(0);
  if (engine.frozen_kept()) run.Print("the frozen weights were still in memory\n");
  return {};
}

TrainStatus BeginSnapshots(const RunContext& run, StartedRun* started) {
  if (!started->snapshots) return {};
  MUSTER_ASSIGN_OR_RETURN(
      const MeshShape shape,
      FromInput(FailureKind::kConfig,
                ShapeOf(run.train().fsdp.strategy, run.env.world_size, run.env.local_world_size)));
  MUSTER_RETURN_IF_ERROR(started->snapshots->Keep(shape.replicas));
  started->engine->SetBuddy(started->snapshots->buddy());
  started->engine->Seal(started->cursor);
  run.progress.SetSnapshotStep(started->engine->SealedStep());
  return {};
}

TrainStatus LoadState(const RunContext& run, StartedRun* started) {
  run.progress.EnterPhase(TrainPhase::kLoading);
  if (auto status = MakeEngine(run, started); !status.ok()) return status;
  MakeCheckpointer(run, started);
  // A state that belongs to another base is refused before that one is read.
  if (auto status = LoadNewestState(run, started); !status.ok()) return status;
  FsdpEngine& engine = *started->engine;
  TrainCursor& cursor = started->cursor;
  if (auto status = LoadFrozen(run, engine); !status.ok()) return status;
  if (started->resumed_from != ResumeSource::kStart) {
    engine.RestoreLossScale({cursor.loss_scale, cursor.loss_scale_steps});
  }
  engine.WeightsLoaded();
  MUSTER_ASSIGN_OR_RETURN(cursor.evaluations, ForgetLostBest(run, cursor.evaluations));
  if (auto status = BeginSnapshots(run, started); !status.ok()) return status;
  // A job that saves at its end alone need not keep memory for it.
  if (cursor.step + run.train().checkpoint.every < started->max_steps || run.train().keeps_best()) {
    const ShardState& state = engine.state();
    if (!state.in_segment()) {
      started->checkpointer->Prepare(state.CheckpointArrays());
    } else if (engine.is_first_replica()) {
      state.PrepareSeal();
    }
  }
  run.supervisor.Resumed(run.env.generation, cursor.step, started->resumed_from, started->rejected);
  run.progress.StartAt(started->checkpointer->generation(), cursor.step, started->max_steps);
  return {};
}

// How the ranks reach each other, and for each group that has to do with sockets why: by the
// group's first rank, once per attempt.
void ReportTransport(const RunContext& run, const FsdpEngine& engine) {
  if (run.communicator.size() == 1) return;
  run.Print("the ranks reach each other by: " + run.communicator.Describe() + "\n");
  std::vector<const Communicator*> groups = {&run.communicator};
  if (engine.shard_group() != groups[0]) groups.push_back(engine.shard_group());
  for (const Communicator* group : groups) {
    const std::string fallback = group == nullptr ? "" : group->fallback();
    if (fallback.empty()) continue;
    const std::string text = std::to_string(group->size()) + " ranks " + fallback;
    run.Note("warning", text);
    run.progress.CountSocketFallback();
    if (!run.is_first()) run.lines.Print(stderr, "muster-trainer: warning: " + text + "\n");
  }
}

TrainStatus OpenLog(const RunContext& run, StartedRun* started) {
  if (!run.is_first()) return {};
  const TrainInputs& inputs = *run.inputs;
  // Under a supervisor generations keep each other out, and one that hangs somewhere must not keep
  // the next one from training.
  const MetricsLock lock = run.supervisor.attached() ? MetricsLock::kNone : MetricsLock::kExclusive;
  const Status opened = started->log.Open(
      {.lock = lock,
       .evaluations = started->eval_loader.has_value(),
       .samples = inputs.samples.has_value(),
       .experts_every = inputs.config.SparseLayers() > 0 ? run.train().logging_every : 0,
       .generation = started->checkpointer->generation()},
      started->cursor.step);
  if (!opened.ok()) return FromInput(FailureKind::kConfig, opened);
  if (!inputs.growth || run.train().lora) return {};
  const Status written = WriteGrownFiles(inputs.model_dir, ChangedFiles(inputs, /*adapter=*/false),
                                         run.output_dir() + "/model-files");
  if (!written.ok()) run.Note("warning", written.ToString());
  return {};
}

void PrintStart(const RunContext& run, const StartedRun& started) {
  if (!run.is_first()) return;
  for (const std::string& note : StartNotes(run.spec, run.env)) run.Note("info", note);
  char numbers[200];
  const auto all = static_cast<double>(started.engine->parameter_count());
  const auto trained = static_cast<double>(started.engine->layout().parameter_count());
  std::string text = run.inputs->model_dir;
  if (trained < all) {
    std::snprintf(numbers, sizeof numbers, ": trains %.2f M (%.2f %%) of", trained / 1e6,
                  100 * trained / all);
    text += numbers;
  } else {
    text += ":";
  }
  std::snprintf(numbers, sizeof numbers,
                " %.2f M parameters, %d ranks, %lld rows, batch of %lld rows, %lld steps\n",
                all / 1e6, run.env.world_size, static_cast<long long>(run.inputs->dataset->size()),
                static_cast<long long>(started.loader->geometry().global_batch()),
                static_cast<long long>(started.max_steps));
  text += numbers;
  if (run.inputs->eval) {
    text += "evaluates on " + std::to_string(run.inputs->eval->size()) + " rows every " +
            std::to_string(run.train().eval_every()) + " steps\n";
  }
  const Step step = started.cursor.step;
  if (step > 0) text += "going on after step " + std::to_string(step) + "\n";
  run.Print(std::move(text));
}

// A stop that came while the state was loaded need not wait for a step. Along goes how far any of
// the processes has been, for who is new does not know which steps are done again.
Status AgreeOnStop(const RunContext& run, StartedRun* started) {
  std::array<std::int64_t, 2> most = {run.stop_requested() ? 1 : 0, run.progress.furthest_step()};
  MUSTER_RETURN_IF_ERROR(
      run.communicator.AllReduce(most.data(), most.size(), ElementType::kInt64, ReduceOp::kMax)
          ->Wait());
  started->stopping = most[0] != 0;
  run.progress.SetFurthestStep(most[1]);
  return OkStatus();
}

}  // namespace

// Outside of steps each rank reads, writes and waits at its own pace, and the others wait for it
// in whichever collective comes next.
TrainStatus Start(const RunContext& run, StartedRun* started) {
  const OperationLimit::AtLeast patient(run.communicator.limit(), LongWork::kLimit);
  MUSTER_RETURN_IF_ERROR(Form(run));
  if (auto status = ReadInputs(run, started); !status.ok()) return status;
  if (auto status = LoadState(run, started); !status.ok()) return status;
  ReportTransport(run, *started->engine);
  if (auto status = OpenLog(run, started); !status.ok()) return status;
  MUSTER_RETURN_IF_ERROR(ReportMemory(run, started));
  PrintStart(run, *started);
  return AgreeOnStop(run, started);
}

Status ReportMemory(const RunContext& run, StartedRun* started) {
  Status written;
  MUSTER_RETURN_IF_ERROR(started->memory.Write(
      started->engine->memory(), run.output_dir() + "/memory.json", run.communicator, &written));
  if (!written.ok()) run.Note("warning", written.ToString());
  return OkStatus();
}

}  // namespace muster
