#include "coordinator/service/client_requests.h"

#include <string>
#include <utility>

#include "common/base/text.h"
#include "common/job_spec/parse.h"
#include "coordinator/queues/queue_file.h"

namespace muster {
namespace {

template <typename Event, typename Request>
Event FileEvent(const Request& request, const Actor& actor) {
  Event event{.actor = actor};
  event.yaml = request.yaml();
  event.expected_version = request.expected_version();
  event.check_only = request.check_only();
  return event;
}

// How errors call it.
template <typename Request>
std::string FileName(const Request& request, const char* otherwise) {
  return request.file().empty() ? otherwise : CutText(request.file(), 256);
}

}  // namespace

CancelRequested EventOf(const v1::CancelRequest& request) {
  return {.job = request.job(), .reason = request.reason()};
}

SuspendRequested EventOf(const v1::SuspendRequest& request) {
  return {.job = request.job(), .by_seconds = request.by_seconds(), .reason = request.reason()};
}

ResumeRequested EventOf(const v1::ResumeRequest& request) { return {.job = request.job()}; }

UpdateRequested EventOf(const v1::UpdateJobRequest& request) {
  UpdateRequested event{.job = request.job()};
  if (request.has_queue()) event.queue = request.queue();
  if (request.has_priority_class()) event.priority_class = request.priority_class();
  if (request.has_priority()) event.priority = request.priority();
  if (request.has_time_limit_seconds()) event.time_limit_seconds = request.time_limit_seconds();
  if (request.has_begin_unix_ms()) event.begin_unix_ms = request.begin_unix_ms();
  event.force = request.force();
  return event;
}

HoldRequested EventOf(const v1::HoldJobRequest& request) {
  return {.job = request.job(), .reason = request.reason()};
}

ReleaseRequested EventOf(const v1::ReleaseJobRequest& request) { return {.job = request.job()}; }

DrainRequested EventOf(const v1::DrainRequest& request, const Actor& actor) {
  return {.actor = actor,
          .node = NodeName{request.node()},
          .by_seconds = request.by_seconds(),
          .reason = request.reason()};
}

UndrainRequested EventOf(const v1::UndrainRequest& request, const Actor& actor) {
  return {.actor = actor, .node = NodeName{request.node()}};
}

InjectFaultRequested EventOf(const v1::InjectFaultRequest& request, const Actor& actor) {
  return {.actor = actor,
          .job = request.job(),
          .rank = request.rank(),
          .node = NodeName{request.node()},
          .kind = request.kind(),
          .argument = request.argument()};
}

SubmitRequested EventOf(const v1::SubmitRequest& request, const Actor& actor, JobId new_id) {
  SubmitRequested event{.actor = actor,
                        .spec_yaml = request.spec_yaml(),
                        .key = request.key(),
                        .new_id = std::move(new_id),
                        .spec = ParseJobSpec(request.spec_yaml())};
  if (request.has_check_index()) event.check_index = request.check_index();
  return event;
}

QueuesApplyRequested EventOf(const v1::ApplyQueuesRequest& request, const Actor& actor) {
  auto event = FileEvent<QueuesApplyRequested>(request, actor);
  event.tree = ParseQueueFile(request.yaml(), FileName(request, "queues.yaml"));
  return event;
}

UsersApplyRequested EventOf(const v1::ApplyUsersRequest& request, const Actor& actor) {
  auto event = FileEvent<UsersApplyRequested>(request, actor);
  event.users = ParseUserFile(request.yaml(), FileName(request, "users.yaml"));
  return event;
}

}  // namespace muster
