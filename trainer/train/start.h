// Start: how a generation begins, up to its first step.
//
// The ranks meet and do a first collective, reported before anything is read, so that a launch is
// known to work within a second. Each reads model and rows unless its process has them; all agree
// on them, make an engine, and fill it with the first state that is there: of checkpoints beyond
// the cut, the cut of the snapshots, older checkpoints, or what the job file names (init_from, an
// adapter, the model). From then on that state can be resumed from by this generation's name.
//
// Collective; the trainer's thread of every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/core/train_status.h"
#include "trainer/data/batch_loader.h"
#include "trainer/data/eval_loader.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/report/memory_report.h"
#include "trainer/report/profiler.h"
#include "trainer/state/checkpoint/checkpointer.h"
#include "trainer/train/rank_snapshots.h"
#include "trainer/train/run_context.h"
#include "trainer/train/training_log.h"

namespace muster {

// What the loop needs.
struct StartedRun {
  // `run` outlives it.
  explicit StartedRun(const RunContext& run) : profiler(run.train().profile, run.clock), log(run) {}

  Profiler profiler;
  MemoryReport memory;
  TrainingLog log;
  std::optional<BatchLoader> loader;
  std::optional<EvalLoader> eval_loader;  // nothing: the job evaluates on nothing
  Step max_steps = 0;
  std::optional<AdapterOrigin> origin;        // of the trained tensors; nothing: they are the model
  std::optional<std::uint64_t> base_weights;  // AgreeOnInputs'
  std::optional<RankSnapshots> snapshots;     // nothing: none are taken
  std::unique_ptr<FsdpEngine> engine;
  std::unique_ptr<Checkpointer> checkpointer;
  // The state that the engine begins with.
  TrainCursor cursor;
  ResumeSource resumed_from = ResumeSource::kStart;
  Step newest_checkpoint = 0;                // that was there, where snapshots are taken
  Step saved_step = -1;                      // of a checkpoint that holds the state; -1: none does
  std::string untouched_source;              // of the weights
  std::vector<RejectedCheckpoint> rejected;  // newest first
  bool stopping = false;                     // the ranks have agreed to stop before the first step
};

// `started` is the caller's, who keeps it when this fails: an engine that is taken apart may wait
// for peers.
TrainStatus Start(const RunContext& run, StartedRun* started);

// Ends the stage under way of started->memory, and writes what is known of all of them.
Status ReportMemory(const RunContext& run, StartedRun* started);

}  // namespace muster
