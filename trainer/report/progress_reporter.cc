#include "trainer/report/progress_reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

template <typename Enum>
constexpr std::size_t Index(Enum value) {
  return static_cast<std::size_t>(value);
}

// Nothing: no part of a step.
std::optional<StepPart> PartOf(TrainPhase phase) {
  switch (phase) {
    case TrainPhase::kData: return StepPart::kData;
    case TrainPhase::kForward: return StepPart::kForward;
    case TrainPhase::kBackward: return StepPart::kBackward;
    case TrainPhase::kOptimizer: return StepPart::kOptimizer;
    case TrainPhase::kCheckpoint: return StepPart::kCheckpoint;
    default: return std::nullopt;
  }
}

}  // namespace

std::uint64_t ResidentBytes() {
  const UniqueFd fd(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  if (!fd.valid() || ::read(fd.get(), text, sizeof text - 1) <= 0) return 0;
  const char* resident = std::strchr(text, ' ');
  if (resident == nullptr) return 0;
  return std::strtoull(resident, nullptr, 10) * static_cast<std::uint64_t>(::getpagesize());
}

ProgressReporter::ProgressReporter(std::shared_ptr<ProgressWriter> page, const Clock& clock,
                                   std::unique_ptr<FiguresWriter> figures)
    : page_(std::move(page)),
      figures_page_(std::move(figures)),
      clock_(clock),
      phase_since_(clock.Now()) {
  Publish();
}

void ProgressReporter::EnterPhase(TrainPhase phase) {
  ProgressValues& values = page_->values();
  const TimePoint now = clock_.Now();
  const double seconds = ToSeconds(now - phase_since_);
  values.phase_seconds[static_cast<std::size_t>(values.phase)] += seconds;
  CountPart(values.phase, seconds);
  phase_since_ = now;
  values.phase = phase;
  Publish();
}

void ProgressReporter::CountPart(TrainPhase phase, double seconds) {
  const std::uint64_t waited = page_->wait_nanoseconds();
  // Less than before: a group that had waited is gone.
  const double wait =
      std::min(seconds, 1e-9 * static_cast<double>(waited - std::min(waited, waited_at_phase_)));
  waited_at_phase_ = waited;
  if (phase == TrainPhase::kCheckpoint)
    figures_.time_seconds[Index(RankTime::kCheckpoint)] += seconds;
  const std::optional<StepPart> part = PartOf(phase);
  if (!part) return;
  figures_.part_seconds[Index(*part)] += seconds - wait;
  figures_.part_seconds[Index(StepPart::kCommWait)] += wait;
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

void ProgressReporter::FinishStep(const StepMetrics& metrics, const StepWork& work) {
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
  values.tokens_done += work.tokens;
  values.rss_bytes = metrics.rss_bytes;
  const double wait_seconds = std::min(ToSeconds(waited()), metrics.step_seconds);
  values.wait_seconds += wait_seconds;
  values.busy_seconds += metrics.step_seconds - wait_seconds;
  values.step_seconds_sum += metrics.step_seconds;
  const auto bucket =
      std::lower_bound(kStepSecondsBounds.begin(), kStepSecondsBounds.end(), metrics.step_seconds);
  ++values.step_seconds_buckets[static_cast<std::size_t>(bucket - kStepSecondsBounds.begin())];
  figures_.samples_done += work.samples;
  figures_.flops_done += work.flops;
  figures_.mfu = metrics.mfu;
  figures_.last_step_unix_ms = clock_.UnixMillis();
  if (metrics.experts) {
    const LayerLoad& worst = metrics.experts->worst;
    figures_.routers = {.experts = metrics.experts->experts,
                        .largest_share = worst.largest_share,
                        .smallest_share = worst.smallest_share,
                        .entropy = worst.entropy,
                        .idle = worst.idle};
  }
  if (metrics.step <= furthest_step_) {
    figures_.time_seconds[Index(RankTime::kRecompute)] += metrics.step_seconds;
  } else {
    furthest_step_ = metrics.step;
    figures_.time_seconds[Index(RankTime::kStep)] += metrics.step_seconds - wait_seconds;
    figures_.time_seconds[Index(RankTime::kWait)] += wait_seconds;
  }
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

void ProgressReporter::CountCollectiveError(CollectiveError error) {
  ++figures_.collective_errors[Index(error)];
  Publish();
}

void ProgressReporter::CountSocketFallback() {
  ++figures_.socket_fallbacks;
  Publish();
}

void ProgressReporter::SetSaved(const SaveSeconds& write, std::uint64_t bytes) {
  figures_.write = write;
  figures_.checkpoint_bytes = bytes;
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
  if (!figures_page_) return;
  figures_.SetCollectives(page_->operations());
  figures_page_->Publish(figures_);
}

}  // namespace muster
