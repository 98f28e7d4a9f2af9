// PlanJob: what is planned, and how its weights are cut up over the ranks.
//
// The trained weights lie in a FlatLayout, as the engine has them. With adapters these are the
// adapters alone; the model's own weights are frozen and lie in a second row of units as bytes, in
// the compute type or quantised.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/sharding/mesh.h"
#include "trainer/sharding/precision.h"

namespace muster {

enum class FrozenType {
  kCompute,         // as the gathered weights
  kNf4,             // 4 bits and a 4-byte scale for 64 weights, of the linear layers of the blocks
  kNf4DoubleScale,  // 4 bits, a byte for 64 and 4 bytes for 16,384 weights
};

struct AdapterPlan {
  int r = 8;
  // Last part of a linear layer's name ("q_proj"); "all-linear": those of the blocks.
  std::vector<std::string> target_modules = {"q_proj", "v_proj"};
  // Trained whole beside the adapters ("embed_tokens", "lm_head").
  std::vector<std::string> modules_to_save;
  FrozenType frozen = FrozenType::kCompute;
};

struct PlanJob {
  ModelConfig model;
  TrainSpec train;
  ResourceSpec resources;
  bool supervised = true;  // under a guardian: snapshots are taken; false: as torchrun starts it
  std::optional<AdapterPlan> adapters;

  int world_size() const { return resources.nodes * resources.ranks_per_node; }
  bool on_host() const { return resources.device == "cpu"; }
  // Tokens of a row as the engine pads it.
  std::int64_t row_length() const;
};

// Of one unit, frozen.
struct FrozenUnit {
  std::int64_t bytes = 0;        // of all ranks' shards together
  std::int64_t shard_bytes = 0;  // of one rank's
  std::int64_t elements = 0;     // that are quantised, and made whole again when they are used
};

struct PlanLayout {
  MeshShape mesh;
  int shard_nodes = 1;  // that a shard group lies on
  Precision precision;
  FlatLayout trained;
  std::vector<FrozenUnit> frozen;       // empty: nothing is
  std::int64_t largest_matrix = 0;      // elements of the largest one that is made whole
  std::int64_t adapter_parameters = 0;  // 0: all weights are trained
};

// kInvalidArgument as ShapeOf, and for a target that the model has no linear layer of.
Result<PlanLayout> LayOutPlan(const PlanJob& job);

}  // namespace muster
