// PlanJob: what is planned, and how its weights are cut up over the ranks.
//
// The engine's own placement says which arrays its ranks will have.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/fsdp/placement.h"
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

struct PlanLayout {
  MeshShape mesh;
  int shard_nodes = 1;  // that a shard group lies on
  Precision precision;
  Placement placement;
  std::int64_t largest_matrix = 0;             // elements of the largest one that is made whole
  std::int64_t adapter_parameters = 0;         // 0: all weights are trained
  std::int64_t active_adapter_parameters = 0;  // that a token is multiplied with
};

// kInvalidArgument as ShapeOf; otherwise as CheckTrain.
Result<PlanLayout> LayOutPlan(const PlanJob& job);

}  // namespace muster
