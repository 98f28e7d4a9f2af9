// The product of a weight matrix with one vector: what a linear layer does to a single position.
//
// Bounded by how fast the weights come from memory, so each is read once, several rows at a time.
// Sums are in the wide type and rounded once. Outputs are independent, so that a caller
// may cut them into ranges for several threads and gets the same bits.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element_type.h"

namespace muster {

// y = weight x; x [width], weight [rows, width], y [rows].
struct ProductRows {
  ElementType type = ElementType::kFloat32;  // fp64, fp32, bf16 or fp16
  std::int64_t width = 0;
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
};
void RowProduct(const ProductRows& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
