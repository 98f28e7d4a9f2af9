// Trainer: one rank in one generation of a job, from forming the gang to the exported model: start
// (start.h), loop (loop.h), the last checkpoint, and the export (export.h).
//
// Runs under a guardian, or alone under torchrun's or srun's environment. A generation that is
// called off ends Run with a lost peer. The trainer holds what belongs to its generation and can be
// destroyed then; what serves the next one is RankProcess's.
//
// One object per generation, used by the main thread. Torch exceptions pass through; the caller
// turns them into a failure (RankProcess does).
#pragma once

#include <optional>
#include <string>

#include "trainer/core/train_status.h"
#include "trainer/train/loop.h"
#include "trainer/train/run_context.h"
#include "trainer/train/start.h"

namespace muster {

class Trainer {
 public:
  explicit Trainer(RunContext run);

  // OK: the job is done, or stopped as asked.
  TrainStatus Run();
  // Finished steps.
  Step step() const { return loop_ ? loop_->cursor().step : started_.cursor.step; }

 private:
  TrainStatus RunStages();
  TrainStatus Finish();
  TrainResult<std::string> ExportState();

  const RunContext run_;
  StartedRun started_;
  std::optional<TrainLoop> loop_;
};

}  // namespace muster
