#include "coordinator/control/cuda_stacks.h"

#include <cstdlib>
#include <map>
#include <string>

namespace muster {
namespace {

// "n1, n2: 2.28.9; n3: 2.27.5" if there is more than one version, else empty.
std::string Differences(const std::vector<NodeStack>& nodes, std::string CudaStack::*version) {
  std::map<std::string, std::string> names;
  for (const NodeStack& node : nodes) {
    std::string& list = names[node.stack.*version];
    list += (list.empty() ? "" : ", ") + node.node.value;
  }
  if (names.size() < 2) return "";
  std::string text;
  for (const auto& [value, list] : names) {
    text += (text.empty() ? "" : "; ") + list + ": " + (value.empty() ? "none" : value);
  }
  return text;
}

// CUDA releases with the same major number run on each other's drivers.
int Major(const std::string& version) { return std::atoi(version.c_str()); }

Status CheckNode(const NodeStack& node) {
  const CudaStack& stack = node.stack;
  const std::string name = "node " + node.node.value;
  if (stack.driver.empty()) {
    return FailedPrecondition(name + " has no NVIDIA driver that answers; see `nvidia-smi` there");
  }
  if (stack.nccl.empty()) {
    return FailedPrecondition(name + " cannot load NCCL; run deploy/install-deps --cuda there");
  }
  if (Major(stack.driver) < Major(stack.runtime)) {
    return FailedPrecondition(name + " has a driver for CUDA " + stack.driver +
                              ", the plug-in needs one for CUDA " + stack.runtime +
                              "; update the driver there");
  }
  return OkStatus();
}

}  // namespace

Status CheckCudaStacks(const std::vector<NodeStack>& nodes) {
  for (const NodeStack& node : nodes) MUSTER_RETURN_IF_ERROR(CheckNode(node));
  if (const std::string text = Differences(nodes, &CudaStack::plugin); !text.empty()) {
    return FailedPrecondition("the nodes have different CUDA plug-ins (" + text +
                              "); install one build of Muster on all of them");
  }
  if (const std::string text = Differences(nodes, &CudaStack::nccl); !text.empty()) {
    return FailedPrecondition("the nodes have different releases of NCCL (" + text +
                              "), which are not compatible; install one on all of them");
  }
  return OkStatus();
}

}  // namespace muster
