// RunContext: what every part of a rank's life in one generation reads: who the rank is, its job,
// and what it works with. None of it changes until the generation is over.
//
// A value of references; all that it refers to outlives it. The trainer's thread.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/rank_env.h"
#include "trainer/fsdp/retained_weights.h"
#include "trainer/inputs/train_inputs.h"
#include "trainer/ops/device_ops.h"
#include "trainer/report/line_writer.h"
#include "trainer/report/progress_reporter.h"
#include "trainer/state/checkpoint/shard_saver.h"
#include "trainer/supervise/rank_faults.h"
#include "trainer/supervise/supervisor.h"
#include "trainer/train/retained_segments.h"

namespace muster {

// What a process keeps of one generation for the next one, in memory that its guardian holds too.
struct RetainedMemory {
  RetainedSegments segments;
  RetainedWeights weights;
};

struct RunContext {
  RankEnv env;
  int step_ranks = 1;  // that batch.accumulation counts for, whatever the gang's number is
  const JobSpec& spec;
  ProcessInputs& inputs;       // loaded or not
  Communicator& communicator;  // not formed yet
  DeviceOps& ops;
  std::shared_ptr<ShardSaver> saver;
  RetainedMemory* retained = nullptr;  // null: no guardian holds it, so there are no snapshots
  Supervisor& supervisor;
  ProgressReporter& progress;
  RankFaults& faults;
  const Clock& clock;
  std::FILE* out;       // rank 0's lines for people
  LineWriter& lines;    // of the log; rank 0
  bool exports = true;  // the trained model, at the end
  // Called on every rank, after each step; may be empty.
  std::function<void(const StepMetrics&)> on_step;

  const TrainSpec& train() const { return *spec.train; }
  bool is_first() const { return env.rank == 0; }
  std::string output_dir() const;
  std::string checkpoint_dir() const;
  // Shows that the rank moves.
  std::function<void()> on_moved() const {
    return [&progress = progress] { progress.Move(); };
  }
  // Without peers no collective would report it.
  Status CalledOff() const { return supervisor.CalledOff(env.generation); }
  bool stop_requested() const { return supervisor.stop_requested(env.generation); }
  // To the guardian, and in rank 0's output.
  void Note(const char* severity, const std::string& message) const;
  void Print(std::string text) const;  // rank 0's, to people
};

}  // namespace muster
