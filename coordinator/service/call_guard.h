// CallGuard: decides for services of clients what a caller may do, by coordinator/access and the
// users and queues of the moment, and has refusals recorded.
//
// Owned by ClientCalls; the loop's thread. The controller and the log outlive it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "coordinator/access/access.h"
#include "coordinator/control/controller.h"
#include "coordinator/service/refusal_log.h"
#include "coordinator/service/unary_call.h"

namespace muster {

// The jobs that the actor may see, by users and queues of the moment; empty: all. The controller
// outlives it.
JobFilter JobsSeenBy(const Controller& controller, const Actor& actor);

class CallGuard {
 public:
  using Call = std::shared_ptr<UnaryCall>;

  CallGuard(const Controller& controller, RefusalLog& refusals)
      : controller_(controller), refusals_(refusals) {}

  // --- each returns whether the caller may; else the call is ended, and the refusal recorded ---

  // Before anything is done. An operation on jobs or queues must ask for the one it is about later.
  bool Admits(const Call& call);
  // The call's operation, in the whole cluster.
  bool Permits(const Call& call);
  bool PermitsFor(const Call& call, const JobRecord& job);
  // The call's operation, in that queue.
  bool PermitsIn(const Call& call, const std::string& queue);
  bool PermitsSubmit(const Call& call, const std::string& queue);
  // The same in the queue of the job file; one that cannot be read is not submitted anywhere.
  bool PermitsSubmit(const Call& call, const Result<JobSpec>& spec);

  // For streams: OK, or the refusal, which is recorded. kWatch: whether the actor may do anything;
  // the jobs that it may see it may watch.
  Status Check(const Actor& actor, ClientOperation operation);
  JobFilter FilterFor(const Actor& actor) const { return JobsSeenBy(controller_, actor); }
  // Accepts days of queues that the actor may see, and the actor's own in others. The guard
  // outlives it.
  std::function<bool(const QueueDayRecord&)> UsageSeenBy(const Actor& actor) const;

 private:
  bool End(const Call& call, ClientOperation operation, const Status& status,
           const std::string& object = "");
  Status Record(const Actor& actor, ClientOperation operation, Status status,
                const std::string& object);

  const Controller& controller_;
  RefusalLog& refusals_;
};

}  // namespace muster
