// TrainLoop: the steps of one generation, from the state that was loaded until all are done, or
// until the ranks have agreed to stop.
//
// An early stop is a vote that rides along in the step's last collective; all other decisions are
// functions of equal inputs. A loss or gradient norm that is not finite never reaches the
// optimizer: it ends the job, or the step is left out (NonFiniteGuard). Between steps it evaluates,
// where the job has rows for that: early ends and best states are functions of the evaluations'
// numbers, which are equal on all ranks and part of the cursor.
//
// A generation that is called off ends Run with a lost peer at the next collective or step at the
// latest. One object per generation; the trainer's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/core/train_status.h"
#include "trainer/report/throughput.h"
#include "trainer/train/nonfinite.h"
#include "trainer/train/router_watch.h"
#include "trainer/train/run_context.h"
#include "trainer/train/start.h"

namespace muster {

class TrainLoop {
 public:
  // Both outlive the loop. It writes to the log and the profiler, not to the state it began with.
  TrainLoop(const RunContext& run, StartedRun& started);

  TrainStatus Run();
  // Saves the state of the cursor unless that is done. It waits for the save before, so that it is
  // never left out as one that is due may be.
  Status SaveLast();
  // No save is in flight on any rank then, whatever became of it.
  Status DrainSavesTogether();
  // The same of this rank alone: how the last save has ended. `on_moved`: more of it has reached
  // its file.
  Status DrainSaves(const std::function<void()>& on_moved = [] {});

  const TrainCursor& cursor() const { return cursor_; }
  bool stopping() const { return stopping_; }
  // What all steps of this process came to, for people; empty on other ranks than rank 0.
  std::string ThroughputSummary() const { return throughput_ ? throughput_->Summary() : ""; }

 private:
  // No further step follows.
  bool Done() const { return cursor_.step >= started_.max_steps || ended_early_; }
  TrainStatus RunStep();
  TrainStatus RunMicroBatches();
  TrainStatus JudgeNonFinite(const StepNumbers& numbers);
  std::string DescribeMicroBatch(int number) const;
  void FinishStep(const StepNumbers& numbers, double lr, TimePoint begin);
  // Null: the model has no experts.
  std::shared_ptr<const ExpertLoad> LoadOf(const StepNumbers& numbers) const;
  bool EvaluationIsDue() const;
  TrainStatus EvaluateNow();
  TrainStatus ShowSamples();
  Status SaveIfDue();
  Status SaveBest();
  Status Save();
  void ReportSlowDisk() const;
  void ReportSaves() const;  // into the progress page: what has been written so far
  Status ReportProfile();

  const RunContext& run_;
  StartedRun& started_;
  FsdpEngine& engine_;
  BatchLoader& loader_;
  NonFiniteGuard nonfinite_;
  std::optional<Throughput> throughput_;  // rank 0's
  std::optional<RouterWatch> routers_;    // likewise, of a model with experts
  Step saved_step_;                       // of the last checkpoint
  std::string untouched_source_;          // of the weights, until an update changes them
  TrainCursor cursor_;
  bool stopping_;
  bool ended_early_ = false;  // evaluations have found nothing better for long enough
};

}  // namespace muster
