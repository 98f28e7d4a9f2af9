// MetricsLog: <output>/metrics.jsonl, one JSON object per finished step, and the line for people;
// also eval.jsonl and samples.jsonl (eval_metrics.h) and experts.jsonl (expert_load.h) beside it,
// without a lock of their own.
//
// Rank 0's trainer thread. Each line is one write at the end of the file, so that a killed process
// leaves at most its last line torn, which Open removes; a step that is done again appears again.
// A run on its own locks the file (flock) for as long as the log lives, so that a second one in the
// same output directory fails, with kUnavailable, instead of writing the same checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/report/expert_load.h"

namespace muster {

// Metrics of one finished step.
struct StepMetrics {
  Step step = 0;
  Step max_steps = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;   // label tokens since step 0
  std::int64_t samples = 0;  // rows since step 0
  double step_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;  // 0 to 1; 0: not known
  double epoch = 0;
  std::uint64_t sample_chain = 0;
  Generation generation = 0;
  int world_size = 1;
  bool skipped = false;   // not finite, or beyond fp16's range: the weights are as before
  double loss_scale = 1;  // of fp16, after the step
  std::uint64_t rss_bytes = 0;
  std::uint64_t device_bytes = 0;                       // of this rank's GPU in use
  std::uint64_t device_capacity_bytes = 0;              // 0: the rank trains on the host
  std::shared_ptr<const ExpertLoad> experts = nullptr;  // null: the model has none
};

std::string MetricsJson(const StepMetrics& metrics);

enum class MetricsLock {
  kExclusive,  // no other process may have it locked
  kNone,       // a supervisor keeps other writers out
};

// "step    25/200  loss 4.1234  grad 1.23  lr 4.90e-05  12345 tok/s  0.4 GiB  ETA 0:12".
// `seconds_per_step` is the recent mean.
std::string ProgressLine(const StepMetrics& metrics, double seconds_per_step);

class MetricsLog {
 public:
  static Result<MetricsLog> Open(const std::string& path,
                                 MetricsLock lock = MetricsLock::kExclusive);
  Status Append(const StepMetrics& metrics) { return AppendLine(MetricsJson(metrics)); }
  // `json` without a newline.
  Status AppendLine(const std::string& json);

 private:
  MetricsLog(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace muster
