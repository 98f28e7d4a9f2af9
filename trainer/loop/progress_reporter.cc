#include "trainer/loop/progress_reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/base/unique_fd.h"

namespace muster {

std::uint64_t ResidentBytes() {
  const UniqueFd fd(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  if (!fd.valid() || ::read(fd.get(), text, sizeof text - 1) <= 0) return 0;
  const char* resident = std::strchr(text, ' ');
  if (resident == nullptr) return 0;
  return std::strtoull(resident, nullptr, 10) * static_cast<std::uint64_t>(::getpagesize());
}

ProgressReporter::ProgressReporter(std::shared_ptr<ProgressWriter> page, const Clock& clock)
    : page_(std::move(page)), clock_(clock), phase_since_(clock.Now()) {
  Publish();
}

void ProgressReporter::EnterPhase(TrainPhase phase) {
  ProgressValues& values = page_->values();
  const TimePoint now = clock_.Now();
  values.phase_seconds[static_cast<std::size_t>(values.phase)] += ToSeconds(now - phase_since_);
  phase_since_ = now;
  values.phase = phase;
  Publish();
}

void ProgressReporter::StartAt(Generation generation, Step step, Step max_steps) {
  ProgressValues& values = page_->values();
  values.generation = generation;
  values.step = step;
  values.max_steps = max_steps;
  values.rss_bytes = ResidentBytes();
  Publish();
}

void ProgressReporter::StartMicroBatch(int micro_batch) {
  if (micro_batch == 0) waited_before_ = page_->wait_nanoseconds();
  page_->values().micro_batch = micro_batch;
  Publish();
}

void ProgressReporter::FinishStep(const StepMetrics& metrics, std::int64_t step_tokens) {
  ProgressValues& values = page_->values();
  values.step = metrics.step;
  values.micro_batch = 0;
  values.loss = metrics.loss;
  values.grad_norm = metrics.grad_norm;
  values.learning_rate = metrics.lr;
  values.step_seconds = metrics.step_seconds;
  values.tokens_per_second = metrics.tokens_per_second;
  values.tokens = metrics.tokens;
  values.samples = metrics.samples;
  values.steps_done += 1;
  values.tokens_done += step_tokens;
  values.rss_bytes = metrics.rss_bytes;
  const double wait_seconds = std::min(ToSeconds(waited()), metrics.step_seconds);
  values.wait_seconds += wait_seconds;
  values.busy_seconds += metrics.step_seconds - wait_seconds;
  values.step_seconds_sum += metrics.step_seconds;
  const auto bucket =
      std::lower_bound(kStepSecondsBounds.begin(), kStepSecondsBounds.end(), metrics.step_seconds);
  ++values.step_seconds_buckets[static_cast<std::size_t>(bucket - kStepSecondsBounds.begin())];
  Publish();
}

Duration ProgressReporter::waited() const {
  // Less than before: a group that had waited is gone.
  const std::uint64_t now = std::max(page_->wait_nanoseconds(), waited_before_);
  return std::chrono::nanoseconds(now - waited_before_);
}

void ProgressReporter::CountNonFinite() {
  ++page_->values().nonfinite;
  Publish();
}

void ProgressReporter::SetSnapshotStep(Step step) {
  page_->values().snapshot_step = step;
  Publish();
}

void ProgressReporter::Publish() {
  ProgressValues& values = page_->values();
  values.clock_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(clock_.Now().time_since_epoch()).count();
  page_->Publish();
}

}  // namespace muster
