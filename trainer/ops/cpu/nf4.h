// Weights to NF4, on the host (trainer/ops/nf4.h has the format).
//
// Blocks are independent: any cut into ranges gives the same bytes. Pure loops over the caller's
// memory; any thread. No Torch.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/ops/nf4.h"

namespace muster {

struct Nf4Quantization {
  std::int64_t count = 0;
  const float* values = nullptr;  // [count]
  std::uint8_t* codes = nullptr;  // written, as is absmax
  float* absmax = nullptr;
};
// Blocks [begin, end).
void QuantizeNf4(const Nf4Quantization& tensor, std::int64_t begin, std::int64_t end);

struct Nf4NestedQuantization {
  std::int64_t blocks = 0;
  const float* absmax = nullptr;         // [blocks]
  float offset = 0;                      // the mean of absmax
  std::uint8_t* absmax_codes = nullptr;  // [blocks], written, as is nested_absmax
  float* nested_absmax = nullptr;        // [(blocks + 255) / 256]
};
void QuantizeNf4Nested(const Nf4NestedQuantization& tensor);

// The 256 entries for double quantisation, ascending from -0.993 to 1: seven decades of both signs,
// each cut into twice as many equal steps as the one below (8-bit dynamic quantisation, arXiv
// 1511.04561).
const std::array<float, 256>& Nf4NestedCode();

}  // namespace muster
