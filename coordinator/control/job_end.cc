#include "coordinator/control/job_end.h"

#include <utility>

#include "common/base/text.h"
#include "coordinator/control/archiving.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/readings.h"

namespace muster::control {
namespace {

std::string StepsText(Step steps) {
  return std::to_string(steps) + (steps == 1 ? " step" : " steps");
}

// Where the job will continue, and which steps it has lost.
std::string WhereSuspended(const JobEntry& job) {
  const JobRecord& record = job.record;
  if (job.attempts.empty()) return "it has not run yet";
  if (!job.spec.train) return "its command starts from the beginning";
  const Step lost = record.step - record.committed_step;
  if (record.committed_step == 0) {
    return record.step == 0 ? "it has finished no step yet"
                            : "no checkpoint was committed: " + StepsText(record.step) +
                                  " will have to be done again";
  }
  std::string text = "it will go on at step " + std::to_string(record.committed_step);
  if (lost > 0)
    text += "; " + StepsText(lost) + " after that checkpoint will have to be done again";
  return text;
}

void ReleaseNodes(Transaction& tx, JobEntry& job) {
  for (const NodeName& node : job.record.pending_release) tx.Send(node, Release{job.record.id});
}

}  // namespace

void EndParked(Transaction& tx, JobEntry& job) {
  for (const auto& [name, hold] : tx.state.holds.OrphanParked(job.record.id)) {
    tx.Send(name, Abort{.job = job.record.id,
                        .generation = hold.generation,
                        .reason = "the job goes on without this node"});
  }
}

// A running gang has all of its state on its own nodes: on other nodes a guardian and its snapshots
// would only use memory for as long as the job runs.
void ReleaseFormerNodes(Transaction& tx, JobEntry& job) {
  for (const NodeName& node : job.record.pending_release) {
    if (FindMember(job, node) == nullptr) tx.Send(node, Release{job.record.id});
  }
}

void FinishJob(Transaction& tx, JobEntry& job, JobEvent event, std::string reason) {
  job.gang.reset();
  tx.state.with_gang.erase(job.record.id);
  job.not_before.reset();
  job.begin_at.reset();
  DropPromise(tx.state, job);
  job.time_limit_at.reset();
  job.fault.reset();
  job.wait.reset();
  job.record.reclaim = {};
  job.record.reason = std::move(reason);
  tx.Move(job, event);
  if (job.over()) {
    job.record.ended_unix_ms = tx.now.unix_ms;
    tx.state.live.erase(job.record.id);
    PlanArchiving(tx, job);
    tx.out.observations.push_back(RunEndedObserved{
        job.record.state,
        job.record.state == JobState::kFailed && job.record.stop == StopKind::kTimeLimit});
  } else {
    if (job.record.suspended_unix_ms == 0) job.record.suspended_unix_ms = tx.now.unix_ms;
    job.record.stop = StopKind::kNone;
    job.record.stop_by_unix_ms = 0;
    job.survivors.reset();
    job.waited = true;
    job.wait_recorded = false;
  }
  tx.state.reschedule = true;
  // Its release ends what is parked; until then the slots are taken.
  tx.state.holds.OrphanParked(job.record.id);
  job.grow_at.reset();
  PlanScrubs(tx, job);
  const bool failed = job.record.state == JobState::kFailed;
  const std::string_view kind = Name(job.record.state);
  tx.RecordEvent(job,
                 {kind.data(), failed ? Severity::kError : Severity::kInfo, job.record.reason});
  ReleaseNodes(tx, job);
  if (job.pending()) tx.state.planned.insert(job.record.id);
}

void EndStopped(Transaction& tx, JobEntry& job) {
  switch (job.record.stop) {
    case StopKind::kNone: return;
    case StopKind::kCancel: return FinishJob(tx, job, JobEvent::kCancel, job.record.reason);
    case StopKind::kTimeLimit: return FinishJob(tx, job, JobEvent::kFail, job.record.reason);
    case StopKind::kSuspend:
      return FinishJob(tx, job, JobEvent::kSuspend, job.record.reason + "; " + WhereSuspended(job));
    case StopKind::kPreempt:
      return FinishJob(tx, job, JobEvent::kRequeue, job.record.reason + "; " + WhereSuspended(job));
  }
}

}  // namespace muster::control
