// SimSampler: what a worker reads from its ranks' pages (worker/agent/progress_sampler.h), from the
// processes themselves; the worker's own ProgressGate decides what is sent when.
#pragma once

#include <map>
#include <vector>

#include "common/wire/messages.h"
#include "tests/simulation/sim_trainer.h"
#include "worker/agent/progress_gate.h"

namespace muster::sim {

class SimSampler {
 public:
  // A page of a newer generation drops those of the older.
  void AddPage(const JobId& job, Generation generation, int rank, ProcessPtr process);
  void EndJob(const JobId& job) { gangs_.erase(job); }
  void Clear() { gangs_.clear(); }

  void EndRank(const JobId& job, int rank);
  // What to send.
  std::vector<Progress> Sample(TimePoint now, Duration interval);

 private:
  struct Gang {
    Generation generation = 0;
    std::map<int, ProcessPtr> ranks;
    worker::ProgressGate gate;
  };
  std::map<JobId, Gang> gangs_;
};

}  // namespace muster::sim
