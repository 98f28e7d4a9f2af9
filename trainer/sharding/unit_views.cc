#include "trainer/sharding/unit_views.h"

#include <ATen/ATen.h>

#include "trainer/device/scalar_type.h"

namespace muster {

UnitViews::UnitViews(const FlatUnit& unit, at::Device device) : device_(device) {
  for (const FlatTensor& tensor : unit.tensors) {
    if (tensor.spec.joined) {
      places_.back().shape[0] += tensor.spec.shape[0];
    } else {
      places_.push_back({tensor.offset, tensor.spec.shape});
    }
  }
}

void UnitViews::Bind(void* flat, ElementType type) {
  const auto options = at::TensorOptions().dtype(ScalarTypeOf(type)).device(device_);
  const auto element = static_cast<std::int64_t>(ElementSize(type));
  views_.clear();
  for (const Place& place : places_) {
    views_.push_back(
        at::from_blob(static_cast<char*>(flat) + place.offset * element, place.shape, options));
  }
}

BlockWeights UnitViews::block(int index) const {
  const at::Tensor* first = views_.data() + index * BlockWeights::kCount;
  return {first[0], first[1], first[2], first[3], first[4], first[5]};
}

BlockGradients UnitGradients::block(int index) const {
  const BlockWeights views = views_.block(index);
  return {.input_norm = {views.input_norm, add_},
          .qkv = {views.qkv, add_},
          .output = {views.output, add_},
          .post_norm = {views.post_norm, add_},
          .gate_up = {views.gate_up, add_},
          .down = {views.down, add_}};
}

}  // namespace muster
