// Cross entropy over a vocabulary, with its gradient in place of the logits.
//
// Each row is read from memory once and written once: the exponentials of a row stay in a scratch
// array of its width while the maximum is still growing. Rows are independent: any cut into ranges
// gives the same bits.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

template <typename Element>
struct CrossEntropyRows {
  std::int64_t width = 0;                // words of the vocabulary
  const std::int64_t* labels = nullptr;  // [rows], below width; negative: the row counts nothing
  double scale = 1;                      // of the gradient
  Element* logits = nullptr;             // [rows, width], become their gradient
  double* losses = nullptr;              // [rows], written, unscaled
};
template <typename Element>
void CrossEntropy(const CrossEntropyRows<Element>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
