// Which GPU a line of the kernel's log is about. Free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "worker/fabric/node_devices.h"

namespace muster::worker {

inline constexpr char kDriverGpusDir[] = "/proc/driver/nvidia/gpus";

// The index of the GPU at a PCI address ("0000:3b:00"): that of the device there, else counted as
// in the driver, in the order of addresses; the address itself if the driver's directory does not
// show it.
std::string GpuIndex(const std::vector<NodeDevice>& devices, const std::string& pci_address,
                     const std::string& gpus_dir = kDriverGpusDir);

}  // namespace muster::worker
