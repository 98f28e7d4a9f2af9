#include "trainer/train/training_log.h"

#include <cstdio>
#include <utility>

#include "common/base/files.h"

namespace muster {

Status TrainingLog::Open(const RunLogs::Options& options, Step step) {
  line_time_ = run_.clock.Now();
  line_step_ = step;
  const std::string directory = run_.output_dir();
  MUSTER_RETURN_IF_ERROR(MakeDirectories(directory));
  MUSTER_ASSIGN_OR_RETURN(RunLogs logs, RunLogs::Open(directory, options));
  logs_ = std::make_shared<RunLogs>(std::move(logs));
  return OkStatus();
}

// Empty: not at this step.
std::string TrainingLog::LineOf(const StepMetrics& metrics) {
  const Step every = run_.train().logging_every;
  if (metrics.step % every != 0 && metrics.step != metrics.max_steps) return {};
  const TimePoint now = run_.clock.Now();
  const double seconds_per_step =
      ToSeconds(now - line_time_) / static_cast<double>(metrics.step - line_step_);
  line_time_ = now;
  line_step_ = metrics.step;
  return ProgressLine(metrics, seconds_per_step) + "\n";
}

std::string TrainingLog::LineOf(const GeneratedSample& sample) {
  return "sample  \"" + sample.prompt + "\" -> \"" + sample.text + "\"\n";
}

void TrainingLog::Add(std::function<Status(RunLogs&)> write, std::string line) {
  const bool taken = run_.lines.Add(
      [logs = logs_, write = std::move(write), line = std::move(line), out = run_.out] {
        if (!line.empty()) {
          std::fputs(line.c_str(), out);
          std::fflush(out);
        }
        return write(*logs);
      });
  if (!taken) return GiveUp("the disk has not taken the lines of the last steps");
  run_.lines.Await(Deadline::After(kLineTimeout));
  const Status logged = run_.lines.TakeFailure();
  if (!logged.ok()) GiveUp(logged.ToString());
}

void TrainingLog::GiveUp(const std::string& reason) {
  run_.Note("warning", reason + "; metrics are no longer written");
  Finish(Duration::zero());
}

// The files are closed where it is written, since that may take as long.
void TrainingLog::Finish(Duration limit) {
  if (!logs_) return;
  const bool written = run_.lines.Await(Deadline::After(limit));
  const std::size_t lost = written ? 0 : run_.lines.Forget();
  run_.lines.Add([logs = std::exchange(logs_, nullptr)] { return OkStatus(); });
  const Status failed = run_.lines.TakeFailure();
  if (!failed.ok()) run_.Note("warning", failed.ToString());
  if (lost == 0) return;
  run_.Note("warning", std::to_string(lost) +
                           " lines of metrics.jsonl are lost: the disk has not taken them in time");
}

}  // namespace muster
