// Processes that outlive their generation: who is kept by an abort, whose slots they hold, and how
// they end when nobody takes them.

#include "coordinator/control/core.h"
#include "coordinator/control/tier.h"

namespace muster {

bool MayKeep(const JobEntry& job) {
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
  input.tier = attempt.tier;
  return KeepsProcesses(input);
}

void ControllerCore::EndParked(JobEntry& job) {
  for (const auto& [name, hold] : slots_.OrphanParked(job.record.id)) {
    Send(name,
         Abort{job.record.id, hold.generation, "the job goes on without this node", 0, 0, {}});
  }
}

}  // namespace muster
