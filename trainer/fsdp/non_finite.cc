#include "trainer/fsdp/non_finite.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>

#include "trainer/ops/sum_of_squares.h"

namespace muster {
namespace {

const char* At(const void* values, std::int64_t element, ElementType type) {
  return static_cast<const char*>(values) + element * static_cast<std::int64_t>(ElementSize(type));
}

bool IsFinite(const void* values, ElementType type, std::int64_t count, DeviceOps& ops) {
  at::Tensor sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(ops.device()));
  ops.Run(op::SumOfSquares{values, type, count, sum});
  return std::isfinite(sum.item<double>());
}

}  // namespace

std::string NonFiniteTensor(const FlatLayout& layout, const ShardState& state, int shard_rank,
                            ShardArrays arrays, DeviceOps& ops) {
  const bool weights = arrays == ShardArrays::kWeights;
  const ElementType type = weights ? state.precision().master : state.precision().gradient;
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    const UnitShard& unit = state.units()[u];
    const void* values = weights ? unit.master : unit.gradient;
    for (const TensorInterval& interval : layout.ShardIntervals(u, shard_rank)) {
      const char* first = At(values, interval.array_offset, type);
      if (!IsFinite(first, type, interval.count, ops)) return interval.tensor;
    }
  }
  return "";
}

std::string NonFiniteTensor(const FlatUnit& unit, const void* flat, ElementType type,
                            DeviceOps& ops) {
  for (const FlatTensor& tensor : unit.tensors) {
    if (!IsFinite(At(flat, tensor.offset, type), type, tensor.count, ops)) return tensor.spec.name;
  }
  return "";
}

}  // namespace muster
