// The product of a weight matrix with a few vectors: what a linear layer does to the next position
// of one text or of several.
//
// Bounded by how fast the weights come from memory, so each is read once, several rows at a time.
// Sums are in the wide type and rounded once. Outputs are independent: a caller may cut the rows
// into ranges for several threads, and a vector may have others beside it, without a change of its
// bits.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element_type.h"

namespace muster {

// y = x weight^T; x [count, width], weight [rows, width], y [count, rows].
struct ProductRows {
  ElementType type = ElementType::kFloat32;  // fp64, fp32, bf16 or fp16
  std::int64_t width = 0;
  std::int64_t rows = 0;
  std::int64_t count = 1;
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
};
void RowProduct(const ProductRows& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
