// What to do about a job on a node that has just sent Hello: the table that reconciles the store
// with the processes that really run, after a broken stream and after a restart of either side.
//
// Pure; any thread. docs/job-lifecycle.md sums it up.
#pragma once

#include "common/base/ids.h"
#include "coordinator/domain/lifecycle.h"

namespace muster {

// The job in the store, and what the node hosts of it.
struct ReconcileInput {
  bool job_known = false;
  bool job_over = false;
  bool waiting = false;       // no attempt is live, and another will be made
  bool in_gang = false;       // the node belongs to the live attempt
  bool spare = false;         // and holds no ranks of it
  Generation generation = 0;  // of the live attempt; the job's newest if none is live
  AttemptState attempt = AttemptState::kEnded;

  bool hosted = false;  // a guardian of the job is there
  Generation hosted_generation = 0;
  bool prepared = false;
  bool launched = false;
  bool quiesced = false;
  bool kept = false;  // processes are parked there; they are of no generation
};

enum class ReconcileAction {
  kNothing,
  kRelease,        // no job needs this guardian
  kReleaseAhead,   // it runs a generation of decisions that were lost, on a node of the gang
  kAbortStale,     // processes of an attempt that is over; their slots wait for Quiesced
  kHold,           // parked for the job's next attempt: their slots are the job's
  kPrepare,        // send Prepare (again)
  kAdoptPrepared,  // as if Prepared had just arrived
  kLaunch,         // send Launch (again)
  kPrepareAndLaunch,
  kAdopt,     // take over what it hosts: its ranks were not interrupted
  kAbort,     // send Abort (again)
  kQuiesced,  // as if Quiesced had just arrived
  kMissing,   // the ranks that should be there are gone
};

ReconcileAction Reconcile(const ReconcileInput& input);

}  // namespace muster
