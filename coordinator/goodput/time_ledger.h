// TimeLedger: accounts every rank-second of a job, or every second of a node's unused slots, to
// exactly one state.
//
// A pure state machine over what the job does (TimeUse) and when. While ranks train, the use of the
// time since the newest finished step is unknown until the next one is finished: then it was a
// step, minus what training waited for checkpoints. If training ends instead, it was a hang as far
// as the detector measured one, and otherwise what follows: a recovery, or idle time. All other
// time is booked as it passes. Booked time is never taken back, so the figures only rise.
//
// Times are arguments of one clock; a time before what is accounted adds nothing. Owned by the
// job's or node's entry in the controller, one thread. Every call takes constant time.
#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/domain/goodput.h"

namespace muster {

class TimeLedger {
 public:
  // Continues `usage`: the time between its end and now, in which no coordinator ran, belongs to
  // the activity at its end. If nothing was booked, it begins now. `step`: the newest finished one.
  void Begin(const GoodputUsage& usage, Step step, TimePoint now, std::int64_t now_unix_ms);

  // The job does this from `now` on; true if it did something else before.
  bool Transition(TimeUse doing, Step step, TimePoint now);

  // Has an effect only while the job trains. `step` was finished at `at`; steps up to `furthest`
  // had been finished before.
  void ObserveStep(Step step, Step furthest, TimePoint at);
  // A checkpoint has delayed a rank for `seconds` more.
  void ObserveCheckpoint(double seconds);
  // Nothing has moved for `seconds`; the gang is ended because of it.
  void ObserveHang(double seconds);

  // The usage to store.
  GoodputUsage Usage(TimePoint now, std::int64_t now_unix_ms) const;
  Goodput At(TimePoint now) const;
  // The same without what a coordinator that restarts on `stored` would not know.
  Goodput StoredAt(const GoodputUsage& stored, TimePoint now) const;
  const TimeUse& doing() const { return doing_; }

 private:
  std::int64_t OpenMicros(TimePoint now) const;  // of ranks, not booked yet
  void Add(TimeState state, std::int64_t micros);
  void AccrueWithCheckpoints(std::int64_t micros, std::int64_t* rest);
  void LeaveTraining(TimeState rest_state, TimePoint now);
  void MoveTo(TimePoint now);

  TimeUse doing_;
  RankMicros micros_ = {};
  TimePoint at_;                        // all before is booked
  Step step_ = 0;                       // finished at `at_`, while it trains
  std::int64_t checkpoint_micros_ = 0;  // of ranks, seen and not booked
  std::int64_t hang_micros_ = 0;        // reported by the detector
};

}  // namespace muster
