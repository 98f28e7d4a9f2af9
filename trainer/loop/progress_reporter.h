// ProgressReporter: what a rank stores into its progress page as it trains.
//
// Owns the bookkeeping of phases and step times. The trainer's thread; every call is a few stores.
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
  ProgressReporter(std::unique_ptr<ProgressWriter> page, const Clock& clock);

  // Counters of the collectives come from `communicator` from now on; it outlives the reporter.
  void Watch(const Communicator* communicator) { communicator_ = communicator; }
  void EnterPhase(TrainPhase phase);
  void StartAt(Generation generation, Step step, Step max_steps);
  void StartMicroBatch(int micro_batch);
  void FinishStep(const StepMetrics& metrics, std::int64_t step_tokens);
  void CountNonFinite();

 private:
  void Publish();

  std::unique_ptr<ProgressWriter> page_;
  const Clock& clock_;
  const Communicator* communicator_ = nullptr;
  TimePoint phase_since_;
};

}  // namespace muster
