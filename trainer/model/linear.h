// The products of linear layers, forward and backward, into memory that is already there.
//
// x [N, in], y [N, out], all contiguous and of one type, on one device; weights as in
// block_tensors.h. A layer may have a bias, and adapters (lora_form.h), whose hidden values
// [N, hidden_width] are kept from forward to backward. Where a pass drops elements of x, it does so
// for the adapters alone: hidden = drop(x) A^T. What is dropped is kept nowhere; backward makes it
// again of x and the key. Gradients whose target has no tensor are not computed.
//
// The trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/model/arena.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/lora_form.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// The hidden values [tokens, hidden width] of a matrix's adapters; undefined where it has none.
at::Tensor CutLoraHidden(const LoraForm& form, BumpAllocator& allocator, std::int64_t tokens,
                         at::ScalarType type);

// y = x weight^T
void LinearForward(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y);

// x_gradient = y_gradient weight
void LinearInputGradient(const at::Tensor& y_gradient, const at::Tensor& weight,
                         at::Tensor& x_gradient);

// target (+)= gradient, which is another array of any type.
void Deliver(DeviceOps& ops, const at::Tensor& gradient, const GradientTarget& target);

// Gradients of weights, written or added in place. A target in fp32 of factors in 16 bits takes
// sums in fp32. The gradient of a bias goes through scratch memory, which grows to the largest one
// and stays, where it is added or converted.
class LinearWeightGradient {
 public:
  // `ops` outlives the object.
  explicit LinearWeightGradient(DeviceOps& ops) : ops_(ops), scratch_(ops) {}

  // target (+)= scale * y_gradient^T x
  void Write(const at::Tensor& y_gradient, const at::Tensor& x, const GradientTarget& target,
             double scale = 1);
  // target (+)= the sum of y_gradient's rows
  void WriteBias(const at::Tensor& y_gradient, const GradientTarget& target);

  std::int64_t bytes() const { return scratch_.bytes(); }

 private:
  DeviceOps& ops_;
  Arena scratch_;
};

// Matrices as products read them: a packed one is dequantised, each time that it is used, into
// scratch memory that grows to the largest and stays.
class MatrixReader {
 public:
  // `ops` outlives the object.
  explicit MatrixReader(DeviceOps& ops) : ops_(ops), unpacked_(ops) {}

  // [rows / parts, columns] of `type`: the `part`-th of so many equal parts, which lie one below
  // the other. A packed one is good until the next call; the others are of `type` as they are.
  at::Tensor Read(const LinearWeights& weights, at::ScalarType type, std::int64_t part = 0,
                  std::int64_t parts = 1);

  std::int64_t bytes() const { return unpacked_.bytes(); }

 private:
  DeviceOps& ops_;
  Arena unpacked_;
};

// Whole layers. The scratch memory grows to the largest layer and stays; x is written there once
// more where elements of it are dropped.
class LinearOps {
 public:
  // `ops` outlives the object.
  explicit LinearOps(DeviceOps& ops)
      : ops_(ops), weight_gradient_(ops), scratch_(ops), matrices_(ops), dropped_(ops) {}

  // `hidden` is written where there are adapters.
  void Forward(const at::Tensor& x, const LinearWeights& weights, const LoraPass& lora,
               at::Tensor& hidden, at::Tensor& y);

  // The hidden values alone, once more.
  void AdapterForward(const at::Tensor& x, const LinearWeights& weights, const LoraPass& lora,
                      at::Tensor& hidden);

  // First InputGradient, then ParameterGradients of the same layer, which reads what the first has
  // left of the adapters.
  void InputGradient(const at::Tensor& y_gradient, const LinearWeights& weights,
                     const LoraPass& lora, at::Tensor& x_gradient);
  void ParameterGradients(const at::Tensor& y_gradient, const at::Tensor& x,
                          const at::Tensor& hidden, const LoraPass& lora,
                          const LinearGradients& gradients);

  std::int64_t bytes() const {
    return weight_gradient_.bytes() + scratch_.bytes() + matrices_.bytes() + dropped_.bytes();
  }

 private:
  // What the adapters see of x; good until the next call of this or of DroppedScratch.
  at::Tensor AdapterInput(const at::Tensor& x, const LoraPass& lora);
  at::Tensor DroppedScratch(const at::Tensor& like);

  DeviceOps& ops_;
  LinearWeightGradient weight_gradient_;
  Arena scratch_;
  MatrixReader matrices_;
  Arena dropped_;
  at::Tensor hidden_gradient_;  // [N, hidden_width]
};

}  // namespace muster
