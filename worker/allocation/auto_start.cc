#include "worker/allocation/auto_start.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/job_spec/job_file.h"
#include "common/net/interfaces.h"
#include "common/slurm/sbatch_script.h"
#include "common/telemetry/log.h"
#include "worker/allocation/shared_owner.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// The job of the named file, or of torchrun's command line.
Result<ResolvedJob> ResolveOwnJob(const AutoTask& task, const AutoFlags& flags) {
  if (flags.torchrun.words.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const JobFile file, ReadJobFile(flags.job));
    return ResolveJob(file, flags.overrides);
  }
  MUSTER_ASSIGN_OR_RETURN(TorchrunPlan plan, PlanTorchrun(task, flags.torchrun));
  for (const std::string& note : plan.notes) Log().info("{}", note);
  return ResolveJob({std::move(plan.yaml), "torchrun's command line", flags.torchrun.directory},
                    flags.overrides);
}

// The coordinator has this one job.
Status CheckScheduling(const JobSpec& spec, const AutoTask& task) {
  const Status status = slurm::CheckScheduling(spec);
  if (status.ok() || task.run) return status;
  return InvalidArgument(
      "begin, hold, queue, class: in an Indexed Job Kubernetes decides when the pods run; leave "
      "these keys out");
}

Status CheckFits(const JobSpec& spec, const AutoTask& task) {
  const int wanted = spec.resources.nodes;
  if (wanted <= task.node_count()) return OkStatus();
  return InvalidArgument("the job requests " + std::to_string(wanted) +
                         " nodes, and this step has " + std::to_string(task.node_count()) + "; " +
                         task.words.more_nodes + std::to_string(wanted) +
                         ", or set resources.nodes");
}

Result<int> SlotsOf(const JobSpec& spec, const AutoTask& task, int given) {
  if (given > 0) return given;
  if (spec.resources.device != "cuda") return spec.resources.ranks_per_node;
  if (task.gpus > 0) return task.gpus;
  if (task.may_lack_gpus) return 0;
  return InvalidArgument("the job requests GPUs, and " + task.words.no_gpus + "; " +
                         task.words.more_gpus + std::to_string(spec.resources.ranks_per_node));
}

Result<std::string> AddressOf(const AutoTask& task, const std::string& interface) {
  InterfaceChoice choice;
  if (interface.empty()) {
    if (!task.own_address.empty()) return task.own_address;
  } else {
    MUSTER_ASSIGN_OR_RETURN(choice, InterfaceChoice::Parse(interface));
  }
  return OwnAddress(choice, task.route_to);
}

// On the node's own disk, and short: Unix sockets lie below it.
std::string LocalDirectory(const AutoTask& task) {
  return task.tmp_dir + "/muster-" + std::to_string(::getuid()) + "/" + task.local_name;
}

bool Names(const std::vector<std::string>& worker_arguments, const std::string& flag) {
  return std::any_of(worker_arguments.begin(), worker_arguments.end(),
                     [&flag](const auto& argument) { return argument.starts_with(flag); });
}

std::vector<std::string> WorkerArguments(const AutoTask& task, const AutoFlags& flags, int slots) {
  std::vector<std::string> arguments = {"--slots", std::to_string(slots)};
  // The job has what the scheduler has given it, as a whole: there is nothing to count.
  if (!Names(flags.worker_arguments, "--cpus")) arguments.insert(arguments.end(), {"--cpus", "0"});
  if (!task.switches.empty() && !Names(flags.worker_arguments, "--failure-domain"))
    arguments.insert(arguments.end(), {"--failure-domain", task.switches});
  arguments.insert(arguments.end(), flags.worker_arguments.begin(), flags.worker_arguments.end());
  return arguments;
}

// Which run of the job this is, and whether it is over.
void SetRun(const AutoTask& task, SupervisorOptions* options) {
  if (task.run) {
    options->run = *task.run;
    return;
  }
  const FoundRun found = FindRun(options->shared_dir, task.allocation, task.step);
  options->run = found.run;
  options->ended = found.ended;
}

}  // namespace

Result<SupervisorOptions> PlanSupervisor(const AutoTask& task, const AutoFlags& flags,
                                         const std::string& binary_dir) {
  MUSTER_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveOwnJob(task, flags));
  MUSTER_RETURN_IF_ERROR(CheckScheduling(job.spec, task));
  MUSTER_RETURN_IF_ERROR(CheckFits(job.spec, task));
  MUSTER_ASSIGN_OR_RETURN(const int slots, SlotsOf(job.spec, task, flags.slots));
  SupervisorOptions options;
  MUSTER_ASSIGN_OR_RETURN(options.self.address, AddressOf(task, flags.interface));
  options.allocation = task.allocation;
  options.step = task.step;
  options.node_count = task.node_count();
  options.node_names = task.nodes;
  options.self.index = task.node_id;
  options.self.node = task.node_name();
  options.shared_dir = flags.state_dir.empty()
                           ? slurm::SharedPrefix(job.spec) + task.state_name
                           : fs::absolute(flags.state_dir).lexically_normal().string();
  SetRun(task, &options);
  options.local_dir = LocalDirectory(task);
  options.binary_dir = binary_dir;
  options.job_yaml = job.yaml;
  if (!flags.torchrun.words.empty()) {
    MUSTER_ASSIGN_OR_RETURN(options.job_yaml,
                            AgreeOnJob(options.shared_dir, task.node_name(), job.yaml));
  }
  options.has_worker = options.self.has_worker = slots > 0;
  options.worker_arguments = WorkerArguments(task, flags, slots);
  options.lease_seconds = flags.lease_seconds;
  options.term_seconds = flags.term_seconds;
  options.log_level = flags.log_level;
  options.election.index = task.node_id;
  options.election.node_count = task.node_count();
  options.election.give_up = FromSeconds(flags.give_up_seconds);
  options.monitor.run = options.run;
  options.monitor.max_requeues = flags.max_requeues;
  if (job.spec.train) options.monitor.max_in_vain = job.spec.restart.max_without_progress;
  options.monitor.timeout = FromSeconds(flags.wait_seconds);
  if (flags.stop_lead_seconds) options.monitor.lead = FromSeconds(*flags.stop_lead_seconds);
  return options;
}

}  // namespace muster::worker
