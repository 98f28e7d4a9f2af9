#include "coordinator/control/restart_policy.h"

#include <algorithm>
#include <csignal>

namespace muster {
namespace {

// Signals that the program itself causes; others are sent from outside.
bool FromWithin(int signal) {
  switch (signal) {
    case SIGILL:
    case SIGTRAP:
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGSEGV:
    case SIGSYS: return true;
    default: return false;
  }
}

bool MayRecur(const AttemptRecord& attempt) {
  if (attempt.failed_rank < 0 || attempt.resumed_step < 0) return false;
  if (attempt.failed_rank >= static_cast<int>(attempt.ranks.size())) return false;
  switch (attempt.cause_kind) {
    case CauseKind::kRankExited:
    case CauseKind::kOutOfMemory: return true;
    case CauseKind::kRankKilled:
      return FromWithin(
          attempt.ranks[static_cast<std::size_t>(attempt.failed_rank)].end.exit.signal);
    default: return false;
  }
}

}  // namespace

bool IsSameFault(const AttemptRecord& before, const AttemptRecord& now) {
  return MayRecur(before) && MayRecur(now) && before.cause_kind == now.cause_kind &&
         before.failed_rank == now.failed_rank && before.ranks.size() == now.ranks.size() &&
         before.last_step == now.last_step;
}

RestartDecision DecideRestart(const RestartInput& input) {
  RestartDecision decision;
  const int before = input.progressed ? 0 : input.attempts_without_progress;
  decision.attempts_without_progress = before + (input.progressed || !input.charged ? 0 : 1);
  if (!input.retryable) return decision;
  if (input.same_fault) {
    decision.why_not = "the same fault at the same step twice";
    return decision;
  }
  if (input.memory_again && !input.progressed) {
    decision.why_not = "out of memory twice without progress";
    return decision;
  }
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
  // The first failure without progress is retried at once: most such faults are transient.
  const int failures = decision.attempts_without_progress;
  if (failures >= 2) {
    decision.delay = std::min<Duration>(input.first_backoff * (1LL << std::min(failures - 2, 20)),
                                        input.max_backoff);
  }
  return decision;
}

}  // namespace muster
