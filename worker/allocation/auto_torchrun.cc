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

TorchrunSurroundings Surroundings(const AutoTask& task, const TorchrunCall& call) {
  TorchrunSurroundings with;
  with.environment = call.environment;
  // As in torchrun: a flag counts before the variable, the variable before the default.
  with.environment.emplace("PET_NNODES", std::to_string(task.node_count()));
  with.directory = call.directory;
  const auto path = call.environment.find("PATH");
  const auto python = FindProgram(
      "python3", path == call.environment.end() ? "/usr/bin:/bin" : path->second, call.directory);
  if (python.ok()) with.python = *python;
  with.cpus = std::max(1, task.cpus);
  with.gpus = task.gpus;
  with.nodes = task.node_count();
  return with;
}

}  // namespace

Result<TorchrunPlan> PlanTorchrun(const AutoTask& task, const TorchrunCall& call) {
  const TorchrunSurroundings with = Surroundings(task, call);
  MUSTER_ASSIGN_OR_RETURN(const TorchrunFlags flags,
                          ParseTorchrunFlags(call.words, with.environment));
  MUSTER_ASSIGN_OR_RETURN(TorchrunJob job, JobFromTorchrun(flags, with));
  if (!job.log_dir.empty())
    job.notes.push_back("--log-dir " + job.log_dir +
                        ": not used; the ranks' logs lie below the job's output directory, and "
                        "`muster logs " +
                        task.words.to_logs + "` shows them");
  return TorchrunPlan{std::move(job.yaml), std::move(job.notes)};
}

Result<std::string> AgreeOnJob(const std::string& dir, const std::string& node,
                               const std::string& yaml) {
  const std::string path = dir + "/job.yaml";
  auto there = ReadFile(path);
  if (there.ok() || there.status().code() != StatusCode::kNotFound) return there;
  // Only this user may read it: it contains the user's environment.
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
  const std::string own = path + "." + node;
  MUSTER_RETURN_IF_ERROR(WriteFileAtomically(own, yaml, 0600));
  // If there are several links, one succeeds, on network file systems too.
  const int failed = ::link(own.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(own.c_str());
  if (failed != 0 && failed != EEXIST) return ErrnoStatus(failed, "make " + path);
  return ReadFile(path);
}

}  // namespace muster::worker
