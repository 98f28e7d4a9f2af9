// Tracer: where a rank's time goes, as spans on the trainer's thread.
//
// The engine and the loop open a span for everything that they do or wait for; a tracer that is
// not recording costs one branch per span. loop/profiler.h records the steps that a job asks for.
//
// One thread, the trainer's.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

// A column of the profile's table. Spans of one phase do not overlap those of another, except that
// waits lie within the phase that waits and are taken off it.
enum class TracePhase : std::uint8_t {
  kData,
  kGatherWait,
  kForward,
  kLoss,  // head and cross entropy, forward and backward
  kBackward,
  kReduceWait,
  kOptimizer,
  kCheckpoint,
};
inline constexpr int kTracePhaseCount = 8;
std::string_view TracePhaseName(TracePhase phase);

class Tracer {
 public:
  virtual ~Tracer() = default;
  bool recording() const { return recording_; }
  // `name` is what the span works on ("block.3"); it is copied. -1: no unit of its own.
  virtual void Begin(TracePhase phase, std::string_view name, int unit) = 0;
  virtual void End() = 0;

 protected:
  bool recording_ = false;
};

// Spans nest: the innermost one counts.
class TraceSpan {
 public:
  TraceSpan(Tracer* tracer, TracePhase phase, std::string_view name, int unit = -1)
      : tracer_(tracer != nullptr && tracer->recording() ? tracer : nullptr) {
    if (tracer_ != nullptr) tracer_->Begin(phase, name, unit);
  }
  ~TraceSpan() {
    if (tracer_ != nullptr) tracer_->End();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Tracer* const tracer_;
};

}  // namespace muster
