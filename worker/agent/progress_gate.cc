#include "worker/agent/progress_gate.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/control_pipe/progress_page.h"

namespace muster::worker {
namespace {

// A third of the shortest hang limit (docs/recovery.md, "Hang").
constexpr std::chrono::milliseconds kStandstill{900};
// A standstill is reported again after this part of its duration: up to 3 s with every sample,
// because a hang may be named then, and less and less often if a long phase is quiet.
constexpr int kStandstillShare = 60;

// The same for all phases within a step.
std::optional<TrainPhase> LifecyclePhase(std::optional<TrainPhase> phase) {
  return phase && IsWithinStep(*phase) ? TrainPhase::kData : phase;
}

// A process runs and sleeps many times in a second.
std::string_view LastingState(std::string_view state) {
  return state == "S" || state == "I" ? "R" : state;
}

// The slowest of the steps that were finished between two samples of a process. If there are
// several, only the newest and the sum are known; all but one of the others are assumed to be as
// fast as the newest.
double SlowestStep(const RankProgress& before, const RankProgress& now) {
  const std::int64_t steps = now.steps_done - before.steps_done;
  if (steps <= 0) return 0;
  const double sum =
      now.busy_seconds + now.wait_seconds - before.busy_seconds - before.wait_seconds;
  const double usual = std::min(now.step_seconds, sum / static_cast<double>(steps));
  return std::max(now.step_seconds, sum - static_cast<double>(steps - 1) * usual);
}

// How long a node's ranks stand still, as evidence of a hang. A program that has never stored into
// its page does not count, unless it is stopped.
Duration StandstillOf(const RankProgress& rank) {
  if (rank.stores == 0 && rank.process_state != "T") return Duration::zero();
  return FromSeconds(rank.quiet_seconds);
}

Duration PauseAt(Duration standstill, Duration interval) {
  return standstill < kStandstill ? interval : std::min(interval, standstill / kStandstillShare);
}

}  // namespace

void ProgressGate::EndRank(int rank) {
  known_[rank].ended = true;
  urgent_ = true;
}

bool ProgressGate::Update(Known& known, RankProgress& sample, TimePoint now) {
  const bool first = known.samples == 0;
  const RankProgress& before = known.sample;
  const bool changed = first || LifecyclePhase(before.phase) != LifecyclePhase(sample.phase) ||
                       LastingState(before.process_state) != LastingState(sample.process_state);
  if (first || HasMoved(before, sample)) {
    known.moved_at = now;
    known.samples = 0;
  }
  known.slowest_step = std::max(known.slowest_step, SlowestStep(before, sample));
  sample.quiet_seconds = ToSeconds(now - known.moved_at);
  sample.quiet_samples = ++known.samples;
  sample.slowest_step_seconds = known.slowest_step;
  known.sample = sample;
  return changed;
}

bool ProgressGate::Observe(std::vector<RankProgress>* ranks, TimePoint now, Duration interval) {
  bool send = std::exchange(urgent_, false);
  bool any_lives = false;
  Duration standstill = Duration::max();  // of the rank that moved last
  for (RankProgress& sample : *ranks) {
    Known& known = known_[sample.rank];
    if (known.ended) continue;
    any_lives = true;
    send = Update(known, sample, now) || send;
    standstill = std::min(standstill, StandstillOf(sample));
  }
  send = send || (any_lives && now - sent_at_ >= PauseAt(standstill, interval));
  if (!send) return false;
  sent_at_ = now;
  for (auto& [number, known] : known_) known.slowest_step = 0;
  return true;
}

}  // namespace muster::worker
