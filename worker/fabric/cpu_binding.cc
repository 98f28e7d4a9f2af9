#include "worker/fabric/cpu_binding.h"

#include <algorithm>
#include <map>

#include "common/base/result.h"

namespace muster::worker {
namespace {

using CoresByNode = std::map<int, std::vector<Core>>;

std::string Count(std::size_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

CoresByNode ByNode(const CpuTopology& topology) {
  CoresByNode nodes;
  for (const Core& core : topology.cores) nodes[core.node].push_back(core);
  return nodes;
}

// Of `cores`, from the first to before the last.
RankCpus Take(const std::vector<Core>& cores, std::size_t first, std::size_t last) {
  RankCpus taken;
  bool one_node = true;
  for (std::size_t i = first; i < last; ++i) {
    taken.cpus.insert(taken.cpus.end(), cores[i].cpus.begin(), cores[i].cpus.end());
    one_node = one_node && cores[i].node == cores[first].node;
  }
  std::sort(taken.cpus.begin(), taken.cpus.end());
  if (one_node) taken.memory_node = cores[first].node;
  return taken;
}

// An error contains the reason.
Result<std::vector<RankCpus>> ByGpu(const CoresByNode& nodes, const CpuBindingRequest& request) {
  std::map<int, int> sharing;
  for (const int node : request.gpu_nodes) ++sharing[node];
  std::vector<RankCpus> ranks;
  for (const int node : request.gpu_nodes) {
    if (node < 0) return NotFound("the NUMA node of a GPU is not known");
    const std::string name = "NUMA node " + std::to_string(node) + ", that of a GPU,";
    const auto cores = nodes.find(node);
    if (cores == nodes.end()) return NotFound("no processor of " + name + " may be used");
    ranks.push_back(Take(cores->second, 0, cores->second.size()));
    const int wanted = sharing[node] * request.cpus_per_rank;
    if (static_cast<int>(ranks.back().cpus.size()) < wanted)
      return FailedPrecondition("of " + name + " " + Count(ranks.back().cpus.size(), "processor") +
                                " may be used, fewer than the " + std::to_string(wanted) +
                                " threads of its ranks (resources.cpus_per_rank)");
  }
  return ranks;
}

Result<std::vector<RankCpus>> Evenly(const CpuTopology& topology,
                                     const CpuBindingRequest& request) {
  if (request.ranks < 2) return FailedPrecondition("a single rank may use all processors");
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const std::size_t cores = topology.cores.size();
  if (cores < ranks)
    return FailedPrecondition("this node has " + Count(cores, "core") +
                              " that may be used, fewer than ranks");
  std::vector<RankCpus> even;
  for (std::size_t i = 0; i < ranks; ++i) {
    even.push_back(Take(topology.cores, i * cores / ranks, (i + 1) * cores / ranks));
    if (static_cast<int>(even.back().cpus.size()) < request.cpus_per_rank)
      return FailedPrecondition("a rank's share of " + std::to_string(topology.cpus()) +
                                " processors is smaller than resources.cpus_per_rank, " +
                                std::to_string(request.cpus_per_rank));
  }
  return even;
}

// In the order of local ranks.
std::string Lists(const std::vector<RankCpus>& ranks) {
  std::string text;
  for (const RankCpus& rank : ranks) text += (text.empty() ? "" : " | ") + FormatCpuList(rank.cpus);
  return text;
}

}  // namespace

CpuBindingPlan NoCpuBinding(int ranks, const std::string& why) {
  return {.ranks = std::vector<RankCpus>(static_cast<std::size_t>(ranks)),
          .sentence = "ranks are kept to no processors: " + why};
}

CpuBindingPlan PlanCpuBinding(const CpuTopology& topology, const CpuBindingRequest& request) {
  const CoresByNode nodes = ByNode(topology);
  if (nodes.size() < 2)
    return NoCpuBinding(request.ranks,
                        "all that may be used are of one NUMA node, where the kernel places ranks "
                        "well");
  const bool gpus = !request.gpu_nodes.empty();
  Result<std::vector<RankCpus>> ranks =
      FailedPrecondition("the job has not all slots of this node, so that another one may come");
  if (request.whole_node) ranks = gpus ? ByGpu(nodes, request) : Evenly(topology, request);
  CpuBindingPlan plan;
  if (!ranks.ok()) {
    plan = NoCpuBinding(request.ranks, ranks.status().message());
  } else {
    plan.ranks = std::move(*ranks);
    plan.sentence = std::string("ranks are kept to ") +
                    (gpus ? "the processors of their GPU's NUMA node"
                          : "an even share of their node's processors each") +
                    ": " + Lists(plan.ranks);
  }
  plan.notable = true;
  return plan;
}

}  // namespace muster::worker
