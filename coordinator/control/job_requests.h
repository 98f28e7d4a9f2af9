// Client requests for jobs: submit, cancel, suspend, resume, update, hold, release. A submission is
// checked, recorded, and acknowledged once that is durable.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "coordinator/control/transaction.h"

namespace muster::control {

void On(Transaction& tx, const SubmitRequested& request);
void On(Transaction& tx, const CancelRequested& request);
void On(Transaction& tx, const SuspendRequested& request);
void On(Transaction& tx, const ResumeRequested& request);
void On(Transaction& tx, const UpdateRequested& request);
void On(Transaction& tx, const HoldRequested& request);
void On(Transaction& tx, const ReleaseRequested& request);

// Whether jobs may be in the queue, and of the priority class; empty: the default one.
// kInvalidArgument names what there is.
Status CheckQueue(const State& state, const std::string& queue);
Status CheckClass(const State& state, const std::string& priority_class);

}  // namespace muster::control
