// Requests of clients as events of the controller; files in them are parsed here, which may take
// long. Who asks, and whether that is allowed, is the service's affair.
//
// Pure functions; any thread.
#pragma once

#include "coordinator/access/actor.h"
#include "coordinator/control/events.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// About a job, as the request names it: the service finds the job and sets its id and the actor.
CancelRequested EventOf(const v1::CancelRequest& request);
SuspendRequested EventOf(const v1::SuspendRequest& request);
ResumeRequested EventOf(const v1::ResumeRequest& request);
UpdateRequested EventOf(const v1::UpdateJobRequest& request);
HoldRequested EventOf(const v1::HoldJobRequest& request);
ReleaseRequested EventOf(const v1::ReleaseJobRequest& request);

DrainRequested EventOf(const v1::DrainRequest& request, const Actor& actor);
UndrainRequested EventOf(const v1::UndrainRequest& request, const Actor& actor);
InjectFaultRequested EventOf(const v1::InjectFaultRequest& request, const Actor& actor);

SubmitRequested EventOf(const v1::SubmitRequest& request, const Actor& actor, JobId new_id);
QueuesApplyRequested EventOf(const v1::ApplyQueuesRequest& request, const Actor& actor);
UsersApplyRequested EventOf(const v1::ApplyUsersRequest& request, const Actor& actor);

}  // namespace muster
