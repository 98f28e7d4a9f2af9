#include "coordinator/service/call_guard.h"

#include <utility>

#include "common/job_spec/queue_names.h"

namespace muster {

Status CallGuard::Record(const Actor& actor, ClientOperation operation, Status status,
                         const std::string& object) {
  if (!status.ok())
    refusals_.Note({.actor = actor,
                    .operation = std::string(Name(operation)),
                    .object = object,
                    .status = status});
  return status;
}

bool CallGuard::End(const Call& call, ClientOperation operation, const Status& status,
                    const std::string& object) {
  if (status.ok()) return true;
  call->End(Record(call->actor(), operation, status, object));
  return false;
}

JobFilter JobsSeenBy(const Controller& controller, const Actor& actor) {
  if (controller.access().MaySeeAll(actor)) return {};
  return [&controller, actor](const JobRecord& job) {
    return controller.access().MaySee(actor, {job.owner, QueueName(job.queue)});
  };
}

bool CallGuard::Admits(const Call& call) {
  const Scope scope = RuleOf(call->operation()).scope;
  if (scope != Scope::kJob && scope != Scope::kQueue) return Permits(call);
  return End(call, call->operation(), controller_.access().CheckActor(call->actor()));
}

bool CallGuard::Permits(const Call& call) {
  return End(call, call->operation(), controller_.access().Check(call->actor(), call->operation()));
}

bool CallGuard::PermitsFor(const Call& call, const JobRecord& job) {
  const std::string queue = QueueName(job.queue);
  const JobAccess access{job.owner, queue};
  return End(call, call->operation(),
             controller_.access().Check(call->actor(), call->operation(), &access),
             "job " + job.id.value);
}

bool CallGuard::PermitsIn(const Call& call, const std::string& queue) {
  const JobAccess access{call->actor().user(), queue};
  return End(call, call->operation(),
             controller_.access().Check(call->actor(), call->operation(), &access),
             "queue " + queue);
}

bool CallGuard::PermitsSubmit(const Call& call, const std::string& queue) {
  const JobAccess access{call->actor().user(), queue};
  return End(call, ClientOperation::kSubmit,
             controller_.access().Check(call->actor(), ClientOperation::kSubmit, &access),
             "queue " + queue);
}

bool CallGuard::PermitsSubmit(const Call& call, const Result<JobSpec>& spec) {
  if (spec.ok()) return PermitsSubmit(call, QueueName(spec->queue));
  call->End(spec.status());
  return false;
}

Status CallGuard::Check(const Actor& actor, ClientOperation operation) {
  const Access access = controller_.access();
  return Record(actor, operation,
                operation == ClientOperation::kWatch ? access.CheckActor(actor)
                                                     : access.Check(actor, operation),
                "");
}

std::function<bool(const QueueDayRecord&)> CallGuard::UsageSeenBy(const Actor& actor) const {
  return [this, actor](const QueueDayRecord& record) {
    const bool own = !record.user.empty() && record.user == actor.user();
    return own || controller_.access().MaySee(actor, {"", record.queue});
  };
}

}  // namespace muster
