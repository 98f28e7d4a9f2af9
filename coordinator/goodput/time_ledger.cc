#include "coordinator/goodput/time_ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace muster {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// An impossible figure from outside counts as zero; the limit is far below what sums of ranks could
// hold.
std::int64_t SaneMicros(double seconds) {
  constexpr double kMost = 1e6;
  return std::isfinite(seconds) ? std::llround(std::clamp(seconds, 0.0, kMost) * 1e6) : 0;
}

// The share of `micros`, spread evenly over steps `from` + 1 to `to`, of the steps up to
// `furthest`.
std::int64_t Repeated(std::int64_t micros, Step from, Step to, Step furthest) {
  const Step repeated = std::clamp<Step>(furthest - from, 0, to - from);
  if (repeated == to - from) return micros;
  const double share = static_cast<double>(repeated) / static_cast<double>(to - from);
  return std::clamp<std::int64_t>(std::llround(static_cast<double>(micros) * share), 0, micros);
}

}  // namespace

void TimeLedger::Begin(const GoodputUsage& usage, Step step, TimePoint now,
                       std::int64_t now_unix_ms) {
  micros_ = usage.micros;
  doing_ = usage.doing;
  step_ = step;
  // A clock that was set back must not book a time twice.
  const std::int64_t gap =
      usage.until_unix_ms > 0 ? std::max<std::int64_t>(0, now_unix_ms - usage.until_unix_ms) : 0;
  at_ = now - milliseconds(gap);
}

bool TimeLedger::Transition(TimeUse doing, Step step, TimePoint now) {
  const bool changes = doing != doing_;
  if (!doing_.training) {
    Add(doing_.state, OpenMicros(now));
    MoveTo(now);
  } else if (changes) {
    LeaveTraining(doing.state == TimeState::kRecovery ? TimeState::kRecovery : TimeState::kIdle,
                  now);
  }
  if (changes && doing.training) step_ = step;
  doing_ = doing;
  return changes;
}

void TimeLedger::ObserveStep(Step step, Step furthest, TimePoint at) {
  if (!doing_.training || step <= step_) return;
  std::int64_t rest = 0;
  AccrueWithCheckpoints(OpenMicros(at), &rest);
  const std::int64_t repeated = Repeated(rest, step_, step, furthest);
  Add(TimeState::kRecompute, repeated);
  Add(TimeState::kStep, rest - repeated);
  step_ = step;
  MoveTo(at);
}

void TimeLedger::ObserveCheckpoint(double seconds) {
  if (doing_.training) checkpoint_micros_ += SaneMicros(seconds);
}

void TimeLedger::ObserveHang(double seconds) {
  if (doing_.training) hang_micros_ = SaneMicros(seconds);
}

GoodputUsage TimeLedger::Usage(TimePoint now, std::int64_t now_unix_ms) const {
  return {micros_, now_unix_ms - duration_cast<milliseconds>(now - at_).count(), doing_};
}

Goodput TimeLedger::At(TimePoint now) const {
  Goodput goodput{micros_};
  const std::int64_t open = OpenMicros(now);
  (doing_.training ? goodput.under_way_micros : Figure(goodput.micros, doing_.state)) += open;
  return goodput;
}

Goodput TimeLedger::StoredAt(const GoodputUsage& stored, TimePoint now) const {
  return doing_.training ? Goodput{stored.micros} : At(now);
}

std::int64_t TimeLedger::OpenMicros(TimePoint now) const {
  return std::max<std::int64_t>(0, duration_cast<microseconds>(now - at_).count()) * doing_.ranks;
}

void TimeLedger::Add(TimeState state, std::int64_t micros) { Figure(micros_, state) += micros; }

// The ranks' report of a checkpoint may arrive with the one after the next step: the rest is kept
// for that.
void TimeLedger::AccrueWithCheckpoints(std::int64_t micros, std::int64_t* rest) {
  const std::int64_t saved = std::min(checkpoint_micros_, micros);
  checkpoint_micros_ -= saved;
  Add(TimeState::kCheckpoint, saved);
  *rest = micros - saved;
}

void TimeLedger::LeaveTraining(TimeState rest_state, TimePoint now) {
  const std::int64_t open = OpenMicros(now);
  const std::int64_t hung = std::min(open, hang_micros_ * doing_.ranks);
  Add(TimeState::kHang, hung);
  std::int64_t rest = 0;
  AccrueWithCheckpoints(open - hung, &rest);
  Add(rest_state, rest);
  checkpoint_micros_ = 0;
  hang_micros_ = 0;
  MoveTo(now);
}

// In whole microseconds, so that the remainder of one is in the next time.
void TimeLedger::MoveTo(TimePoint now) {
  at_ += std::max(microseconds(0), duration_cast<microseconds>(now - at_));
}

}  // namespace muster
