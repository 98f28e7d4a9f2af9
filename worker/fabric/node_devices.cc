#include "worker/fabric/node_devices.h"

#include <algorithm>
#include <utility>

#include "common/base/byte_size.h"

namespace muster::worker {
namespace {

// What a report says of a device; those that are alike are counted.
std::string Description(const Device& device) {
  std::string text = device.kind.empty() ? "an unknown kind" : device.kind;
  if (device.memory_bytes > 0)
    text += ", " + FormatByteSize(static_cast<std::int64_t>(device.memory_bytes));
  if (device.fake) text += ", fake";
  if (device.shared) text += ", shared";
  if (!device.fault.empty()) text += ", no job gets it: " + device.fault;
  return text;
}

}  // namespace

const NodeDevice* FindDevice(const std::vector<NodeDevice>& devices, const std::string& id) {
  const auto found =
      std::ranges::find(devices, id, [](const NodeDevice& one) { return one.device.id; });
  return found == devices.end() ? nullptr : &*found;
}

Result<std::vector<NodeDevice>> OfferShares(std::vector<NodeDevice> devices, int shares) {
  const std::size_t all = devices.size() * static_cast<std::size_t>(shares);
  if (all > kMaxDevicesPerNode)
    return InvalidArgument(
        "this node would have " + std::to_string(all) + " devices, and may have " +
        std::to_string(kMaxDevicesPerNode) +
        (shares > 1 ? "; lower --oversubscribe-gpus, or give it fewer GPUs (CUDA_VISIBLE_DEVICES)"
                    : "; give it fewer GPUs (CUDA_VISIBLE_DEVICES)"));
  if (shares <= 1) return devices;
  for (NodeDevice& one : devices) one.device.shared = true;
  const std::size_t count = devices.size();
  for (int share = 2; share <= shares; ++share) {
    for (std::size_t i = 0; i < count; ++i) {
      devices.push_back(devices[i]);
      devices.back().device.id += "#" + std::to_string(share);
    }
  }
  return devices;
}

std::vector<std::string> DeviceIdsOf(const std::vector<NodeDevice>& devices,
                                     const std::string& gpu_index) {
  std::vector<std::string> ids;
  for (const NodeDevice& one : devices)
    if (std::to_string(one.gpu_index) == gpu_index) ids.push_back(one.device.id);
  return ids;
}

std::string DescribeDevices(const std::vector<NodeDevice>& devices) {
  std::vector<std::pair<std::string, int>> counts;
  for (const NodeDevice& one : devices) {
    const std::string text = Description(one.device);
    const auto same = std::ranges::find(counts, text, &std::pair<std::string, int>::first);
    if (same == counts.end())
      counts.emplace_back(text, 1);
    else
      ++same->second;
  }
  std::string text;
  for (const auto& [what, count] : counts)
    text += (text.empty() ? "" : "; ") + std::to_string(count) + " of " + what;
  return text;
}

}  // namespace muster::worker
