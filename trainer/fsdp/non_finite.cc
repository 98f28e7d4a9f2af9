#include "trainer/fsdp/non_finite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdint>

#include "trainer/ops/sum_of_squares.h"

namespace muster {
namespace {

bool IsFinite(const void* values, std::int64_t begin, std::int64_t count, ElementType type,
              DeviceOps& ops) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(ops.device()));
  const char* const first =
      static_cast<const char*>(values) + begin * static_cast<std::int64_t>(ElementSize(type));
  ops.Run(op::SumOfSquares{first, type, count, sum});
  return std::isfinite(sum.item<double>());
}

}  // namespace

NonFiniteFinder::NonFiniteFinder(const FlatLayout& layout, const ShardState& state, int shard_rank,
                                 DeviceOps& ops, DeviceOps& state_ops)
    : layout_(layout),
      state_(state),
      shard_rank_(shard_rank),
      ops_(ops),
      state_ops_(state_ops),
      losses_(at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(ops.device()))) {}

int NonFiniteFinder::FirstLoss() const {
  const at::Tensor losses = losses_.cpu();
  const double* values = losses.const_data_ptr<double>();
  for (int m = 0; m < micro_batch_; ++m) {
    if (!std::isfinite(values[m])) return m;
  }
  return -1;
}

std::string NonFiniteFinder::FirstTensor(ShardArrays arrays) const {
  const bool weights = arrays == ShardArrays::kWeights;
  const ElementType type = weights ? state_.precision().master : state_.precision().gradient;
  for (int u = 0; u < static_cast<int>(layout_.units().size()); ++u) {
    const UnitShard& unit = state_.units()[u];
    const void* values = weights ? unit.master : unit.gradient;
    for (const TensorInterval& interval : layout_.ShardIntervals(u, shard_rank_)) {
      if (!IsFinite(values, interval.array_offset, interval.count, type, state_ops_)) {
        return interval.tensor;
      }
    }
  }
  return "";
}

void NonFiniteFinder::WatchGradients(bool watch) {
  watching_ = watch;
  if (watch) gradient_ = {};
}

void NonFiniteFinder::LookAt(int unit, const GradientReducer::Target& gradients) {
  if (!watching_ || gradient_.micro_batch >= 0) return;
  for (const FlatTensor& tensor : SliceOf(layout_.units()[unit], shard_rank_).tensors) {
    if (IsFinite(gradients.flat, tensor.offset, tensor.count, gradients.type, ops_)) continue;
    gradient_ = {micro_batch_, tensor.spec.name};
    return;
  }
}

void NonFiniteFinder::NoteLoss(const at::Tensor& loss) {
  if (micro_batch_ >= losses_.numel()) losses_.resize_({2 * micro_batch_ + 1});
  losses_.narrow(0, micro_batch_, 1).copy_(loss);
  ++micro_batch_;
}

}  // namespace muster
