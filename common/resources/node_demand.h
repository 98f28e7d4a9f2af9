// NodeDemand: what a job asks of each of its nodes. Parsed from `resources` of a job file.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// A condition on one label of a node.
struct LabelRule {
  enum class Kind { kIn, kNotIn, kExists, kAbsent };
  std::string key;
  Kind kind = Kind::kExists;
  std::vector<std::string> values;  // of kIn and kNotIn

  // A node without the label fulfils kNotIn.
  bool Allows(const std::map<std::string, std::string>& labels) const;
  // "pool in (a, b)".
  std::string Text() const;
  friend bool operator==(const LabelRule&, const LabelRule&) = default;
};

// Which devices suit a job.
struct DeviceDemand {
  int per_rank = 0;
  std::vector<std::string> kinds;      // any of these; empty: any
  std::uint64_t min_memory_bytes = 0;  // of each

  friend bool operator==(const DeviceDemand&, const DeviceDemand&) = default;
};

// Whether a device of kind `kind` is one of `wanted`: a word of its name, or its whole name,
// without regard to case: "H100" is "NVIDIA H100 80GB HBM3".
bool IsKind(std::string_view kind, std::string_view wanted);

enum class TopologyLevel { kNone, kBlock, kRack, kSwitch };

// All nodes of a gang in one block, rack or switch.
struct TopologyDemand {
  TopologyLevel within = TopologyLevel::kNone;
  bool required = true;  // false: where that is possible now

  friend bool operator==(const TopologyDemand&, const TopologyDemand&) = default;
};

struct NodeDemand {
  int ranks = 1;
  DeviceDemand devices;
  int cpus_per_rank = 1;
  std::uint64_t memory_per_rank = 0;  // bytes; 0: not limited
  std::vector<LabelRule> labels;      // all of these
  TopologyDemand topology;

  int device_count() const { return ranks * devices.per_rank; }
  int cpus() const { return ranks * cpus_per_rank; }
  std::uint64_t memory_bytes() const { return static_cast<std::uint64_t>(ranks) * memory_per_rank; }
  friend bool operator==(const NodeDemand&, const NodeDemand&) = default;
};

}  // namespace muster
