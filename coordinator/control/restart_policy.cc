#include "coordinator/control/restart_policy.h"

#include <algorithm>

namespace muster {

RestartDecision DecideRestart(const RestartInput& input) {
  RestartDecision decision;
  const int before = input.progressed ? 0 : input.attempts_without_progress;
  decision.attempts_without_progress = before + (input.progressed || !input.charged ? 0 : 1);
  if (!input.retryable) return decision;
  if (!input.charged) {
    decision.restart = true;
    return decision;
  }
  if (decision.attempts_without_progress >= input.max_without_progress) {
    decision.why_not = decision.attempts_without_progress == 1
                           ? "an attempt ended without progress and no other is allowed"
                           : std::to_string(decision.attempts_without_progress) +
                                 " attempts in a row ended without progress";
    return decision;
  }
  decision.restart = true;
  // The first failure without progress is retried at once: most of them are weather.
  const int failures = decision.attempts_without_progress;
  if (failures >= 2) {
    decision.delay = std::min<Duration>(input.first_backoff * (1LL << std::min(failures - 2, 20)),
                                        input.max_backoff);
  }
  return decision;
}

}  // namespace muster
