#include "trainer/fsdp/unit_views.h"

#include <ATen/ATen.h>

#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// Calls function(role, block, tensor) for each tensor that `views` has.
template <typename Function>
void ForEachTensor(UnitWeights views, Function function) {
  constexpr TensorRole kOwnUnit[] = {TensorRole::kEmbedding, TensorRole::kFinalNorm,
                                     TensorRole::kHead};
  for (const TensorRole role : kOwnUnit) {
    if (views.Of(role, 0).defined()) function(role, 0, views.Of(role, 0));
  }
  for (int b = 0; b < static_cast<int>(views.blocks.size()); ++b) {
    for (const TensorRole role : kBlockRoles) {
      if (views.Of(role, b).defined()) function(role, b, views.Of(role, b));
    }
  }
}

}  // namespace

UnitWeights ViewUnit(const FlatUnit& unit, void* flat, ElementType type, at::Device device) {
  const auto options = at::TensorOptions().dtype(ScalarTypeOf(type)).device(device);
  const auto element = static_cast<std::int64_t>(ElementSize(type));
  UnitWeights views;
  for (std::size_t t = 0; t < unit.tensors.size();) {
    const FlatTensor& first = unit.tensors[t];
    std::vector<std::int64_t> shape = first.spec.shape;
    for (++t; t < unit.tensors.size() && unit.tensors[t].spec.joined; ++t) {
      shape[0] += unit.tensors[t].spec.shape[0];
    }
    views.Of(first.spec.role, first.spec.block) =
        at::from_blob(static_cast<char*>(flat) + first.offset * element, shape, options);
  }
  return views;
}

void Overlay(const UnitWeights& views, UnitWeights* weights) {
  ForEachTensor(views, [&](TensorRole role, int block, const at::Tensor& tensor) {
    weights->Of(role, block) = tensor;
  });
}

UnitGradients TargetsOf(const UnitWeights& views, std::size_t blocks, bool add) {
  UnitGradients targets;
  targets.blocks.resize(blocks);
  ForEachTensor(views, [&](TensorRole role, int block, const at::Tensor& tensor) {
    targets.Of(role, block) = {tensor, add};
  });
  return targets;
}

}  // namespace muster
