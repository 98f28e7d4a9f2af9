// What memory a rank of a job will take, part by part, before anything is started.
//
// Arrays are computed by the engine's own layouts (FlatLayout, GatherSlotCounts,
// PlanGradientMemory, MeasureActivations) for rows that are all as long as data.max_seq_len; what
// LibTorch and the CUDA runtime take besides is measured on a CPU and estimated on a GPU. Host
// memory is what a process has resident: an array that ranks share counts for each of them, and
// once for their node.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/plan/plan_job.h"

namespace muster {

enum class PartKind {
  kMaster,
  kMoments,
  kGradientSums,
  kComputeCopy,  // of this rank's shard, which gathers send
  kFrozen,
  kSnapshots,
  kBuddy,  // snapshots of another node's ranks
  kGathered,
  kGradientSlots,
  kPeerSlots,  // gradient slots of ranks of the same host, where this one reads its part of them
  kActivations,
  kHead,  // with its chunk of logits
  kCheckpointCopy,
  kRuntime,
};

struct MemoryPart {
  PartKind kind = PartKind::kRuntime;
  std::int64_t device = 0;  // bytes on the device; on a CPU everything is host
  std::int64_t host = 0;
  bool shared = false;  // one array for all ranks of the node
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  std::int64_t device_bytes = 0;     // of a rank
  std::int64_t host_bytes = 0;       // of one that writes checkpoints, what is shared included
  std::int64_t node_host_bytes = 0;  // of the ranks of a node together

  // Bytes of a part, wherever they lie.
  std::int64_t Of(PartKind kind) const;
  // What has to fit a device: its own memory, or a host's.
  std::int64_t decisive() const { return device_bytes > 0 ? device_bytes : host_bytes; }
};

// "master weights", "unsharded parameters", ...
std::string PartName(PartKind kind);
// For programs: "master_weights".
std::string PartKey(PartKind kind);

Result<MemoryPlan> PlanMemory(const PlanJob& job);

}  // namespace muster
