// ProgressReporter: what a rank stores into its progress page as it trains.
//
// Owns the bookkeeping of phases and step times. A step's wait for peers is what the collectives'
// waits have grown by since its first micro-batch began; the rest of its time it was busy. What is
// only counted for metrics (training_figures.h) goes along. The trainer's thread; every call is a
// few stores.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "common/control_pipe/progress_page.h"
#include "common/control_pipe/training_figures.h"
#include "trainer/comm/communicator.h"
#include "trainer/report/metrics_log.h"

namespace muster {

// Resident memory of this process; 0 if the kernel does not say.
std::uint64_t ResidentBytes();

// What a step took beside its metrics.
struct StepWork {
  std::int64_t tokens = 0;  // with a label; whole job, as all of these
  std::int64_t samples = 0;
  double flops = 0;  // 0: not known
};

class ProgressReporter {
 public:
  // `figures` may be null: no process reads them.
  ProgressReporter(std::shared_ptr<ProgressWriter> page, const Clock& clock,
                   std::unique_ptr<FiguresWriter> figures = nullptr);

  // From its next Form on, `communicator` and its groups count in the page's cells.
  void Watch(Communicator* communicator) { communicator->CountInto(page_); }
  void EnterPhase(TrainPhase phase);
  // Shows that the rank moves within a phase that is quiet for long.
  void Move() { Publish(); }
  void StartAt(Generation generation, Step step, Step max_steps);
  void StartMicroBatch(int micro_batch);
  void FinishStep(const StepMetrics& metrics, const StepWork& work);
  void CountNonFinite();
  void CountCollectiveError(CollectiveError error);
  void CountSocketFallback();
  // The newest step that any rank of the job has finished: up to it steps are done again.
  Step furthest_step() const { return furthest_step_; }
  void SetFurthestStep(Step step) { furthest_step_ = step; }
  void CountStage(double seconds) { figures_.stage.Observe(seconds); }
  void SetSaved(const SaveSeconds& write, std::uint64_t bytes);
  void SetDeviceMemory(const DeviceMemory& memory) { figures_.device = memory; }
  // That the step under way has waited for peers.
  Duration waited() const;
  // The newest sealed snapshot; -1: none.
  void SetSnapshotStep(Step step);

 private:
  void Publish();
  void CountPart(TrainPhase phase, double seconds);

  const std::shared_ptr<ProgressWriter> page_;
  const std::unique_ptr<FiguresWriter> figures_page_;
  TrainingFigures figures_;
  const Clock& clock_;
  TimePoint phase_since_;
  std::uint64_t waited_before_ = 0;    // nanoseconds, in all collectives when the step began
  std::uint64_t waited_at_phase_ = 0;  // the same when the phase began
  Step furthest_step_ = 0;
};

}  // namespace muster
