#include "trainer/report/profiler.h"

#include "common/base/check.h"

namespace muster {

void Profiler::BeginStep(Step step) {
  if (!Covers(step)) return;
  const TimePoint now = clock_.Now();
  if (totals_.steps == 0) {
    first_step_ = step;
    origin_ = now;
  }
  step_ = step;
  step_begin_ = now;
  recording_ = true;
}

void Profiler::EndStep() {
  if (!recording_) return;
  MUSTER_CHECK(open_.empty(), "a span that is open beyond its step");
  recording_ = false;
  const Duration length = clock_.Now() - step_begin_;
  totals_.steps += 1;
  totals_.seconds += ToSeconds(length);
  Keep({.begin = step_begin_ - origin_,
        .length = length,
        .is_step = true,
        .name = "step " + std::to_string(step_)});
}

void Profiler::Begin(TracePhase phase, std::string_view name, int unit) {
  open_.push_back({phase, unit, std::string(name), clock_.Now()});
}

void Profiler::End() {
  MUSTER_CHECK(!open_.empty(), "an end without a span");
  OpenSpan span = std::move(open_.back());
  open_.pop_back();
  const Duration length = clock_.Now() - span.begin;
  if (!open_.empty()) open_.back().within += length;
  const double seconds = ToSeconds(length - span.within);
  totals_.phases[static_cast<std::size_t>(span.phase)] += seconds;
  AddToUnit(span, seconds);
  Keep({.begin = span.begin - origin_,
        .length = length,
        .phase = span.phase,
        .unit = span.unit,
        .name = std::move(span.name)});
}

void Profiler::AddToUnit(const OpenSpan& span, double seconds) {
  const bool computes = span.phase == TracePhase::kForward || span.phase == TracePhase::kLoss ||
                        span.phase == TracePhase::kBackward || span.phase == TracePhase::kOptimizer;
  if (span.unit < 0 || !computes) return;
  const auto unit = static_cast<std::size_t>(span.unit);
  if (totals_.units.size() <= unit) totals_.units.resize(unit + 1);
  if (totals_.units[unit].name.empty()) totals_.units[unit].name = span.name;
  totals_.units[unit].seconds += seconds;
}

void Profiler::Keep(TraceEvent event) {
  if (events_.size() < kMaxEvents) {
    events_.push_back(std::move(event));
  } else {
    ++events_left_out_;
  }
}

}  // namespace muster
