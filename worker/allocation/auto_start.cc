#include "worker/allocation/auto_start.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/job_spec/job_file.h"
#include "common/net/interfaces.h"
#include "common/slurm/sbatch_script.h"
#include "common/telemetry/log.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxName = 63;

// Characters that a certificate's name may contain.
std::string AsName(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  if (text.size() > kMaxName) text.erase(0, text.size() - kMaxName);
  if (text.front() == '.') text.front() = '_';
  return text;
}

std::string AllocationName(const slurm::Allocation& allocation) {
  const std::string cluster = allocation.cluster.empty() ? "slurm" : allocation.cluster;
  return AsName(cluster + "-" + std::to_string(allocation.job_id));
}

// The job of the named file, or of torchrun's command line.
Result<ResolvedJob> ResolveOwnJob(const slurm::Allocation& allocation, const AutoFlags& flags) {
  if (flags.torchrun.words.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const JobFile file, ReadJobFile(flags.job));
    return ResolveJob(file, flags.overrides);
  }
  MUSTER_ASSIGN_OR_RETURN(TorchrunPlan plan, PlanTorchrun(allocation, flags.torchrun));
  for (const std::string& note : plan.notes) Log().info("{}", note);
  return ResolveJob({std::move(plan.yaml), "torchrun's command line", flags.torchrun.directory},
                    flags.overrides);
}

Status CheckFits(const JobSpec& spec, const slurm::Allocation& allocation) {
  const int wanted = spec.resources.nodes;
  if (wanted <= allocation.node_count()) return OkStatus();
  return InvalidArgument("the job requests " + std::to_string(wanted) +
                         " nodes, and this step has " + std::to_string(allocation.node_count()) +
                         "; ask sbatch for --nodes=" + std::to_string(wanted) +
                         ", or set resources.nodes");
}

Result<int> SlotsOf(const JobSpec& spec, const slurm::Allocation& allocation, int given) {
  if (given > 0) return given;
  if (spec.resources.device != "cuda") return spec.resources.ranks_per_node;
  const int gpus = allocation.visible_gpus ? static_cast<int>(allocation.visible_gpus->size())
                                           : allocation.gpus_on_node;
  if (gpus > 0) return gpus;
  // A component without GPUs is there for the coordinator.
  if (allocation.het_size > 0) return 0;
  return InvalidArgument(
      "the job requests GPUs, and Slurm has given this task none; ask sbatch for "
      "--gpus-per-node=" +
      std::to_string(spec.resources.ranks_per_node));
}

// The address that the others reach: that of the route to srun, which all of them know.
Result<std::string> AddressOf(const slurm::Allocation& allocation, const std::string& interface) {
  InterfaceChoice choice;
  if (!interface.empty()) {
    MUSTER_ASSIGN_OR_RETURN(choice, InterfaceChoice::Parse(interface));
  }
  const std::string& peer =
      allocation.launch_address.empty() ? allocation.comm_host : allocation.launch_address;
  return OwnAddress(choice, peer);
}

// On the node's own disk, and short: Unix sockets lie below it.
std::string LocalDirectory(const slurm::Allocation& allocation) {
  return allocation.tmp_dir + "/muster-" + std::to_string(::getuid()) + "/" +
         std::to_string(allocation.job_id) + "-" + std::to_string(allocation.restart_count) + "-" +
         allocation.node_name;
}

bool Names(const std::vector<std::string>& worker_arguments, const std::string& flag) {
  return std::any_of(worker_arguments.begin(), worker_arguments.end(),
                     [&flag](const auto& argument) { return argument.starts_with(flag); });
}

}  // namespace

Result<SupervisorOptions> PlanSupervisor(const slurm::Allocation& allocation,
                                         const AutoFlags& flags, const std::string& binary_dir) {
  MUSTER_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveOwnJob(allocation, flags));
  MUSTER_RETURN_IF_ERROR(slurm::CheckScheduling(job.spec));
  MUSTER_RETURN_IF_ERROR(CheckFits(job.spec, allocation));
  MUSTER_ASSIGN_OR_RETURN(const int slots, SlotsOf(job.spec, allocation, flags.slots));
  SupervisorOptions options;
  MUSTER_ASSIGN_OR_RETURN(options.self.address, AddressOf(allocation, flags.interface));
  options.allocation = AllocationName(allocation);
  options.run = allocation.restart_count;
  options.step = allocation.step;
  options.node_count = allocation.node_count();
  options.node_names = allocation.nodes;
  options.self.index = allocation.node_id;
  options.self.node = allocation.node_name;
  // Only the submission's own place depends on the key.
  const std::string prefix = slurm::PlacesOf(job.spec, "any").state_prefix;
  options.shared_dir = flags.state_dir.empty()
                           ? prefix + std::to_string(allocation.job_id)
                           : fs::absolute(flags.state_dir).lexically_normal().string();
  options.local_dir = LocalDirectory(allocation);
  options.binary_dir = binary_dir;
  options.job_yaml = job.yaml;
  if (!flags.torchrun.words.empty()) {
    MUSTER_ASSIGN_OR_RETURN(options.job_yaml,
                            AgreeOnJob(options.shared_dir, allocation.node_name, job.yaml));
  }
  options.has_worker = options.self.has_worker = slots > 0;
  options.worker_arguments = {"--slots", std::to_string(slots)};
  // The job has what Slurm has given it, as a whole: there is nothing to count.
  if (!Names(flags.worker_arguments, "--cpus"))
    options.worker_arguments.insert(options.worker_arguments.end(), {"--cpus", "0"});
  if (!allocation.switches.empty() && !Names(flags.worker_arguments, "--failure-domain"))
    options.worker_arguments.insert(options.worker_arguments.end(),
                                    {"--failure-domain", allocation.switches});
  options.worker_arguments.insert(options.worker_arguments.end(), flags.worker_arguments.begin(),
                                  flags.worker_arguments.end());
  options.lease_seconds = flags.lease_seconds;
  options.term_seconds = flags.term_seconds;
  options.log_level = flags.log_level;
  options.election.index = allocation.node_id;
  options.election.node_count = allocation.node_count();
  options.election.give_up = FromSeconds(flags.give_up_seconds);
  options.monitor.run = allocation.restart_count;
  options.monitor.max_requeues = flags.max_requeues;
  if (job.spec.train) options.monitor.max_in_vain = job.spec.restart.max_without_progress;
  options.monitor.timeout = FromSeconds(flags.wait_seconds);
  if (flags.stop_lead_seconds) options.monitor.lead = FromSeconds(*flags.stop_lead_seconds);
  return options;
}

}  // namespace muster::worker
