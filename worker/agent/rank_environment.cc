#include "worker/agent/rank_environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string_view>

#include "common/control_pipe/trainer_protocol.h"
#include "worker/process/container_entry.h"

namespace muster::worker {
namespace {

using Environment = std::map<std::string, std::string>;

std::vector<std::string> Entries(const Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  return entries;
}

bool IsReserved(const std::string& name) {
  static const std::set<std::string, std::less<>> kNames = {
      "MASTER_ADDR",      "MASTER_PORT",         "RANK",      "LOCAL_RANK",
      "WORLD_SIZE",       "GROUP_RANK",          "ROLE_RANK", "NODE_RANK",
      "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",    "ROLE_NAME", "OMP_NUM_THREADS",
      "ROLE_WORLD_SIZE",  "CUDA_VISIBLE_DEVICES"};
  if (name == "TORCHELASTIC_RUN_ID") return false;
  return kNames.contains(name) || name.starts_with("TORCHELASTIC_") || name.starts_with("MUSTER_");
}

// What the ranks get of the worker's own. A container has programs and temporary files elsewhere.
Environment PassedThrough(const LaunchContext& context, const JobSpec& spec) {
  Environment passed = context.passed_through;
  if (spec.container.image.empty()) return passed;
  for (const char* of_the_node : {"PATH", "TMPDIR"}) passed.erase(of_the_node);
  return passed;
}

// The command line of a rank, which enters the job's container first if it has one.
std::vector<std::string> RankCommand(const LaunchContext& context, const JobSpec& spec,
                                     const std::string& job_dir) {
  std::vector<std::string> argv = {context.trainer_path, "train", job_dir + "/spec.yaml"};
  if (!spec.train) argv = spec.command;
  if (!spec.container.image.empty())
    argv.insert(argv.begin(), {context.guardian_path, kRunInContainer, ContainerFilePath(job_dir)});
  return argv;
}

// "0,2,1".
std::string NumberList(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// torchrun's names.
void AddRendezvous(const JobSpec& spec, const Launch& launch, const RankPlacement& placement,
                   Environment* env) {
  const std::string rank = std::to_string(placement.rank);
  const std::string world_size = std::to_string(launch.world_size);
  const std::string node_rank = std::to_string(launch.node_rank);
  (*env)["MASTER_ADDR"] = launch.master_address;
  (*env)["MASTER_PORT"] = std::to_string(launch.master_port);
  (*env)["RANK"] = rank;
  (*env)["LOCAL_RANK"] = std::to_string(placement.local_rank);
  (*env)["WORLD_SIZE"] = world_size;
  (*env)["LOCAL_WORLD_SIZE"] = std::to_string(launch.local_world_size);
  (*env)["GROUP_RANK"] = node_rank;
  (*env)["GROUP_WORLD_SIZE"] = std::to_string(launch.node_count);
  (*env)["ROLE_RANK"] = rank;
  (*env)["ROLE_WORLD_SIZE"] = world_size;
  (*env)["ROLE_NAME"] = "default";
  (*env)["NODE_RANK"] = node_rank;
  (*env)["TORCHELASTIC_RESTART_COUNT"] = std::to_string(launch.restart_count);
  (*env)["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(launch.max_restarts);
  // The job's own value wins: it may continue from what an earlier job of that run has left.
  if (!spec.env.contains("TORCHELASTIC_RUN_ID")) (*env)["TORCHELASTIC_RUN_ID"] = launch.job.value;
  (*env)["OMP_NUM_THREADS"] = std::to_string(spec.resources.cpus_per_rank);
  if (!spec.train) {
    const bool agent = spec.rendezvous == RendezvousKind::kAgent;
    (*env)["TORCHELASTIC_USE_AGENT_STORE"] = agent ? "True" : "False";
    // A user's program has no other way to get it.
    if (!launch.rendezvous_token.empty())
      (*env)[kRendezvousTokenVariable] = launch.rendezvous_token;
  }
}

// Collectives use the interface by which the node is reached, unless the job names another: by
// default NCCL and Gloo may choose one that leads nowhere.
void AddNetwork(const LaunchContext& context, Environment* env) {
  std::string names;
  for (const std::string& one : context.interfaces) names += (names.empty() ? "" : ",") + one;
  if (names.empty()) return;
  env->try_emplace("NCCL_SOCKET_IFNAME", "=" + names);  // "=": these names, not prefixes
  env->try_emplace("GLOO_SOCKET_IFNAME", names);
  (*env)[kBindAddressVariable] = context.address;
}

bool HasFakeGpus(const LaunchContext& context) {
  return !context.devices.empty() && context.devices.front().device.fake;
}

std::vector<const NodeDevice*> Find(const LaunchContext& context,
                                    const std::vector<std::string>& ids) {
  std::vector<const NodeDevice*> found;
  for (const std::string& id : ids)
    if (const NodeDevice* one = FindDevice(context.devices, id)) found.push_back(one);
  return found;
}

// Whether two ranks of the job on this node compute on one GPU.
bool ShareGpus(const LaunchContext& context, const JobSpec& spec, const Prepare& prepare) {
  std::map<std::string, int> rank_of_gpu;
  for (const RankPlacement& rank : prepare.ranks)
    for (const NodeDevice* one : Find(context, DevicesOfRank(spec, prepare, rank.local_rank)))
      if (rank_of_gpu.try_emplace(one->gpu, rank.rank).first->second != rank.rank) return true;
  return false;
}

// A rank sees only its own GPUs, or all that the job has on the node if a command chooses itself;
// an empty list hides all of them from a rank that has none. If ranks share one, each must look
// like a separate host to NCCL, which otherwise refuses the second one on a GPU.
void AddGpus(const LaunchContext& context, const JobSpec& spec, const Prepare& prepare,
             const RankPlacement& placement, Environment* env) {
  std::string& visible = (*env)["CUDA_VISIBLE_DEVICES"];
  visible.clear();
  if (spec.resources.device != "cuda") return;
  std::set<std::string> names;  // two shares of one GPU are one to CUDA
  for (const NodeDevice* one :
       Find(context, DevicesSeenByRank(spec, prepare, placement.local_rank)))
    if (names.insert(one->cuda_name).second)
      visible += (visible.empty() ? "" : ",") + one->cuda_name;
  // Numbers count as in the driver and Slurm, not by CUDA's estimate of the fastest.
  env->try_emplace("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  if (HasFakeGpus(context)) (*env)[kFakeGpusVariable] = "1";
  if (!spec.resources.sees_all_gpus && ShareGpus(context, spec, prepare))
    (*env)["NCCL_HOSTID"] = prepare.job.value + "-" + std::to_string(placement.rank);
}

GuardianLaunch StoreLaunch(const LaunchContext& context, const JobSpec& spec,
                           const Prepare& prepare, const std::string& job_dir) {
  Environment env = context.passed_through;
  env[kListenFdVariable] = std::to_string(kRankListenFd);
  env[kJobIdVariable] = prepare.job.value;
  env[kGenerationVariable] = std::to_string(prepare.generation);
  env["OMP_NUM_THREADS"] = "1";
  env["CUDA_VISIBLE_DEVICES"] = "";
  // Marks the process as this node's for the scan that proves a dead guardian's processes gone.
  env["TORCHELASTIC_ERROR_FILE"] = ErrorFilePath(job_dir, prepare.generation, kStoreRank);
  return {.generation = prepare.generation,
          .rank = kStoreRank,
          .argv = {context.trainer_path, "store"},
          .environment = Entries(env),
          .working_directory = spec.workdir,
          .log_path = LogDirectory(prepare.output_dir, prepare.generation) + "/store.log",
          .listen = true};
}

}  // namespace

std::map<std::string, std::string> PassedThroughVariables() {
  Environment passed;
  // The last one is for tests (trainer/supervise/rank_faults.h).
  for (const char* name : {"PATH", "HOME", "LANG", "USER", "TMPDIR", "MUSTER_MICRO_BATCH_PAUSE"})
    if (const char* value = std::getenv(name)) passed[name] = value;
  // A site's network settings for NCCL and for libfabric, by which NCCL uses EFA.
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (const std::size_t equals = text.find('=');
        (text.starts_with("NCCL_") || text.starts_with("FI_")) && equals != text.npos)
      passed.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return passed;
}

std::vector<std::string> DevicesOfRank(const JobSpec& spec, const Prepare& prepare,
                                       int local_rank) {
  const auto per_rank = static_cast<std::size_t>(spec.resources.gpus.per_rank);
  const std::size_t all = prepare.devices.size();
  const std::size_t begin = std::min(static_cast<std::size_t>(local_rank) * per_rank, all);
  const auto first = prepare.devices.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(std::min(per_rank, all - begin))};
}

std::vector<std::string> DevicesSeenByRank(const JobSpec& spec, const Prepare& prepare,
                                           int local_rank) {
  return spec.resources.sees_all_gpus ? prepare.devices : DevicesOfRank(spec, prepare, local_rank);
}

Status CheckJobEnvironment(const JobSpec& spec) {
  for (const auto& [name, value] : spec.env)
    if (IsReserved(name))
      return InvalidArgument("env." + name +
                             ": Muster sets this variable itself; remove it from the job file");
  return OkStatus();
}

std::vector<std::string> BuildRankEnvironment(const LaunchContext& context, const JobSpec& spec,
                                              const Prepare& prepare, const Launch& launch,
                                              const RankPlacement& placement,
                                              const std::string& job_dir) {
  Environment env = PassedThrough(context, spec);
  for (const auto& [name, value] : spec.env) env[name] = value;
  AddRendezvous(spec, launch, placement, &env);
  AddNetwork(context, &env);
  AddGpus(context, spec, prepare, placement, &env);
  const Generation generation = prepare.generation;
  env["TORCHELASTIC_ERROR_FILE"] = ErrorFilePath(job_dir, generation, placement.rank);
  env[kJobIdVariable] = prepare.job.value;
  env[kGenerationVariable] = std::to_string(generation);
  env[kCheckpointDirVariable] = prepare.output_dir + "/checkpoints";
  if (spec.train) {
    env[kAssignVariable] = "1";
    env[kControlFdVariable] = std::to_string(kRankControlFd);
    env[kProgressFdVariable] = std::to_string(kRankProgressFd);
    env[kResumeFileVariable] = ResumeFilePath(job_dir, generation);
    if (!launch.buddy_ring.empty()) env[kBuddyRingVariable] = NumberList(launch.buddy_ring);
  }
  return Entries(env);
}

MasterSocket MasterSocketFor(const JobSpec& spec, bool hosts_master) {
  if (!hosts_master) return MasterSocket::kNone;
  const bool program_binds = !spec.train && spec.rendezvous == RendezvousKind::kRank0;
  return program_binds ? MasterSocket::kBindOnly : MasterSocket::kListen;
}

CpuBindingPlan PlanRankCpus(const LaunchContext& context, const JobSpec& spec,
                            const Prepare& prepare) {
  const int ranks = static_cast<int>(prepare.ranks.size());
  if (spec.resources.cpu_binding == "none")
    return NoCpuBinding(ranks, "resources.cpu_binding is none");
  if (context.cpus.cores.empty())
    return NoCpuBinding(ranks, "this node's worker runs with --no-cpu-binding");
  for (const char* own : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"})
    if (spec.env.contains(own))
      return NoCpuBinding(ranks, std::string("env.") + own + " places its threads");
  CpuBindingRequest request{.ranks = ranks,
                            .cpus_per_rank = spec.resources.cpus_per_rank,
                            .whole_node = ranks >= context.slots};
  if (spec.resources.device != "cuda") return PlanCpuBinding(context.cpus, request);
  for (const RankPlacement& rank : prepare.ranks) {
    std::set<int> nodes;
    for (const NodeDevice* one : Find(context, DevicesOfRank(spec, prepare, rank.local_rank)))
      nodes.insert(one->device.numa_node);
    if (nodes.size() > 1) return NoCpuBinding(ranks, "a rank has GPUs of several NUMA nodes");
    request.gpu_nodes.push_back(nodes.empty() ? -1 : *nodes.begin());
  }
  return PlanCpuBinding(context.cpus, request);
}

std::vector<GuardianLaunch> BuildLaunches(const LaunchContext& context, const JobSpec& spec,
                                          const Prepare& prepare, const Launch& launch,
                                          const std::string& job_dir) {
  std::vector<GuardianLaunch> launches;
  const MasterSocket master = MasterSocketFor(spec, prepare.hosts_master);
  if (!spec.train && master == MasterSocket::kListen)
    launches.push_back(StoreLaunch(context, spec, prepare, job_dir));
  const std::vector<std::string> argv = RankCommand(context, spec, job_dir);
  std::vector<int> node_ranks;
  for (const RankPlacement& placement : prepare.ranks) node_ranks.push_back(placement.rank);
  const CpuBindingPlan cpus = PlanRankCpus(context, spec, prepare);
  for (const RankPlacement& placement : prepare.ranks) {
    const RankCpus& kept_to =
        cpus.ranks[static_cast<std::size_t>(placement.local_rank) % cpus.ranks.size()];
    launches.push_back(
        {.generation = prepare.generation,
         .rank = placement.rank,
         .argv = argv,
         .environment = BuildRankEnvironment(context, spec, prepare, launch, placement, job_dir),
         .working_directory = spec.workdir,
         .log_path = RankLogPath(prepare.output_dir, prepare.generation, placement.rank),
         .control = spec.train.has_value(),
         .listen = spec.train.has_value() && placement.rank == 0 && prepare.hosts_master,
         .node_ranks = node_ranks,
         .cpus = kept_to.cpus,
         .memory_node = kept_to.memory_node,
         .rendezvous_token = spec.train ? launch.rendezvous_token : "",
         .devices = DevicesSeenByRank(spec, prepare, placement.local_rank)});
  }
  return launches;
}

GuardianStandby BuildStandby(const LaunchContext& context, const JobSpec& spec,
                             const Prepare& prepare, const std::string& job_dir) {
  Environment env = PassedThrough(context, spec);
  for (const auto& [name, value] : spec.env) env[name] = value;
  env["OMP_NUM_THREADS"] = std::to_string(spec.resources.cpus_per_rank);
  // Which GPU it gets is not known yet.
  if (spec.resources.device != "cuda")
    env["CUDA_VISIBLE_DEVICES"] = "";
  else if (HasFakeGpus(context))
    env[kFakeGpusVariable] = "1";
  // Marks the process as this node's for the scan that proves a dead guardian's processes gone.
  env["TORCHELASTIC_ERROR_FILE"] = job_dir + "/errors/standby.json";
  env[kJobIdVariable] = prepare.job.value;
  env[kControlFdVariable] = std::to_string(kRankControlFd);
  env[kProgressFdVariable] = std::to_string(kRankProgressFd);
  env[kAssignVariable] = "1";
  return {.count = prepare.standbys,
          .at_once = prepare.spare,
          .launch = {.argv = RankCommand(context, spec, job_dir),
                     .environment = Entries(env),
                     .working_directory = spec.workdir,
                     .log_path = job_dir + "/standby.log",
                     .control = true}};
}

std::string RanksDirectory(const LaunchContext& context, const std::string& job_dir) {
  if (context.launcher_dir.empty()) return job_dir;
  return context.launcher_dir + job_dir.substr(job_dir.rfind('/')) + "/run";
}

std::string ContainerFilePath(const std::string& job_dir) { return job_dir + "/container.json"; }

std::string ResumeFilePath(const std::string& job_dir, Generation generation) {
  return job_dir + "/resume-g" + std::to_string(generation) + ".json";
}

std::string ErrorFilePath(const std::string& job_dir, Generation generation, int rank) {
  return job_dir + "/errors/g" + std::to_string(generation) + "-" +
         (rank == kStoreRank ? "store" : "rank-" + std::to_string(rank)) + ".json";
}

std::string LogDirectory(const std::string& output_dir, Generation generation) {
  return output_dir + "/logs/" + std::to_string(generation);
}

std::string RankLogPath(const std::string& output_dir, Generation generation, int rank) {
  return LogDirectory(output_dir, generation) + "/rank-" + std::to_string(rank) + ".log";
}

}  // namespace muster::worker
