// The product of a weight matrix with one vector: what a linear layer does to a single position.
//
// Bounded by how fast the weights come from memory, so each is read once, in the order in which
// they lie. Sums are in the wide type and rounded once. Outputs are independent, so that a caller
// may cut them into ranges for several threads and gets the same bits.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

// y = weight x; x [width] in the wide type, weight [rows, width], y [rows].
template <typename Element>
struct ProductRows {
  std::int64_t width = 0;
  const Wide<Element>* x = nullptr;  // widened once, not for each row again
  const Element* weight = nullptr;
  Element* y = nullptr;
};
template <typename Element>
void RowProduct(const ProductRows<Element>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
