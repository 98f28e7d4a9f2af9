// The three products of a linear layer without bias, into memory that is already there.
//
// x [N, in], weight [out, in], y [N, out], all contiguous and of one type, on one device. The
// trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/device/device_ops.h"
#include "trainer/model/arena.h"

namespace muster {

// y = x weight^T
void LinearForward(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y);

// x_gradient = y_gradient weight
void LinearInputGradient(const at::Tensor& y_gradient, const at::Tensor& weight,
                         at::Tensor& x_gradient);

// Gradients of weights. Where the target has the type of the product they are written or added in
// place; else through scratch memory that grows to the largest weight and stays.
class LinearWeightGradient {
 public:
  // `ops` outlives the object.
  explicit LinearWeightGradient(DeviceOps& ops) : ops_(ops), scratch_(ops) {}

  // target (+)= y_gradient^T x
  void Write(const at::Tensor& y_gradient, const at::Tensor& x, const GradientTarget& target);

  std::int64_t bytes() const { return scratch_.bytes(); }

 private:
  DeviceOps& ops_;
  Arena scratch_;
};

}  // namespace muster
