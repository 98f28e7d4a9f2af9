#include "common/job_spec/environment_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace muster {

bool IsVariableName(const std::string& name) {
  static constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

std::string WhyReserved(const std::string& name) {
  static constexpr std::array<std::string_view, 13> kRankVariables = {
      "MASTER_ADDR", "MASTER_PORT",      "RANK",       "LOCAL_RANK",
      "WORLD_SIZE",  "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
      "ROLE_RANK",   "ROLE_WORLD_SIZE",  "NODE_RANK",  "CUDA_VISIBLE_DEVICES",
      "ROLE_NAME"};
  if (name == "OMP_NUM_THREADS")
    return "is set by muster for every rank; use resources.cpus_per_rank";
  // Scripts name their files by it, so that a job may say which run it goes on with.
  if (name == "TORCHELASTIC_RUN_ID") return "";
  if (name.starts_with("MUSTER_") || name.starts_with("TORCHELASTIC_"))
    return "is set by muster for every rank and must not be overridden";
  for (const std::string_view reserved : kRankVariables)
    if (name == reserved) return "is set by muster for every rank and must not be overridden";
  return "";
}

bool IsOfOneTask(const std::string& name) {
  static constexpr std::array<std::string_view, 11> kOfTheProcess = {
      "_", "SHLVL", "PWD", "OLDPWD", "TMPDIR", "XDG_RUNTIME_DIR", "HOSTNAME", "GPU_DEVICE_ORDINAL",
      "ROCR_VISIBLE_DEVICES", "JOB_COMPLETION_INDEX",
      // Set by common/rpc/tls.cc.
      "GRPC_SSL_CIPHER_SUITES"};
  // True of the whole job, in all of its tasks and runs: what scripts name their files by.
  static constexpr std::array<std::string_view, 11> kOfTheJob = {
      "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_CLUSTER_NAME", "SLURM_JOBID",
      "SLURM_JOB_ACCOUNT",  "SLURM_JOB_ID",        "SLURM_JOB_NAME",     "SLURM_JOB_PARTITION",
      "SLURM_JOB_USER",     "SLURM_SUBMIT_DIR",    "SLURM_SUBMIT_HOST"};
  const bool of_slurm = name.starts_with("SLURM") || name.starts_with("SRUN_") ||
                        name.starts_with("SBATCH_") || name.starts_with("PMI");
  if (!of_slurm)
    return std::find(kOfTheProcess.begin(), kOfTheProcess.end(), name) != kOfTheProcess.end();
  return std::find(kOfTheJob.begin(), kOfTheJob.end(), name) == kOfTheJob.end();
}

}  // namespace muster
