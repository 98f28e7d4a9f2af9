#include "worker/allocation/auto_torchrun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/files.h"
#include "common/job_spec/torchrun_flags.h"
#include "common/process/spawn.h"

namespace muster::worker {
namespace {

// True of the whole job, in all of its tasks and runs: what scripts name their files by.
constexpr const char* kOfTheJob[] = {
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_CLUSTER_NAME", "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",  "SLURM_JOB_ID",        "SLURM_JOB_NAME",     "SLURM_JOB_PARTITION",
    "SLURM_JOB_USER",     "SLURM_SUBMIT_DIR",    "SLURM_SUBMIT_HOST"};

bool IsOfOneTask(const std::string& name) {
  const bool of_slurm = name.starts_with("SLURM") || name.starts_with("SRUN_") ||
                        name.starts_with("SBATCH_") || name.starts_with("PMI");
  const bool of_node = name == "HOSTNAME" || name == "TMPDIR" || name == "GPU_DEVICE_ORDINAL" ||
                       name == "ROCR_VISIBLE_DEVICES";
  if (!of_slurm) return of_node;
  return std::find(std::begin(kOfTheJob), std::end(kOfTheJob), name) == std::end(kOfTheJob);
}

TorchrunSurroundings Surroundings(const slurm::Allocation& allocation, const TorchrunCall& call) {
  TorchrunSurroundings with;
  for (const auto& [name, value] : call.environment)
    if (!IsOfOneTask(name)) with.environment.emplace(name, value);
  // As torchrun has it: a flag counts before the variable, the variable before the default.
  with.environment.emplace("PET_NNODES", std::to_string(allocation.node_count()));
  with.directory = call.directory;
  const auto path = call.environment.find("PATH");
  const auto python = FindProgram(
      "python3", path == call.environment.end() ? "/usr/bin:/bin" : path->second, call.directory);
  if (python.ok()) with.python = *python;
  with.cpus = std::max(1, allocation.cpus_on_node);
  with.gpus = allocation.visible_gpus ? static_cast<int>(allocation.visible_gpus->size())
                                      : allocation.gpus_on_node;
  with.nodes = allocation.node_count();
  return with;
}

}  // namespace

Result<TorchrunPlan> PlanTorchrun(const slurm::Allocation& allocation, const TorchrunCall& call) {
  const TorchrunSurroundings with = Surroundings(allocation, call);
  MUSTER_ASSIGN_OR_RETURN(const TorchrunFlags flags,
                          ParseTorchrunFlags(call.words, with.environment));
  MUSTER_ASSIGN_OR_RETURN(TorchrunJob job, JobFromTorchrun(flags, with));
  if (!job.log_dir.empty())
    job.notes.push_back("--log-dir " + job.log_dir +
                        ": not used; the ranks' logs lie below the job's output directory, and "
                        "`muster logs --slurm-job " +
                        allocation.ref().text() + "` shows them");
  return TorchrunPlan{std::move(job.yaml), std::move(job.notes)};
}

Result<std::string> AgreeOnJob(const std::string& dir, const std::string& node,
                               const std::string& yaml) {
  const std::string path = dir + "/job.yaml";
  auto there = ReadFile(path);
  if (there.ok() || there.status().code() != StatusCode::kNotFound) return there;
  // Only this user may look into it: it holds his environment.
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
  const std::string own = path + "." + node;
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(own, yaml, 0600));
  // Of several links one succeeds, on network file systems too.
  const int failed = ::link(own.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(own.c_str());
  if (failed != 0 && failed != EEXIST) return ErrnoStatus(failed, "make " + path);
  return ReadFile(path);
}

}  // namespace muster::worker
