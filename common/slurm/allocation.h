// Allocation: what a process learns of the allocation that it runs in from SLURM_* variables.
//
// Read once at the start of a process and checked there, so that a step that was started in a way
// that cannot work ends at once with the srun line that does. The variables are those of srun(1),
// OUTPUT ENVIRONMENT VARIABLES; what older Slurms do not set has a value that says so.
//
// Plain values and pure functions, but CurrentEnvironment; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/job_ref.h"

namespace muster::slurm {

using Environment = std::map<std::string, std::string>;

// This process's own, as it was started or has changed it since.
Environment CurrentEnvironment();

// What this value of CUDA_VISIBLE_DEVICES lets a program see: CUDA reads names up to the first
// number below 0. NoDevFiles is Slurm's word for none.
std::vector<std::string> VisibleGpus(const std::string& visible);

struct Allocation {
  std::string cluster;  // SLURM_CLUSTER_NAME; empty: not given
  // A heterogeneous job has its first component's, which names the whole; equal on all nodes, and
  // kept by a requeue.
  std::uint64_t job_id = 0;
  std::optional<ArrayTask> array;
  int het_size = 0;       // components of a heterogeneous job; 0: it is none
  int restart_count = 0;  // how often Slurm has started the job again
  // Which call of srun this is, among all that ever had this job's id: equal for all tasks of the
  // step, another for the next srun, and for a job that got the same id later.
  std::string step;
  bool in_step = false;  // by srun; false: in the batch script's shell or salloc's

  // The step's nodes in Slurm's order (a heterogeneous job's one component after the other), and
  // which of them this is. Shrinking an allocation does not change what a process was given.
  std::vector<std::string> nodes;
  int node_id = 0;
  std::string node_name;  // nodes[node_id]

  int cpus_on_node = 0;  // of the step; 0: not given
  int gpus_on_node = 0;
  // CUDA_VISIBLE_DEVICES, one entry per device; nothing where it is not set.
  std::optional<std::vector<std::string>> visible_gpus;

  std::string launch_address;    // numeric, of the host where srun runs; may be a login node
  std::string comm_host;         // its name or address as srun gives it
  std::string tmp_dir = "/tmp";  // SLURM_TMPDIR, TMPDIR, /tmp: the first that is set
  // The switches over this node, from the top down, "s0.s2"; empty: not given.
  std::string switches;
  // As it was when the step began. Since Slurm 23.02; else, and where it may have changed, ask.
  std::optional<std::int64_t> end_unix_seconds;

  int node_count() const { return static_cast<int>(nodes.size()); }
  // For Slurm's commands.
  JobRef ref() const { return array ? JobRef(*array) : JobRef(job_id); }
};

// Whether there is an allocation at all: SLURM_JOB_ID is set.
bool InAllocation(const Environment& environment);

// kFailedPrecondition where there is no allocation; kInvalidArgument for a variable whose value is
// none, named; and for a step that is not one task on each of its nodes, with the srun options to
// use. Every sentence can be shown to a user as it is.
Result<Allocation> ReadAllocation(const Environment& environment);

}  // namespace muster::slurm
