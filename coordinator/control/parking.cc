// Processes that outlive their generation: who is kept by an abort, whose slots they hold, and how
// they end when nobody takes them.

#include "coordinator/control/core.h"
#include "coordinator/control/rung.h"

namespace muster {

bool ControllerCore::MayKeep(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  const Gang& gang = *job.gang;
  KeepInput input;
  input.train = job.spec.train.has_value();
  input.in_place = job.spec.restart.in_place;
  input.retryable = attempt.retryable;
  input.stopping = job.record.stop != StopKind::kNone;
  // The second halves hold after a restart of the coordinator too.
  input.formed = gang.all_formed || attempt.resumed_step >= 0;
  input.stepped =
      gang.first_step || (attempt.resumed_step >= 0 && attempt.last_step > attempt.resumed_step);
  input.rung = attempt.rung;
  return KeepsProcesses(input);
}

// What is parked keeps its slots for the job, until that is placed or has to wait.
void ControllerCore::HoldParked(JobEntry& job) {
  job.kept = job.gang->keep;
  for (const GangNode& member : job.gang->nodes) {
    if (member.parked > 0) job.parked[member.name] = member.parked;
  }
}

void ControllerCore::EndParked(JobEntry& job, const NodeName& name) {
  const auto parked = job.parked.find(name);
  if (parked == job.parked.end()) return;
  const Generation ended = job.attempt().generation;
  nodes_.at(name).leftovers[job.record.id] = {ended, parked->second};
  job.parked.erase(parked);
  Send(name, Abort{job.record.id, ended, "the job goes on without this node", 0, 0, {}});
}

void ControllerCore::EndAllParked(JobEntry& job) {
  while (!job.parked.empty()) {
    const NodeName name = job.parked.begin()->first;
    EndParked(job, name);
  }
}

}  // namespace muster
