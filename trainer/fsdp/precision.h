// Precision: which element type each kind of array has in a run.
//
// Plain value; pure functions.
#pragma once

#include "common/job_spec/job_spec.h"
#include "trainer/core/element_type.h"

namespace muster {

struct Precision {
  ElementType compute = ElementType::kBFloat16;  // unsharded parameters, activations, gradients
  ElementType master = ElementType::kFloat32;    // the weights that the optimizer updates
  ElementType moments = ElementType::kFloat32;   // exp_avg and exp_avg_sq
  ElementType gradient = ElementType::kFloat32;  // gradient sums over ranks and micro-batches
  ElementType buffer = ElementType::kFloat32;    // what the rotary tables are rounded to

  // fp16 gradients vanish without it.
  bool scales_loss() const { return compute == ElementType::kFloat16; }
  // Arithmetic on elements of the compute type is done in this type.
  ElementType wide() const {
    return compute == ElementType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32;
  }

  friend bool operator==(const Precision&, const Precision&) = default;
};

Precision ResolvePrecision(const FsdpSpec& fsdp, const OptimizerSpec& optimizer);

}  // namespace muster
