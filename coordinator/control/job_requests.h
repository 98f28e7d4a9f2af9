// Client requests for jobs: submit, cancel, suspend, resume, update, hold, release. A submission is
// checked, recorded, and acknowledged once that is durable.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include "coordinator/control/transaction.h"
#include "coordinator/control/views.h"

namespace muster::control {

// A job as its owner's submit would add it; fails where that would be refused. `sees`: the jobs
// that the refusal may name.
Result<JobEntry> NewJob(const State& state, const ControllerOptions& options, const Now& now,
                        const JobSpec& spec, const JobId& id, const std::string& owner,
                        const JobFilter& sees);

void On(Transaction& tx, const SubmitRequested& request);
void On(Transaction& tx, const CancelRequested& request);
void On(Transaction& tx, const SuspendRequested& request);
void On(Transaction& tx, const ResumeRequested& request);
void On(Transaction& tx, const UpdateRequested& request);
void On(Transaction& tx, const HoldRequested& request);
void On(Transaction& tx, const ReleaseRequested& request);

}  // namespace muster::control
