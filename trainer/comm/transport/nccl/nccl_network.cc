#include "trainer/comm/transport/nccl/nccl_network.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "common/base/files.h"
#include "common/base/strings.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; at != end; at.increment(error))
    entries.push_back(at->path());
  std::ranges::sort(entries);
  return entries;
}

bool HasActivePort(const fs::path& adapter) {
  return std::ranges::any_of(Entries(adapter / "ports"), [](const fs::path& port) {
    const Result<std::string> state = ReadFile((port / "state").string());
    return state.ok() && state->starts_with("4:");  // "4: ACTIVE"
  });
}

// Verbs (InfiniBand, RoCE, EFA), Omni-Path and Slingshot.
bool IsRdmaDevice(const std::string& file) {
  return file.starts_with("/dev/infiniband/uverbs") || file.starts_with("/dev/hfi1") ||
         file.starts_with("/dev/cxi");
}

}  // namespace

RdmaUse ReadRdmaUse(const std::string& root) {
  const fs::path base(root);
  RdmaUse use;
  for (const fs::path& adapter : Entries(base / "sys/class/infiniband"))
    if (HasActivePort(adapter)) use.adapters.push_back(adapter.filename().string());
  use.in_use = std::ranges::any_of(Entries(base / "proc/self/fd"), [](const fs::path& descriptor) {
    std::error_code error;
    return IsRdmaDevice(fs::read_symlink(descriptor, error).string());
  });
  return use;
}

std::string SocketFallback(const RdmaUse& use, const char* nccl_net) {
  const bool chosen = nccl_net != nullptr && AsciiLower(nccl_net) == "socket";
  if (use.adapters.empty() || (use.in_use && !chosen)) return "";
  return "use sockets between nodes, which are slower than RDMA, although this node has active "
         "adapters (" +
         Join(use.adapters) + "): " +
         (chosen ? "NCCL_NET is Socket"
                 : "NCCL has opened none. Check NCCL_IB_DISABLE and NCCL_IB_HCA; that the rank's "
                   "container has /dev/infiniband and libibverbs; for EFA, aws-ofi-nccl and "
                   "libfabric. NCCL_DEBUG=INFO shows what NCCL found");
}

}  // namespace muster
