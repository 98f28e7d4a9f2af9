// Placement: which arrays a rank of a sharded gang has, how long they are and in which memory they
// lie: shards, unsharded parameters, gradients on their way, snapshots.
//
// One function answers for the engine, which allocates what it says, and for the planner, which
// adds it up before anything is started. Pure: no device and no other rank is asked; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/core/element_type.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/fsdp/fsdp_options.h"

namespace muster {

enum class MemoryKind {
  kDevice,   // of the device that computes
  kHost,     // pinned memory of the host beside it
  kCommon,   // one array for all ranks of the shard group, in their host's memory
  kPerRank,  // each rank's own, which the others of its host read in place
};

struct FlatBuffer {
  const char* name = "";  // what lies in it, for people: "master weights"
  ElementType type = ElementType::kFloat32;
  std::int64_t count = 0;  // elements; 0: there is no such array
  MemoryKind memory = MemoryKind::kDevice;
  std::int64_t of_others = 0;  // elements of a common array that only other ranks read and write

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(ElementSize(type)); }
  std::int64_t bytes_of_others() const {
    return of_others * static_cast<std::int64_t>(ElementSize(type));
  }
};

// Where the units of a layout lie when they are gathered: each at a place of its own for the whole
// run, or in slots, where units take turns: unit u between the first and the last in slot u % 2.
struct GatheredUnits {
  FlatBuffer buffer;
  // By unit: the first element of what this rank gathers; units of one slot have one place.
  std::vector<std::int64_t> begins;
  // This rank's shards lie in it, at their own places. Else they lie elsewhere, and with
  // `from_host` in host memory, from which they are sent to the device to be gathered.
  bool holds_shards = false;
  bool from_host = false;
};

// What a rank keeps of its shards of all units, one behind the other in each array.
struct StateBuffers {
  bool in_segment = false;  // master weights and moments lie in a slot of the snapshot
  // Gathers send a copy of the compute type, not the master weights.
  bool has_low_precision = false;
  FlatBuffer master, exp_avg, exp_avg_sq, gradient, low_precision;
};

// Places on the device, and as many in host memory, for gradients that travel there.
inline constexpr int kTravellingGradients = 3;

// What gradients take on their way into the sums of the shards.
struct GradientBuffers {
  // Each for the largest unit; 0: products are added to the sums themselves.
  int slots = 0;
  FlatBuffer slot_memory;
  FlatBuffer local;  // whole sums of this rank, where it reduces once per step
  FlatBuffer travelling, landing;
};

struct Placement {
  FlatLayout trained;
  std::vector<FlatUnit> parts;         // what this rank gathers of each unit (SliceOf)
  std::vector<UnitSpec> frozen_units;  // none: the whole model is trained
  FlatLayout frozen;                   // their bytes (frozen_layout.h)
  GatheredUnits gathered;
  GatheredUnits frozen_gathered;
  FlatBuffer frozen_shards;
  StateBuffers state;
  GradientBuffers gradients;
  FlatBuffer snapshots;  // the slots of the segment

  // All that the rank has from the first step to the last, but for snapshots and activations.
  std::vector<FlatBuffer> buffers() const;
};

// What is not among the options.
struct PlacedRank {
  int ranks = 1;                 // of the shard group
  int rank = 0;                  // in it
  int expert_ways = 1;           // ranks of an expert group (mesh.h)
  bool on_host = true;           // the device that computes is the host
  bool shares_memory = false;    // the shard group has peers, and they share a host's memory
  bool takes_snapshots = false;  // there is a segment
};

Placement PlaceUnits(const ModelConfig& config, const FsdpOptions& options, const PlacedRank& rank);

}  // namespace muster
