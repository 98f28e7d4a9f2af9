// The controller's views as messages of proto/muster/v1/client_api.proto. The messages of workers
// are common/wire/codec.h's. Pure functions; any thread.
#pragma once

#include <functional>

#include "common/base/result.h"
#include "common/wire/messages.h"
#include "coordinator/control/controller.h"
#include "coordinator/domain/goodput.h"
#include "coordinator/domain/records.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

enum class JobDetail {
  kSummary,  // without ranks, attempts, checkpoints, progress and specification
  kFull,
};
// Its usage is as of `now`.
v1::Job ToProto(const JobView& view, JobDetail detail, TimePoint now);
v1::Goodput ToProto(const Goodput& goodput);
v1::Event ToProto(const EventRecord& event);
v1::Node ToProto(const NodeView& view);
v1::ShowQueuesResponse ToProto(const QueuesView& view);
// Fills in what the caller may see. Fails as ShowUsage does.
Status FillUsage(const QueueDays& days, const QueueTree& tree, const v1::ShowUsageRequest& request,
                 const std::function<bool(const QueueDayRecord&)>& may_see,
                 v1::ShowUsageResponse* response);
v1::ShowUsersResponse ToProto(const UsersView& view);
void FillWhoAmI(const Actor& actor, const UserDirectory& users, v1::WhoAmIResponse* response);
v1::Amounts ToProto(const Amounts& amounts);
v1::Ceiling CeilingToProto(const Amounts& amounts);
v1::CheckpointInfo ToProto(const CheckpointRecord& checkpoint);
v1::ExplainJobResponse ToProto(const WhyQuestion& question, const Explanation& explanation);

}  // namespace muster
