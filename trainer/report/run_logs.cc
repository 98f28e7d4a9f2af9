#include "trainer/report/run_logs.h"

#include <utility>
#include <vector>

namespace muster {
namespace {

std::vector<EventScalar> Curves(const StepMetrics& m) {
  std::vector<EventScalar> scalars = {
      {"train/loss", m.loss},
      {"train/grad_norm", m.grad_norm},
      {"train/learning_rate", m.lr},
      {"train/epoch", m.epoch},
      {"speed/step_seconds", m.step_seconds},
      {"speed/tokens_per_second", m.tokens_per_second},
      {"memory/rank0_host_bytes", static_cast<double>(m.rss_bytes)},
      {"gang/world_size", static_cast<double>(m.world_size)},
      {"gang/generation", static_cast<double>(m.generation)},
  };
  if (m.device_capacity_bytes > 0)
    scalars.push_back({"memory/rank0_device_bytes", static_cast<double>(m.device_bytes)});
  if (m.mfu > 0) scalars.push_back({"speed/mfu", m.mfu});
  if (m.experts) {
    const LayerLoad& worst = m.experts->worst;
    scalars.push_back({"experts/largest_share", worst.largest_share});
    scalars.push_back({"experts/smallest_share", worst.smallest_share});
    scalars.push_back({"experts/entropy", worst.entropy});
    scalars.push_back({"experts/idle", static_cast<double>(worst.idle)});
  }
  return scalars;
}

}  // namespace

Result<RunLogs> RunLogs::Open(const std::string& output_dir, const Options& options) {
  const std::string dir = output_dir + "/";
  MUSTER_ASSIGN_OR_RETURN(MetricsLog steps, MetricsLog::Open(dir + "metrics.jsonl", options.lock));
  RunLogs logs(std::move(steps), EventLog(dir + "tensorboard", options.generation),
               options.experts_every);
  // The lock of the steps is theirs too.
  if (options.evaluations) {
    MUSTER_ASSIGN_OR_RETURN(logs.evaluations_,
                            MetricsLog::Open(dir + "eval.jsonl", MetricsLock::kNone));
  }
  if (options.samples) {
    MUSTER_ASSIGN_OR_RETURN(logs.samples_,
                            MetricsLog::Open(dir + "samples.jsonl", MetricsLock::kNone));
  }
  if (options.experts_every > 0) {
    MUSTER_ASSIGN_OR_RETURN(logs.experts_,
                            MetricsLog::Open(dir + "experts.jsonl", MetricsLock::kNone));
  }
  return logs;
}

Status RunLogs::Write(const StepMetrics& metrics) {
  Status status = steps_.Append(metrics);
  const bool due = metrics.step == metrics.max_steps ||
                   (experts_every_ > 0 && metrics.step % experts_every_ == 0);
  if (experts_ && metrics.experts && due) {
    const Status experts =
        experts_->AppendLine(ExpertsJson(*metrics.experts, metrics.step, metrics.generation));
    if (status.ok()) status = experts;
  }
  const Status curves = events_.AppendStep(metrics.step, Curves(metrics));
  return status.ok() ? curves : status;
}

Status RunLogs::Write(const EvalMetrics& metrics) {
  Status status;
  if (evaluations_) status = evaluations_->AppendLine(EvalJson(metrics));
  const Status curves =
      events_.AppendScalars(metrics.step, {{"eval/loss", metrics.loss},
                                           {"eval/perplexity", metrics.perplexity},
                                           {"eval/accuracy", metrics.accuracy}});
  return status.ok() ? curves : status;
}

Status RunLogs::Write(const GeneratedSample& sample) {
  Status status;
  if (samples_) status = samples_->AppendLine(SampleJson(sample));
  const Status shown = events_.AppendText(sample.step, SampleTag(sample.prompt), sample.text);
  return status.ok() ? shown : status;
}

}  // namespace muster
