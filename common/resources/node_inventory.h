// NodeInventory: what a node has for jobs: its devices by id, processors, memory, labels, and its
// place in the network. A worker reports it in each Hello; the scheduler gives its parts to gangs.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace muster {

// What may be allocated on one node: an allocation is a bit mask of these.
inline constexpr int kMaxDevicesPerNode = 64;

// A GPU, a MIG device, or a share of a GPU that several ranks use at the same time. Only one job
// has it at a time.
struct Device {
  std::string id;                  // "GPU-8a0e...", "MIG-..."; of a share "GPU-8a0e...#2"
  std::string kind;                // "NVIDIA H100 80GB HBM3"; empty: not known
  std::uint64_t memory_bytes = 0;  // 0: not known
  int numa_node = -1;              // -1: not known
  std::string link_domain;         // NVLink joins devices of one domain; empty: none
  std::string fault;               // why no job gets it; empty: it is healthy
  bool fake = false;               // invented, for tests of placement; there is no such device
  bool shared = false;             // other ranks may compute on the same GPU

  friend bool operator==(const Device&, const Device&) = default;
};

// Where a node is in the network, from the widest to the narrowest. Empty: not known.
struct TopologyPath {
  std::string block;
  std::string rack;
  std::string switch_name;

  friend bool operator==(const TopologyPath&, const TopologyPath&) = default;
};

struct NodeInventory {
  std::vector<Device> devices;  // in the order of their indices on the node
  int cpus = 0;                 // that its ranks may have together; 0: not known
  std::uint64_t memory_bytes = 0;
  std::map<std::string, std::string> labels;
  TopologyPath topology;

  friend bool operator==(const NodeInventory&, const NodeInventory&) = default;
};

}  // namespace muster
