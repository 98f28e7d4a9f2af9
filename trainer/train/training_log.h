// TrainingLog: what rank 0 writes of a training: its RunLogs, and for each entry a line for people.
//
// The LineWriter writes, so that a disk that does not answer holds up no step for longer than
// kLineTimeout: a step is logged before it is sealed, or would not be done again if its line were
// lost with the process. A log that cannot be written is given up with a warning: figures are not
// worth a training run. On other ranks, and once given up, nothing is written.
//
// Owned by the trainer; its thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "trainer/report/run_logs.h"
#include "trainer/train/run_context.h"

namespace muster {

class TrainingLog {
 public:
  // Less long than a standstill may last.
  static constexpr Duration kLineTimeout = std::chrono::seconds(1);
  static constexpr Duration kEndTimeout = std::chrono::seconds(10);  // at the end of the job

  // `run` outlives the log.
  explicit TrainingLog(const RunContext& run) : run_(run) {}

  // Rank 0's; training begins after `step`.
  Status Open(const RunLogs::Options& options, Step step);
  // StepMetrics, EvalMetrics, or a GeneratedSample.
  template <typename Entry>
  void Write(const Entry& entry) {
    if (logs_) Add([entry](RunLogs& logs) { return logs.Write(entry); }, LineOf(entry));
  }
  // Closes it, when all is written or `limit` has passed.
  void Finish(Duration limit);

 private:
  void Add(std::function<Status(RunLogs&)> write, std::string line);
  void GiveUp(const std::string& reason);
  std::string LineOf(const StepMetrics& metrics);
  static std::string LineOf(const EvalMetrics& metrics) { return EvalLine(metrics) + "\n"; }
  static std::string LineOf(const GeneratedSample& sample);

  const RunContext& run_;
  std::shared_ptr<RunLogs> logs_;  // used by the writer of lines; null: not written
  TimePoint line_time_;            // of the last step's line for people
  Step line_step_ = 0;
};

}  // namespace muster
