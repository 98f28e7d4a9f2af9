// Rotary position embedding, half-rotation form, in place.
//
// Rows are independent: any cut into ranges gives the same bits. Arithmetic is in Wide<Element>,
// results are rounded once.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

// The first `heads` heads of each row are turned by the angles of the row's position; what follows
// them (values) is left alone.
template <typename Element>
struct RotaryRows {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  // even
  std::int64_t stride = 0;    // elements from row to row
  std::int64_t length = 0;
  const std::int32_t* positions =
      nullptr;                         // of each row, below length; null: the row modulo length
  const Wide<Element>* cos = nullptr;  // [length, head_dim / 2]
  const Wide<Element>* sin = nullptr;
  int direction = 1;  // -1: back
  Element* joined = nullptr;
};
template <typename Element>
void ApplyRope(const RotaryRows<Element>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
