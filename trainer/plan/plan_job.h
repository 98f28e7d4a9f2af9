// PlanJob: what is planned, and how its weights are cut up over the ranks.
//
// The trained weights lie in a FlatLayout, as the engine has them. With adapters these are the
// adapters alone; the model's own weights are frozen and lie in a second row of units as bytes, in
// the compute type or quantised.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/fsdp/precision.h"

namespace muster {

struct PlanJob {
  ModelConfig model;
  TrainSpec train;
  ResourceSpec resources;
  bool supervised = true;  // under a guardian: snapshots are taken; false: as torchrun starts it

  int world_size() const { return resources.nodes * resources.ranks_per_node; }
  bool on_host() const { return resources.device == "cpu"; }
  // Tokens of a row as the engine pads it.
  std::int64_t row_length() const;
};

// One unit, frozen.
struct FrozenUnit {
  std::int64_t bytes = 0;        // of all ranks' shards together
  std::int64_t shard_bytes = 0;  // of one rank's
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

// kInvalidArgument as ShapeOf and CheckLora.
Result<PlanLayout> LayOutPlan(const PlanJob& job);

}  // namespace muster
