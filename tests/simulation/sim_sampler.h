// SimSampler: what a worker reads from its ranks' pages (worker/agent/progress_sampler.h), from the
// processes themselves.
#pragma once

#include <map>
#include <vector>

#include "common/wire/messages.h"
#include "tests/simulation/sim_trainer.h"

namespace muster::sim {

class SimSampler {
 public:
  // A page of a newer generation drops those of the older.
  void AddPage(const JobId& job, Generation generation, int rank, ProcessPtr process);
  void EndJob(const JobId& job) { gangs_.erase(job); }
  void Clear() { gangs_.clear(); }

  // One for each job that has a rank which runs.
  std::vector<Progress> SampleAll() const;
  bool Knows(const JobId& job) const { return gangs_.contains(job); }
  // Precondition: Knows.
  Progress Sample(const JobId& job) const;

 private:
  struct Gang {
    Generation generation = 0;
    std::map<int, ProcessPtr> ranks;
  };
  std::map<JobId, Gang> gangs_;
};

}  // namespace muster::sim
