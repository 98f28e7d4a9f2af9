#include "coordinator/scheduler/wait_reason.h"

#include <bit>
#include <numeric>
#include <string_view>

#include "common/base/byte_size.h"
#include "common/base/strings.h"
#include "common/resources/lack_words.h"
#include "coordinator/queues/share_tree.h"

namespace muster {
namespace {

std::string CountText(int n, std::string_view one, std::string_view many) {
  return std::to_string(n) + " " + std::string(n == 1 ? one : many);
}

std::string SizeText(std::uint64_t bytes) {
  return FormatByteSize(static_cast<std::int64_t>(bytes));
}

// "8 H100 or H200 GPUs of 80 GB".
std::string GpuText(const NodeDemand& demand, int count) {
  const DeviceDemand& devices = demand.devices;
  std::string kinds;
  for (const std::string& kind : devices.kinds) kinds += (kinds.empty() ? "" : " or ") + kind;
  std::string text = std::to_string(count) + " " + kinds + (kinds.empty() ? "" : " ") +
                     (count == 1 ? "GPU" : "GPUs");
  if (devices.min_memory_bytes > 0) text += " of " + SizeText(devices.min_memory_bytes);
  return text;
}

// What one node must have of that; `free`: "free slots".
std::string WantedText(const NodeDemand& demand, Lack lack, std::string_view free) {
  const std::string is_free(free);
  switch (lack) {
    case Lack::kNothing: break;
    case Lack::kLabels: {
      std::vector<std::string> rules;
      for (const LabelRule& rule : demand.labels) rules.push_back(rule.Text());
      return "the labels " + Join(rules);
    }
    case Lack::kPlace: return "a known " + std::string(Name(demand.topology.within));
    case Lack::kDevices:
    case Lack::kDeviceKind: return is_free + GpuText(demand, demand.device_count());
    case Lack::kSlots: return CountText(demand.ranks, is_free + "slot", is_free + "slots");
    case Lack::kCpus: return CountText(demand.cpus(), is_free + "CPU", is_free + "CPUs");
    case Lack::kMemory: return SizeText(demand.memory_bytes()) + " of " + is_free + "memory";
  }
  return "nothing";
}

int Sum(const LackCounts& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

}  // namespace

std::string WaitText(const WaitReason& reason) {
  const NodeDemand& demand = reason.demand;
  std::string text = "needs " + CountText(reason.nodes, "node", "nodes") + " with " +
                     CountText(demand.ranks, "free slot", "free slots");
  if (demand.device_count() > 0) text += " and " + GpuText(demand, demand.device_count());
  text += reason.nodes == 1 ? "; " : " each; ";
  if (IsOfUser(reason.over_ceiling))
    return text + UserCeilingText(reason.over_ceiling, reason.used,
                                  {.gpus = reason.nodes * demand.device_count(),
                                   .slots = reason.nodes * demand.ranks},
                                  reason.ceiling);
  if (!reason.over_ceiling.empty())
    return text + "queue " + reason.over_ceiling + " would exceed its ceiling";
  if (reason.ready == 0) return text + "no node is ready";
  text += reason.with_room == 0
              ? "no ready node has room"
              : CountText(reason.with_room, "ready node has room", "ready nodes have room");
  if (reason.with_room >= reason.nodes) {
    text += ", at most " + std::to_string(reason.in_one_place) + " in one " +
            std::string(Name(demand.topology.within));
  }
  if (reason.reserved > 0) {
    const std::string& ahead = reason.reserved_for.value;
    text += ", " + CountText(reason.reserved, "is", "are") + " kept for " +
            (ahead.empty() ? "jobs" : "job " + ahead) + " ahead of it";
  }
  for (int i = 0; i < kLackCount; ++i) {
    const auto lack = static_cast<Lack>(i);
    if (const int count = Count(reason.occupied, lack); count > 0)
      text += ", " + CountText(count, "has ", "have ") + std::string(LackWords(Name(lack), true));
  }
  if (reason.collects) text += "; nodes are kept for it as they become free";
  const int suited = reason.ready - reason.excluded - Sum(reason.unsuited);
  if (suited >= reason.nodes) return text;
  text += "; cannot be placed on the nodes that are ready now: " +
          CountText(suited, "is suitable", "are suitable");
  for (int i = 0; i < kLackCount; ++i) {
    const auto lack = static_cast<Lack>(i);
    if (const int count = Count(reason.unsuited, lack); count > 0)
      text += ", " + CountText(count, "has ", "have ") + std::string(LackWords(Name(lack), false));
  }
  if (reason.excluded > 0) text += ", " + CountText(reason.excluded, "is", "are") + " excluded";
  return text;
}

std::string UserCeilingText(std::string_view share, const Amounts& used, const Amounts& more,
                            const Amounts& ceiling) {
  const std::string user(UserOfShare(share));
  std::string has;
  const auto say = [&has](int count, int most, std::string_view one, std::string_view many) {
    has = std::to_string(count) + " of the " + CountText(most, one, many);
  };
  if (more.gpus > 0 && ceiling.gpus - more.gpus < used.gpus)
    say(used.gpus, ceiling.gpus, "GPU", "GPUs");
  else if (more.slots > 0 && ceiling.slots - more.slots < used.slots)
    say(used.slots, ceiling.slots, "slot", "slots");
  else
    say(used.jobs, ceiling.jobs, "running job", "running jobs");
  return (user.empty() ? "its owner" : user) + " has " + has + " that one user may have in queue " +
         std::string(QueueOfShare(share));
}

std::string MissText(const NearestMiss& nearest, int nodes) {
  std::string text = nodes == 1 ? "the cluster's node cannot" : "no node of the cluster can";
  text += " hold it: ";
  const NodeParts& parts = nearest.parts;
  if (nearest.excluded) return text + "resources.exclude names " + nearest.node.value;
  text += "it needs " + WantedText(nearest.demand, nearest.lack, "") + " per node; " +
          nearest.node.value + (nodes == 1 ? " has " : " comes nearest and has ");
  switch (nearest.lack) {
    case Lack::kDevices: return text + CountText(std::popcount(parts.devices), "GPU", "GPUs");
    case Lack::kDeviceKind: return text + std::to_string(nearest.suitable_devices) + " of them";
    case Lack::kSlots: return text + std::to_string(parts.slots);
    case Lack::kCpus: return text + std::to_string(parts.cpus);
    case Lack::kMemory: return text + SizeText(parts.memory_bytes);
    default: return text + "others";
  }
}

}  // namespace muster
