#include "common/slurm/allocation.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <string_view>

#include "common/slurm/hostlist.h"

namespace muster::slurm {
namespace {

constexpr char kStepLine[] =
    "srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 muster-worker --auto ...";

// The variables, each read by what it has to be. A variable that is set to nothing counts as not
// set, as for Slurm's own commands.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  const std::string* FindEvenEmpty(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? nullptr : &found->second;
  }

  const std::string* Find(const std::string& name) const {
    const std::string* value = FindEvenEmpty(name);
    return value == nullptr || value->empty() ? nullptr : value;
  }

  // The first of `names` that is set.
  std::string FirstOf(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (const std::string* value = Find(name)) return *value;
    return "";
  }

  // Nothing when it is not set.
  template <typename T>
  Result<std::optional<T>> Number(const std::string& name, T lowest) const {
    const std::string* value = Find(name);
    if (value == nullptr) return std::optional<T>();
    T number = 0;
    const char* const end = value->data() + value->size();
    const auto read = std::from_chars(value->data(), end, number);
    if (read.ec != std::errc() || read.ptr != end || number < lowest)
      return Bad(name, *value, "a number of at least " + std::to_string(lowest));
    return std::optional<T>(number);
  }

  static Status Bad(const std::string& name, const std::string& value, const std::string& want) {
    return InvalidArgument("environment variable " + name + " is '" + value.substr(0, 200) +
                           "', which is not " + want +
                           ": start this program by srun, with the variables that Slurm sets");
  }

 private:
  const Environment& environment_;
};

Status ReadIdentity(const Variables& variables, Allocation& allocation) {
  MUSTER_ASSIGN_OR_RETURN(const auto het_size, variables.Number<int>("SLURM_HET_SIZE", 0));
  allocation.het_size = het_size.value_or(0);
  const std::string first_component = "SLURM_JOB_ID_HET_GROUP_0";
  const bool het = allocation.het_size > 0 && variables.Find(first_component) != nullptr;
  MUSTER_ASSIGN_OR_RETURN(
      const auto job_id,
      variables.Number<std::uint64_t>(het ? first_component : std::string("SLURM_JOB_ID"), 1));
  allocation.job_id = job_id.value_or(0);
  MUSTER_ASSIGN_OR_RETURN(const auto array_job,
                          variables.Number<std::uint64_t>("SLURM_ARRAY_JOB_ID", 1));
  MUSTER_ASSIGN_OR_RETURN(const auto array_task,
                          variables.Number<std::uint64_t>("SLURM_ARRAY_TASK_ID", 0));
  if (array_job && array_task) allocation.array = ArrayTask{*array_job, *array_task};
  MUSTER_ASSIGN_OR_RETURN(const auto restarts, variables.Number<int>("SLURM_RESTART_COUNT", 0));
  allocation.restart_count = restarts.value_or(0);
  MUSTER_ASSIGN_OR_RETURN(allocation.end_unix_seconds,
                          variables.Number<std::int64_t>("SLURM_JOB_END_TIME", 1));
  allocation.cluster = variables.FirstOf({"SLURM_CLUSTER_NAME"});
  allocation.in_step = variables.Find("SLURM_STEP_ID") != nullptr;
  allocation.step = allocation.cluster + "/" + std::to_string(allocation.job_id) + "/" +
                    std::to_string(allocation.restart_count);
  // srun's own address and port distinguish what has the same numbers. Each component of a
  // heterogeneous job may have other ones.
  if (allocation.het_size == 0)
    for (const char* name :
         {"SLURM_STEP_ID", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_JOB_START_TIME"})
      allocation.step += "/" + variables.FirstOf({name});
  return OkStatus();
}

// The nodes of the variable that is set first.
Result<std::vector<std::string>> NodesOf(const Variables& variables,
                                         const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string* value = variables.Find(name);
    if (value == nullptr) continue;
    auto nodes = ExpandHostlist(*value);
    if (!nodes.ok()) return nodes.status().WithContext("environment variable " + name);
    return nodes;
  }
  return InvalidArgument("environment variable " + names.back() +
                         " is not set, which names the allocation's nodes: start this program by "
                         "srun, with the variables that Slurm sets");
}

Result<std::vector<std::string>> StepNodes(const Variables& variables,
                                           const Allocation& allocation) {
  // A step over several components has its tasks numbered through them, and a list for each.
  if (allocation.in_step && allocation.het_size > 0 &&
      variables.Find("SLURM_JOB_NODELIST_HET_GROUP_0") != nullptr) {
    MUSTER_ASSIGN_OR_RETURN(const auto step_nodes, variables.Number<int>("SLURM_NNODES", 1));
    std::vector<std::string> all;
    for (int group = 0; group < allocation.het_size; ++group) {
      MUSTER_ASSIGN_OR_RETURN(
          const std::vector<std::string> nodes,
          NodesOf(variables, {"SLURM_JOB_NODELIST_HET_GROUP_" + std::to_string(group)}));
      all.insert(all.end(), nodes.begin(), nodes.end());
    }
    // With fewer, the step is of one component alone.
    if (!step_nodes || *step_nodes == static_cast<int>(all.size())) return all;
  }
  if (allocation.in_step)
    return NodesOf(variables, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  return NodesOf(variables, {"SLURM_NODELIST", "SLURM_JOB_NODELIST"});
}

Status ReadNodes(const Variables& variables, Allocation& allocation) {
  MUSTER_ASSIGN_OR_RETURN(allocation.nodes, StepNodes(variables, allocation));
  MUSTER_ASSIGN_OR_RETURN(const auto node_id, variables.Number<int>("SLURM_NODEID", 0));
  allocation.node_id = node_id.value_or(0);
  const std::string own_name = variables.FirstOf({"SLURMD_NODENAME"});
  if (!own_name.empty()) {
    // The name decides: the number counts from the step's first node, and a step of one component
    // of a heterogeneous job is numbered in different ways by different versions.
    const auto found = std::find(allocation.nodes.begin(), allocation.nodes.end(), own_name);
    if (found == allocation.nodes.end())
      return InvalidArgument("environment variable SLURMD_NODENAME is '" + own_name +
                             "', which is none of the step's nodes " +
                             CompressHostlist(allocation.nodes) +
                             ": start this program by srun, with the variables that Slurm sets");
    allocation.node_id = static_cast<int>(found - allocation.nodes.begin());
  }
  if (allocation.node_id >= allocation.node_count())
    return Variables::Bad("SLURM_NODEID", std::to_string(allocation.node_id),
                          "a number below that of the step's nodes, which are " +
                              std::to_string(allocation.node_count()));
  allocation.node_name = allocation.nodes[static_cast<std::size_t>(allocation.node_id)];
  return OkStatus();
}

// One task on each node: it starts its node's ranks itself, and two would take the same GPUs.
Status CheckTasks(const Variables& variables, const Allocation& allocation) {
  if (!allocation.in_step) {
    if (allocation.node_count() == 1) return OkStatus();
    return InvalidArgument("this is the allocation's first shell, on one of its " +
                           std::to_string(allocation.node_count()) +
                           " nodes; each node needs a muster-worker: " + kStepLine);
  }
  const std::string* counts = variables.Find("SLURM_STEP_TASKS_PER_NODE");
  if (counts == nullptr) counts = variables.Find("SLURM_TASKS_PER_NODE");
  if (counts == nullptr) return OkStatus();
  const auto tasks = ExpandCounts(*counts);
  if (!tasks.ok()) return tasks.status().WithContext("environment variable of tasks per node");
  const int most = *std::max_element(tasks->begin(), tasks->end());
  if (most == 1) return OkStatus();
  return InvalidArgument(
      "the step has " + std::to_string(most) + " tasks on a node (" + *counts +
      "), but one muster-worker starts all ranks of its node, as the job file's ranks_per_node "
      "says: " +
      kStepLine);
}

// Where Slurm knows of none, the address is the node's name alone.
std::string SwitchesOver(const std::string& node, const Variables& variables) {
  const std::string address = variables.FirstOf({"SLURM_TOPOLOGY_ADDR"});
  if (!address.ends_with("." + node)) return "";
  return address.substr(0, address.size() - node.size() - 1);
}

Status ReadResources(const Variables& variables, Allocation& allocation) {
  MUSTER_ASSIGN_OR_RETURN(const auto cpus, variables.Number<int>("SLURM_CPUS_ON_NODE", 1));
  allocation.cpus_on_node = cpus.value_or(0);
  MUSTER_ASSIGN_OR_RETURN(const auto gpus, variables.Number<int>("SLURM_GPUS_ON_NODE", 0));
  allocation.gpus_on_node = gpus.value_or(0);
  if (const std::string* visible = variables.FindEvenEmpty("CUDA_VISIBLE_DEVICES"))
    allocation.visible_gpus = VisibleGpus(*visible);
  return OkStatus();
}

}  // namespace

std::vector<std::string> VisibleGpus(const std::string& visible) {
  std::vector<std::string> gpus;
  if (visible == "NoDevFiles") return gpus;
  std::istringstream names(visible);
  for (std::string name; std::getline(names, name, ',') && !name.starts_with('-');) {
    if (!name.empty()) gpus.push_back(name);
  }
  return gpus;
}

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

bool InAllocation(const Environment& environment) {
  return Variables(environment).Find("SLURM_JOB_ID") != nullptr;
}

Result<Allocation> ReadAllocation(const Environment& environment) {
  const Variables variables(environment);
  if (!InAllocation(environment))
    return FailedPrecondition(
        "SLURM_JOB_ID is not set, so this is no Slurm allocation: submit the job by `muster slurm "
        "submit JOB.yaml`, or start it in an sbatch script by `" +
        std::string(kStepLine) + "`");
  Allocation allocation;
  MUSTER_RETURN_IF_ERROR(ReadIdentity(variables, allocation));
  MUSTER_RETURN_IF_ERROR(ReadNodes(variables, allocation));
  MUSTER_RETURN_IF_ERROR(CheckTasks(variables, allocation));
  MUSTER_RETURN_IF_ERROR(ReadResources(variables, allocation));
  allocation.launch_address = variables.FirstOf({"SLURM_LAUNCH_NODE_IPADDR"});
  allocation.comm_host = variables.FirstOf({"SLURM_SRUN_COMM_HOST"});
  allocation.switches = SwitchesOver(allocation.node_name, variables);
  if (const std::string tmp = variables.FirstOf({"SLURM_TMPDIR", "TMPDIR"}); !tmp.empty())
    allocation.tmp_dir = tmp;
  return allocation;
}

}  // namespace muster::slurm
