// The gated activation of a feed-forward layer, silu(gate) * up, forward and backward.
//
// Rows are independent: any cut into ranges gives the same bits. Arithmetic is in Wide<Element>,
// results are rounded once.
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

namespace muster {

// gate_up [rows, 2 * width]: gate, then up. out and out_gradient [rows, width].
template <typename Element>
struct GateRows {
  std::int64_t width = 0;
  Element* gate_up = nullptr;
  const Element* out_gradient = nullptr;  // backward
  Element* out = nullptr;
};
template <typename Element>
void SwiGlu(const GateRows<Element>& rows, std::int64_t begin, std::int64_t end);
// gate_up becomes its own gradient; out is written as SwiGlu does, bit for bit.
template <typename Element>
void SwiGluBackward(const GateRows<Element>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
