// Whether a job whose attempt failed gets another one, and when.
//
// An attempt made progress when a newer checkpoint was committed during it or it finished a step
// that no attempt before it had reached. So a repeated failure at the same step counts, however
// long each run took. Attempts in a row without progress use up the budget; one with progress
// because its nodes were taken down is not counted. A cause that no other attempt can mend (bad
// input, NaN) ends the job; so does the same fault at the same step twice, and running out of
// memory twice without progress in between.
//
// Pure; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "coordinator/domain/records.h"

namespace muster {

struct RestartInput {
  bool retryable = true;
  bool progressed = false;            // the attempt that ended
  bool same_fault = false;            // as the attempt's before it
  bool memory_again = false;          // both ran out of memory
  bool charged = true;                // false: the job did not cause the end
  int attempts_without_progress = 0;  // in a row, before it
  int max_without_progress = 3;
  Duration first_backoff = std::chrono::milliseconds(500);
  Duration max_backoff = std::chrono::seconds(10);
};

// The same cause in the same rank after the same finished step of two attempts that had loaded
// their state, and neither was ended from outside (an external signal, a lost node, a peer). Such a
// fault returns on every retry.
bool IsSameFault(const AttemptRecord& before, const AttemptRecord& now);

struct RestartDecision {
  bool restart = false;
  Duration delay = Duration::zero();  // before the next attempt
  int attempts_without_progress = 0;  // in a row, with it
  std::string why_not;                // a clause to put before the cause; empty if there is none
};

RestartDecision DecideRestart(const RestartInput& input);

}  // namespace muster
