// Whether a job whose attempt failed gets another one, and when.
//
// An attempt made progress when a newer checkpoint was committed during it or it finished a step
// that no attempt before it had reached; so the same failure at the same step twice counts, however
// long each run took. Attempts in a row without progress use up the budget, one with progress
// refunds it. An attempt that ended because its nodes were taken down is not counted. Causes that
// no other attempt can mend (bad input, NaN, out of memory) end the job.
//
// Pure; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"

namespace muster {

struct RestartInput {
  bool retryable = true;
  bool progressed = false;            // the attempt that ended
  bool charged = true;                // false: ended by no fault of the job
  int attempts_without_progress = 0;  // in a row, before it
  int max_without_progress = 3;
  Duration first_backoff = std::chrono::milliseconds(500);
  Duration max_backoff = std::chrono::seconds(10);
};

struct RestartDecision {
  bool restart = false;
  Duration delay = Duration::zero();  // before the next attempt
  int attempts_without_progress = 0;  // in a row, with it
  std::string why_not;                // a clause to put before the cause; empty if there is none
};

RestartDecision DecideRestart(const RestartInput& input);

}  // namespace muster
