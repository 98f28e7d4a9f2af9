#include "trainer/plan/plan_job.h"

#include <algorithm>

#include "trainer/fsdp/frozen_layout.h"
#include "trainer/fsdp/step_batch.h"
#include "trainer/model/adapters.h"
#include "trainer/model/train_check.h"

namespace muster {
namespace {

// Elements of the largest matrix that is made whole to be used, and of an expert's, which have
// scratch memory of their own.
std::int64_t LargestPacked(const ModelConfig& config, const std::vector<UnitSpec>& units,
                           const FrozenForm& form) {
  std::int64_t largest = 0, joined = 0, of_expert = 0;
  for (const UnitSpec& unit : units) {
    for (const UnitTensor& tensor : unit.tensors) {
      if (!IsPacked(tensor, form)) continue;
      const std::int64_t count = ElementCount(tensor.shape);
      if (unit.blocks.part == BlockPart::kExperts) {
        of_expert = std::max(of_expert, TensorsOfExpert(config, tensor.role) * count);
        continue;
      }
      joined = (tensor.joined ? joined : 0) + count;
      largest = std::max(largest, joined);
    }
  }
  return largest + of_expert;
}

}  // namespace

std::int64_t PlanJob::row_length() const { return PaddedLength(train.data.max_seq_len); }

Result<PlanLayout> LayOutPlan(const PlanJob& job) {
  const int per_node = job.resources.ranks_per_node;
  const FsdpOptions options = OptionsOf(job.train, per_node);
  MUSTER_ASSIGN_OR_RETURN(const MeshShape mesh, ShapeOf(options.strategy, job.world_size(),
                                                        per_node, options.expert_parallel));
  MUSTER_RETURN_IF_ERROR(CheckTrain(job.model, job.train));
  const int shard_nodes = (mesh.shard_size + per_node - 1) / per_node;
  PlanLayout layout{.mesh = mesh,
                    .shard_nodes = shard_nodes,
                    .precision = options.precision,
                    .placement = PlaceUnits(
                        job.model, options,
                        {.ranks = mesh.shard_size,
                         .expert_ways = mesh.expert_ways,
                         .on_host = job.on_host(),
                         .shares_memory = job.on_host() && mesh.shard_size > 1 && shard_nodes == 1,
                         .takes_snapshots = job.supervised && options.snapshot_every > 0})};
  if (!options.lora) return layout;
  layout.adapter_parameters = layout.placement.trained.parameter_count();
  layout.active_adapter_parameters = ActiveTrainedParameters(job.model, layout.placement.trained);
  layout.largest_matrix = LargestPacked(job.model, layout.placement.frozen_units,
                                        {options.precision.compute, options.quantization});
  return layout;
}

}  // namespace muster
