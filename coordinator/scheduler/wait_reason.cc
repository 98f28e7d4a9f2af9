#include "coordinator/scheduler/wait_reason.h"

#include <string_view>

namespace muster {
namespace {

std::string Count(int n, std::string_view one, std::string_view many) {
  return std::to_string(n) + " " + std::string(n == 1 ? one : many);
}

}  // namespace

std::string WaitText(const WaitReason& reason) {
  std::string text = "needs " + Count(reason.nodes, "node", "nodes") + " with " +
                     Count(reason.ranks_per_node, "free slot", "free slots") +
                     (reason.nodes == 1 ? "; " : " each; ");
  if (reason.ready == 0) return text + "no node is ready";
  text += reason.with_room == 0
              ? "no ready node has room"
              : Count(reason.with_room, "ready node has room", "ready nodes have room");
  if (reason.reserved > 0) {
    text += ", " + Count(reason.reserved, "is", "are") + " kept for job " +
            reason.reserved_for.value + " ahead of it";
  }
  if (reason.gpus_taken > 0) {
    text += ", " + Count(reason.gpus_taken, "has", "have") + " free slots but " +
            (reason.gpus_taken == 1 ? "its GPUs are in use by job " + reason.gpu_job.value
                                    : "their GPUs are in use by other jobs") +
            " (a node runs one GPU job at a time)";
  }
  if (reason.large_enough < reason.nodes) {
    text += "; cannot be placed on the nodes that are ready now: " +
            Count(reason.large_enough, "is", "are") + " large enough";
    if (reason.excludes) text += " and not excluded";
  }
  if (reason.without_gpus > 0) {
    text += "; " + Count(reason.without_gpus, "ready node has no GPU", "ready nodes have no GPU") +
            " (resources.device: cuda)";
  }
  return text;
}

}  // namespace muster
