#include "trainer/ops/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace muster {
namespace {

using c10::CachingAllocator::StatType;

std::uint64_t Unsigned(std::int64_t value) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, value));
}

// The allocator keeps no peak of the whole device's use; this process keeps its own.
std::uint64_t PeakInUse(std::uint64_t in_use) {
  static std::uint64_t peak = 0;
  peak = std::max(peak, in_use);
  return peak;
}

}  // namespace

DeviceMemory ReadDeviceMemory(const at::Device& device) {
  DeviceMemory memory;
  if (device.is_cpu()) return memory;
  try {
    c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
    if (!allocator->initialized()) return memory;
    const auto stats = allocator->getDeviceStats(device.index());
    const auto all = static_cast<std::size_t>(StatType::AGGREGATE);
    const auto [free, total] = allocator->getMemoryInfo(device.index());
    const std::uint64_t in_use = total - std::min(free, total);
    memory.capacity = total;
    memory.active = Unsigned(stats.active_bytes[all].current);
    memory.allocated = Unsigned(stats.allocated_bytes[all].current);
    memory.reserved = std::max(Unsigned(stats.reserved_bytes[all].current), in_use);
    memory.peak_active = Unsigned(stats.active_bytes[all].peak);
    memory.peak_allocated = Unsigned(stats.allocated_bytes[all].peak);
    memory.peak_reserved = std::max(Unsigned(stats.reserved_bytes[all].peak), PeakInUse(in_use));
    memory.alloc_retries = Unsigned(stats.num_alloc_retries);
    memory.ooms = Unsigned(stats.num_ooms);
  } catch (const c10::Error&) {
    // Figures are not worth a training run.
    return {};
  }
  return memory;
}

}  // namespace muster
