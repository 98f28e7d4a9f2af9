#include "trainer/plan/plan_job.h"

#include <algorithm>

#include "trainer/fsdp/frozen_layout.h"
#include "trainer/model/adapters.h"

namespace muster {
namespace {

constexpr std::int64_t kLengthMultiple = 32;  // PadToFewLengths

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Elements of the largest matrix that is made whole to be used.
std::int64_t LargestPacked(const std::vector<UnitSpec>& units, const FrozenForm& form) {
  std::int64_t largest = 0, joined = 0;
  for (const UnitSpec& unit : units) {
    for (const UnitTensor& tensor : unit.tensors) {
      if (!IsPacked(tensor, form)) continue;
      joined = (tensor.joined ? joined : 0) + ElementCount(tensor.shape);
      largest = std::max(largest, joined);
    }
  }
  return largest;
}

}  // namespace

std::int64_t PlanJob::row_length() const {
  return RoundUp(train.data.max_seq_len, kLengthMultiple);
}

Result<PlanLayout> LayOutPlan(const PlanJob& job) {
  const int per_node = job.resources.ranks_per_node;
  MUSTER_ASSIGN_OR_RETURN(const MeshShape mesh,
                          ShapeOf(job.train.fsdp.strategy, job.world_size(), per_node));
  const TrainSpec& train = job.train;
  if (train.lora) MUSTER_RETURN_IF_ERROR(CheckLora(job.model, *train.lora));
  const SplitUnits units = SplitModel(job.model, train.fsdp.blocks_per_unit, train.lora);
  PlanLayout layout{.mesh = mesh,
                    .shard_nodes = (mesh.shard_size + per_node - 1) / per_node,
                    .precision = ResolvePrecision(train.fsdp, train.optimizer),
                    .trained = FlatLayout(units.trained, mesh.shard_size),
                    .frozen = {}};
  if (!train.lora) return layout;
  layout.adapter_parameters = layout.trained.parameter_count();
  const FrozenForm form{layout.precision.compute, train.quantization};
  const FlatLayout frozen(FrozenBytes(units.frozen, form), mesh.shard_size);
  for (const FlatUnit& unit : frozen.units()) {
    layout.frozen.push_back({.bytes = unit.flat_count, .shard_bytes = unit.shard_count});
  }
  layout.largest_matrix = LargestPacked(units.frozen, form);
  return layout;
}

}  // namespace muster
