// NodeDevice: a device that jobs get by its id, and by what this node's ranks reach it.
//
// Plain values and pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/resources/node_inventory.h"

namespace muster::worker {

struct NodeDevice {
  Device device;
  std::string cuda_name;    // as CUDA_VISIBLE_DEVICES names it; of a share that of its GPU
  std::string gpu;          // equal for all shares and MIG devices of one GPU
  int gpu_index = -1;       // of that GPU, in the order of PCI addresses; -1: not known
  std::string pci_address;  // of that GPU, "0000:3b:00.0"; empty: not known

  friend bool operator==(const NodeDevice&, const NodeDevice&) = default;
};

// Null: there is none of this id.
const NodeDevice* FindDevice(const std::vector<NodeDevice>& devices, const std::string& id);

// Each device as often as `shares` says: "GPU-1", "GPU-1#2", ..., all first shares before all
// second ones, so that they are taken in turn. kInvalidArgument: more than a node may have.
Result<std::vector<NodeDevice>> OfferShares(std::vector<NodeDevice> devices, int shares);

// The ids of all devices of the GPU with this index. Empty: no job gets it.
std::vector<std::string> DeviceIdsOf(const std::vector<NodeDevice>& devices,
                                     const std::string& gpu_index);

// "8 of NVIDIA H100 80GB HBM3, 80 GB" with what is unusual about them, for people; empty: none.
std::string DescribeDevices(const std::vector<NodeDevice>& devices);

}  // namespace muster::worker
