// What memory a rank of a job will take, part by part, before anything is started.
//
// Arrays are those of the engine's own placement (placement.h) and of MeasureActivations, for rows
// that are all as long as data.max_seq_len; what LibTorch and the CUDA runtime take besides is
// measured on a CPU and estimated on a GPU. Host
// memory is what a process has resident: an array that ranks share counts for each of them, and
// once for their node.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/plan/plan_job.h"

namespace muster {

struct MemoryPart {
  // "master weights", "moments", "gradient sums", "compute copy" (of a rank's shard, which gathers
  // send), "frozen weights", "unsharded parameters", "gradient slots", "peers' slots" (of ranks of
  // the same host, where this one reads its part of them), "activations", "head and logits" (a
  // chunk of these), "checkpoint copy", "snapshots", "buddy snapshots" (of another node's ranks),
  // "runtime". Several parts have one name.
  std::string name;
  std::int64_t device = 0;  // bytes on the device; on a CPU everything is host
  std::int64_t host = 0;
  bool shared = false;         // one array for all ranks of the node
  std::int64_t of_others = 0;  // bytes of that array that this rank does not touch; not in `host`
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  std::int64_t device_bytes = 0;     // of a rank
  std::int64_t host_bytes = 0;       // of one that writes checkpoints, what is shared included
  std::int64_t node_host_bytes = 0;  // of the ranks of a node together

  // Bytes of the parts of that name, wherever they lie.
  std::int64_t Of(std::string_view name) const;
  // What has to fit a device: its own memory, or a host's.
  std::int64_t decisive() const { return device_bytes > 0 ? device_bytes : host_bytes; }
};

Result<MemoryPlan> PlanMemory(const PlanJob& job);

}  // namespace muster
