#include "coordinator/control/reconcile.h"

namespace muster {
namespace {

ReconcileAction OutsideGang(const ReconcileInput& input) {
  if (!input.hosted) return ReconcileAction::kNothing;
  // A guardian ahead of the store belongs to decisions that were lost; it cannot be continued.
  if (input.hosted_generation > input.generation) return ReconcileAction::kRelease;
  if (input.kept && input.waiting && input.hosted_generation == input.generation) {
    return ReconcileAction::kHold;
  }
  return input.quiesced && !input.kept ? ReconcileAction::kNothing : ReconcileAction::kAbortStale;
}

ReconcileAction CurrentGeneration(const ReconcileInput& input) {
  switch (input.attempt) {
    case AttemptState::kReserving:
    case AttemptState::kPreparing:
      if (!input.prepared) return ReconcileAction::kPrepare;
      // Its guardian has ended since: a Launch would find nothing to launch.
      return input.quiesced ? ReconcileAction::kMissing : ReconcileAction::kAdoptPrepared;
    case AttemptState::kLaunching:
      if (input.launched) return ReconcileAction::kAdopt;
      if (input.quiesced) return ReconcileAction::kMissing;
      return input.prepared ? ReconcileAction::kLaunch : ReconcileAction::kPrepareAndLaunch;
    case AttemptState::kRunning:
      return input.launched ? ReconcileAction::kAdopt : ReconcileAction::kMissing;
    case AttemptState::kAborting:
      return input.quiesced ? ReconcileAction::kQuiesced : ReconcileAction::kAbort;
    case AttemptState::kEnded: break;
  }
  return ReconcileAction::kNothing;
}

ReconcileAction OtherGeneration(const ReconcileInput& input) {
  switch (input.attempt) {
    case AttemptState::kReserving:
    case AttemptState::kPreparing: return ReconcileAction::kPrepare;
    case AttemptState::kLaunching:
      // Both went out together, since the processes of the generation before wait there.
      return input.hosted && input.kept && input.hosted_generation < input.generation
                 ? ReconcileAction::kPrepareAndLaunch
                 : ReconcileAction::kMissing;
    case AttemptState::kRunning: return ReconcileAction::kMissing;
    case AttemptState::kAborting:
      return input.hosted && (!input.quiesced || input.kept) ? ReconcileAction::kAbort
                                                             : ReconcileAction::kQuiesced;
    case AttemptState::kEnded: break;
  }
  return ReconcileAction::kNothing;
}

}  // namespace

ReconcileAction Reconcile(const ReconcileInput& input) {
  if (!input.job_known || input.job_over) {
    return input.hosted ? ReconcileAction::kRelease : ReconcileAction::kNothing;
  }
  if (!input.in_gang || input.attempt == AttemptState::kEnded) return OutsideGang(input);
  // Its guardian refuses every order for an older generation but the Release.
  if (input.hosted && input.hosted_generation > input.generation)
    return ReconcileAction::kReleaseAhead;
  const bool current = input.hosted && input.hosted_generation == input.generation;
  if (input.spare && input.attempt != AttemptState::kAborting) {
    const bool ready = current && input.prepared && !input.quiesced;
    return ready ? ReconcileAction::kAdoptPrepared : ReconcileAction::kPrepare;
  }
  if (current) return CurrentGeneration(input);
  return OtherGeneration(input);
}

}  // namespace muster
