#include "trainer/sharding/non_finite.h"

#include <ATen/ATen.h>

#include <cmath>

namespace muster {
namespace {

constexpr std::int64_t kNothing = std::int64_t{1} << 62;

bool IsFinite(const void* values, ElementType type, std::int64_t count, DeviceOps& ops) {
  at::Tensor sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(ops.device()));
  ops.SumOfSquares(values, type, count, sum);
  return std::isfinite(sum.item<double>());
}

std::string FirstIn(const FlatLayout& layout, const ShardState& state, int shard_rank, bool weights,
                    DeviceOps& ops) {
  const ElementType type = weights ? state.precision().master : state.precision().gradient;
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    const UnitShard& unit = state.units()[u];
    const auto* values = static_cast<const char*>(weights ? unit.master : unit.gradient);
    for (const TensorInterval& interval : layout.ShardIntervals(u, shard_rank)) {
      const char* first =
          values + interval.array_offset * static_cast<std::int64_t>(ElementSize(type));
      if (!IsFinite(first, type, interval.count, ops)) return interval.tensor;
    }
  }
  return "";
}

// Collective: of all ranks' texts the one of the lowest rank that has one.
Result<std::string> FirstText(const std::string& mine, Communicator& world) {
  std::int64_t rank = mine.empty() ? kNothing : world.rank();
  MUSTER_RETURN_IF_ERROR(world.AllReduce(&rank, 1, ElementType::kInt64, ReduceOp::kMin)->Wait());
  if (rank == kNothing) return std::string();
  std::int64_t size = static_cast<std::int64_t>(mine.size());
  MUSTER_RETURN_IF_ERROR(world.Broadcast(&size, sizeof size, static_cast<int>(rank))->Wait());
  std::string text = mine;
  text.resize(size);
  MUSTER_RETURN_IF_ERROR(world.Broadcast(text.data(), text.size(), static_cast<int>(rank))->Wait());
  return "rank " + std::to_string(rank) + ": " + text;
}

}  // namespace

Result<std::string> FindNonFinite(const FlatLayout& layout, const ShardState& state,
                                  const Mesh& mesh, DeviceOps& ops) {
  for (const bool weights : {true, false}) {
    std::string mine = FirstIn(layout, state, mesh.shard_rank(), weights, ops);
    if (!mine.empty()) mine = (weights ? "weight of " : "gradient of ") + mine;
    MUSTER_ASSIGN_OR_RETURN(std::string found, FirstText(mine, mesh.world()));
    if (!found.empty()) return found;
  }
  return std::string();
}

}  // namespace muster
