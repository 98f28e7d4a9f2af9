// UnitViews: a unit's matrices as tensors over a flat array, weights or gradients.
//
// Views own nothing: the array outlives them. Joined tensors (query, key and value; gate and up)
// are one matrix. Cheap to make; the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainer/core/element_type.h"
#include "trainer/core/flat_layout.h"
#include "trainer/model/llama.h"
#include "trainer/model/llama_block.h"

namespace muster {

class UnitViews {
 public:
  UnitViews(const FlatUnit& unit, at::Device device);

  // Points the views at `flat`, elements of `type` laid out as the unit.
  void Bind(void* flat, ElementType type);

  int blocks() const { return static_cast<int>(views_.size()) / BlockWeights::kCount; }
  // Of a unit of blocks, counted from the unit's first.
  BlockWeights block(int index) const;
  const at::Tensor& embedding() const { return views_[0]; }
  const at::Tensor& final_norm() const { return views_[0]; }
  const at::Tensor& head() const { return views_[1]; }

 private:
  struct Place {
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape;
  };

  at::Device device_;
  std::vector<Place> places_;
  std::vector<at::Tensor> views_;
};

// The same as targets that gradients are written or added to.
class UnitGradients {
 public:
  UnitGradients(UnitViews views, bool add) : views_(std::move(views)), add_(add) {}

  BlockGradients block(int index) const;
  GradientTarget embedding() const { return {views_.embedding(), add_}; }
  GradientTarget final_norm() const { return {views_.final_norm(), add_}; }
  GradientTarget head() const { return {views_.head(), add_}; }

 private:
  UnitViews views_;
  bool add_;
};

}  // namespace muster
