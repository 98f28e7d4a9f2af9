// RunLogs: what a run writes of itself into its output directory, for programs and for plots:
// metrics.jsonl, eval.jsonl, samples.jsonl, experts.jsonl (metrics_log.h), and tensorboard/
// (event_log.h).
//
// Rank 0's. Opened by the trainer's thread; written and closed in that of its LineWriter.
// Everything of one entry is written that can be; the first failure is returned.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"
#include "trainer/report/eval_metrics.h"
#include "trainer/report/event_log.h"
#include "trainer/report/metrics_log.h"

namespace muster {

class RunLogs {
 public:
  struct Options {
    MetricsLock lock = MetricsLock::kExclusive;  // of metrics.jsonl, for all of them
    bool evaluations = false;
    bool samples = false;
    Step experts_every = 0;  // steps between lines of experts.jsonl; 0: there is none
    Generation generation = 0;
  };
  static Result<RunLogs> Open(const std::string& output_dir, const Options& options);

  Status Write(const StepMetrics& metrics);
  Status Write(const EvalMetrics& metrics);
  Status Write(const GeneratedSample& sample);

 private:
  RunLogs(MetricsLog steps, EventLog events, Step experts_every)
      : steps_(std::move(steps)), events_(std::move(events)), experts_every_(experts_every) {}

  MetricsLog steps_;
  std::optional<MetricsLog> evaluations_;
  std::optional<MetricsLog> samples_;
  std::optional<MetricsLog> experts_;
  EventLog events_;
  Step experts_every_;
};

}  // namespace muster
