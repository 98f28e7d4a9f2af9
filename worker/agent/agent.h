// Agent: how a worker handles the jobs on its node, as a pure state machine.
//
// Handle takes one event (from the coordinator, a guardian or the pool) and returns the effects to
// carry out; AgentRunner (agent_runner.h) is the edge that does so. Nothing here reads a clock, a
// file or a socket.
//
// It has a HostedJob for every job, which decides, and answers itself what concerns no job of the
// node. Hosted() is what all guardians have reported: a Hello made from it restores all that lost
// messages would have carried.
//
// Any one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/messages.h"
#include "worker/agent/agent_effects.h"
#include "worker/agent/hosted_job.h"
#include "worker/agent/rank_environment.h"

namespace muster::worker {

// A device that a rank of the job has.
struct GpuUse {
  JobId job;
  std::string device;

  friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

class Agent {
 public:
  // `jobs_dir` is where the jobs' directories are.
  Agent(LaunchContext context, std::string jobs_dir);

  Effects Handle(const Event& event);

  std::vector<HostedGeneration> Hosted() const;
  // The GPUs of the ranks that run now.
  std::vector<GpuUse> GpusInUse() const;
  // Every guardian that was started or found has sent its state, and no job's first proof of its
  // end is under way.
  bool AllSettled() const;
  std::string JobDir(const JobId& job) const { return jobs_dir_ + "/" + job.value; }
  // The newest Prepare of a job; null if the job is not here.
  const Prepare* FindPrepare(const JobId& job) const;

 private:
  // An event about a job that is not here changes nothing and has no answer; the overloads below
  // are the exceptions.
  template <typename Any>
  void On(const Any& event, Effects* effects) {
    if (HostedJob* job = Find(event.job)) job->On(event, effects);
  }
  void On(const JobFound& found, Effects* effects);
  void On(const Prepare& prepare, Effects* effects);
  void On(const Launch& launch, Effects* effects);
  void On(const Abort& abort, Effects* effects);
  void On(const Release& release, Effects* effects);
  void On(const InjectFault& fault, Effects* effects);
  void On(const LaunchStaged& staged, Effects* effects);
  void On(const Forgotten& forgotten, Effects* effects);

  HostedJob* Find(const JobId& job);
  // Makes the job if it is not here.
  HostedJob& At(const JobId& job);

  const LaunchContext context_;
  const std::string jobs_dir_;
  std::map<JobId, HostedJob> jobs_;
};

}  // namespace muster::worker
