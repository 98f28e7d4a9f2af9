// Profiler: the tracer that a job asks for with `profile: {start, steps}`. It records the spans of
// these steps in memory; profile_report.h makes a table and a trace file of them.
//
// Sums are exact over all spans; events for the trace are kept up to a bound, so that a profile of
// many steps takes a few megabytes and no more. Outside of the profiled steps a span costs one
// branch. Times are those of the trainer's thread: on a GPU, of issuing work and waiting for it.
//
// Owned by the trainer; its thread alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/tracer.h"

namespace muster {

// A span, or a whole step, as it goes into the trace.
struct TraceEvent {
  Duration begin{};  // since the first profiled step began
  Duration length{};
  TracePhase phase = TracePhase::kData;
  bool is_step = false;
  int unit = -1;
  std::string name;
};

// What was measured, summed up over the profiled steps.
struct ProfileTotals {
  std::int64_t steps = 0;
  double seconds = 0;  // of the steps, all phases and what belongs to none
  std::array<double, kTracePhaseCount> phases = {};  // seconds without the spans within
  // By unit: seconds of forward, loss, backward and optimizer without the waits within.
  struct Unit {
    std::string name;
    double seconds = 0;
  };
  std::vector<Unit> units;
};

class Profiler final : public Tracer {
 public:
  static constexpr std::size_t kMaxEvents = 32'768;

  // `clock` outlives the profiler. spec.start 0: nothing is ever recorded.
  Profiler(const ProfileSpec& spec, const Clock& clock) : spec_(spec), clock_(clock) {}

  // Steps count from 1. True: `step` is the first that is recorded here, now or after a resume.
  bool StartsWith(Step step) const { return totals_.steps == 0 && !recording_ && Covers(step); }
  void BeginStep(Step step);
  void EndStep();
  // Whether the job asks for this step.
  bool Covers(Step step) const {
    return spec_.start > 0 && step >= spec_.start && step < spec_.start + spec_.steps;
  }

  void Begin(TracePhase phase, std::string_view name, int unit) override;
  void End() override;

  const ProfileTotals& totals() const { return totals_; }
  Step first_step() const { return first_step_; }
  const std::vector<TraceEvent>& events() const { return events_; }
  // Spans beyond kMaxEvents.
  std::int64_t events_left_out() const { return events_left_out_; }

 private:
  struct OpenSpan {
    TracePhase phase;
    int unit;
    std::string name;
    TimePoint begin;
    Duration within{};  // spent in the spans inside
  };

  void Keep(TraceEvent event);
  void AddToUnit(const OpenSpan& span, double seconds);

  const ProfileSpec spec_;
  const Clock& clock_;
  ProfileTotals totals_;
  std::vector<TraceEvent> events_;
  std::int64_t events_left_out_ = 0;
  std::vector<OpenSpan> open_;
  Step step_ = 0;
  Step first_step_ = 0;
  TimePoint origin_;
  TimePoint step_begin_;
};

}  // namespace muster
