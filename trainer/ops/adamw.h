// AdamW over flat arrays: one pass updates the weight and both moments, applies the clip factor,
// and writes the low-precision copy that the next gathers read.
//
// The arithmetic is torch.optim.AdamW's (decoupled weight decay on every element), in fp64 where
// the weight or the moments are, else in fp32; what is kept in a narrower type is rounded to
// nearest. Results depend on the element alone, so any cut into ranges gives the same bits.
#pragma once

#include <cstdint>

#include "trainer/ops/array_checks.h"

namespace muster {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

struct AdamWStep {
  std::int64_t number = 1;  // of the step, counted from 1: bias correction
  double lr = 0;
  double gradient_scale = 1;  // the clip factor
};

// One rank's flat arrays of one unit, or a run of them; raw memory of the device. All types are
// floating point, and no array overlaps another; but the low-precision copy may be the old weight.
// The state before the update is read from the `old` arrays and else left as it is; without them
// the update is in place. Both give the same bits.
struct OptimizerArrays {
  void* weight = nullptr;  // master
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  const void* old_weight = nullptr;  // null: weight
  const void* old_exp_avg = nullptr;
  const void* old_exp_avg_sq = nullptr;
  const void* gradient = nullptr;
  void* low_precision = nullptr;  // copy of the weight in the compute type; null: none is kept
  ElementType weight_type = ElementType::kFloat32;
  ElementType moment_type = ElementType::kFloat32;
  ElementType gradient_type = ElementType::kFloat32;
  ElementType low_precision_type = ElementType::kBFloat16;
  std::int64_t count = 0;
};

namespace op {

struct AdamW {
  static constexpr char kName[] = "adamw";

  OptimizerArrays arrays;
  AdamWOptions options;
  AdamWStep step;

  void Check(const ArrayChecks&) const {}
};

}  // namespace op
}  // namespace muster
