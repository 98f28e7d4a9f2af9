// ProgressReporter: what a rank stores into its progress page as it trains.
//
// Owns the bookkeeping of phases and step times. A step's wait for peers is what the collectives'
// waits have grown by since its first micro-batch began; the rest of its time it was busy. The
// trainer's thread; every call is a few stores.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "common/control_pipe/progress_page.h"
#include "trainer/distributed/communicator.h"
#include "trainer/loop/metrics_log.h"

namespace muster {

// Resident memory of this process; 0 if the kernel does not say.
std::uint64_t ResidentBytes();

class ProgressReporter {
 public:
  ProgressReporter(std::shared_ptr<ProgressWriter> page, const Clock& clock);

  // From its next Form on, `communicator` and its groups count in the page's cells.
  void Watch(Communicator* communicator) { communicator->CountInto(page_); }
  void EnterPhase(TrainPhase phase);
  // Shows that the rank moves within a phase that is quiet for long.
  void Move() { Publish(); }
  void StartAt(Generation generation, Step step, Step max_steps);
  void StartMicroBatch(int micro_batch);
  void FinishStep(const StepMetrics& metrics, std::int64_t step_tokens);
  void CountNonFinite();
  // That the step under way has waited for peers.
  Duration waited() const;
  // The newest sealed snapshot; -1: none.
  void SetSnapshotStep(Step step);

 private:
  void Publish();

  const std::shared_ptr<ProgressWriter> page_;
  const Clock& clock_;
  TimePoint phase_since_;
  std::uint64_t waited_before_ = 0;  // nanoseconds, in all collectives when the step began
};

}  // namespace muster
