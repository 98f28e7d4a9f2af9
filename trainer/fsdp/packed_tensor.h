// A tensor in NF4 as one run of bytes, as frozen weights are sharded and gathered.
//
//   codes                   two to a byte
//   absmax                  fp32, one for each block of 64 elements
//
// or with double quantisation
//
//   codes
//   codes of absmax         a byte for each block
//   absmax of these         fp32, one for each 256 blocks
//
// each at a multiple of kPackedAlignment bytes. The mean that double quantisation takes off absmax
// is not among them: it is a number for the code that launches the reading. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/ops/cpu/nf4_tensor.h"
#include "trainer/ops/nf4.h"

namespace muster {

inline constexpr std::int64_t kPackedAlignment = 128;

struct PackedLayout {
  std::int64_t count = 0;  // elements
  bool double_quantized = false;
  // Bytes from the start.
  std::int64_t absmax = 0;
  std::int64_t absmax_codes = 0;
  std::int64_t nested_absmax = 0;
  std::int64_t bytes = 0;  // of all, a multiple of kPackedAlignment
};
PackedLayout LayOutPacked(std::int64_t count, bool double_quantized);

// `tensor` as those bytes; image has layout.bytes.
void WritePacked(const PackedLayout& layout, const Nf4Tensor& tensor, std::byte* image);

// How such bytes are read. `nested_code`: Nf4NestedCode in the same device's memory.
Nf4Source ReadPacked(const PackedLayout& layout, const void* image, const float* nested_code,
                     float offset);

}  // namespace muster
