// The environment and the command line of every process of a generation.
//
// The environment is torchrun's, so that any program which reads that one runs unchanged, plus
// Muster's own variables. Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "worker/fabric/cpu_binding.h"
#include "worker/fabric/node_devices.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

// The part that is the same for all jobs of a worker.
struct LaunchContext {
  std::string trainer_path;   // muster-trainer
  std::string guardian_path;  // muster-guardian
  // Those of PATH, HOME, LANG, USER and TMPDIR that the worker has itself, and all NCCL_* and FI_*.
  std::map<std::string, std::string> passed_through;
  std::vector<NodeDevice> devices;  // of the node; all of them are fake, or none
  // The address at which other nodes reach this one's ranks, and the interfaces that collectives
  // use; empty if all of them are on this host.
  std::string address;
  std::vector<std::string> interfaces;
  CpuTopology cpus;  // of the node; empty: ranks are not bound
  int slots = 0;     // of the node
  // Where muster-launcher keeps what ranks and guardians of jobs use; empty: jobs run as the
  // worker's user, and that lies in the job's directory.
  std::string launcher_dir = {};
};

// Where ranks and guardian of a job find their files, and leave them.
std::string RanksDirectory(const LaunchContext& context, const std::string& job_dir);

// The ids of the devices of the rank at `local_rank`, of those that the job has on the node.
std::vector<std::string> DevicesOfRank(const JobSpec& spec, const Prepare& prepare, int local_rank);
// Those that its processes see and lock: its own, or all of the job's on the node.
std::vector<std::string> DevicesSeenByRank(const JobSpec& spec, const Prepare& prepare,
                                           int local_rank);

// The variables of a worker's own environment that its ranks get.
std::map<std::string, std::string> PassedThroughVariables();

// Fails if `env` of the job names a variable that Muster sets.
Status CheckJobEnvironment(const JobSpec& spec);

// Sorted "NAME=value" entries: the job's `env`, then what Muster sets.
std::vector<std::string> BuildRankEnvironment(const LaunchContext& context, const JobSpec& spec,
                                              const Prepare& prepare, const Launch& launch,
                                              const RankPlacement& placement,
                                              const std::string& job_dir);

// The processors that the ranks of this node are bound to, by local rank, and why.
CpuBindingPlan PlanRankCpus(const LaunchContext& context, const JobSpec& spec,
                            const Prepare& prepare);

// What the guardian prepares for this job if it hosts rank 0.
MasterSocket MasterSocketFor(const JobSpec& spec, bool hosts_master);

// Everything that this node's guardian must start, in that order: the store first if the job needs
// one here.
std::vector<GuardianLaunch> BuildLaunches(const LaunchContext& context, const JobSpec& spec,
                                          const Prepare& prepare, const Launch& launch,
                                          const std::string& job_dir);

// How this node's guardian starts processes that wait for an assignment, and how many. The
// variables of a rank or a generation come with the assignment.
GuardianStandby BuildStandby(const LaunchContext& context, const JobSpec& spec,
                             const Prepare& prepare, const std::string& job_dir);

// What describes the container of the job's ranks on this node, if they have one.
std::string ContainerFilePath(const std::string& job_dir);

// Files of a generation below the job's directory and the output directory.
std::string ResumeFilePath(const std::string& job_dir, Generation generation);
std::string ErrorFilePath(const std::string& job_dir, Generation generation, int rank);
std::string LogDirectory(const std::string& output_dir, Generation generation);
std::string RankLogPath(const std::string& output_dir, Generation generation, int rank);

}  // namespace muster::worker
