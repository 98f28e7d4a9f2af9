// The element-wise parts of a transformer block in one pass each, forward and backward: RMS norm,
// rotary embedding, gated activation.
//
// Rows are independent, so a caller may cut the rows into ranges for several threads and gets the
// same bits. Element is float or BFloat16; arithmetic is fp32 throughout, results are rounded once
// (the norm twice, as Hugging Face's does: before and after its weight).
//
// Pure loops over the caller's memory; any thread. No Torch.
#pragma once

#include <cstdint>

#include "trainer/kernels/element.h"

namespace muster {

// x, y [rows, width], weight [width], scale [rows] = 1 / rms of the row.
template <typename Element>
struct NormRows {
  std::int64_t width = 0;
  double eps = 0;
  const Element* x = nullptr;
  const Element* weight = nullptr;
  float* scale = nullptr;               // written forward, read backward
  Element* y = nullptr;                 // forward
  const Element* y_gradient = nullptr;  // backward
  Element* x_gradient = nullptr;
};
void NormForward(const NormRows<float>& rows, std::int64_t begin, std::int64_t end);
void NormForward(const NormRows<BFloat16>& rows, std::int64_t begin, std::int64_t end);
void NormBackward(const NormRows<float>& rows, std::int64_t begin, std::int64_t end);
void NormBackward(const NormRows<BFloat16>& rows, std::int64_t begin, std::int64_t end);
// Columns [begin, end) of the weight's gradient over all `count` rows, added up in row order.
void NormWeightGradient(const NormRows<float>& rows, std::int64_t count, std::int64_t begin,
                        std::int64_t end, float* gradient);
void NormWeightGradient(const NormRows<BFloat16>& rows, std::int64_t count, std::int64_t begin,
                        std::int64_t end, float* gradient);

// gate_up [rows, 2 * width]; out [rows, width] = silu(gate) * up.
template <typename Element>
struct GateRows {
  std::int64_t width = 0;
  const Element* gate_up = nullptr;
  Element* out = nullptr;                 // forward
  const Element* out_gradient = nullptr;  // backward
  Element* gate_up_gradient = nullptr;
};
void GateForward(const GateRows<float>& rows, std::int64_t begin, std::int64_t end);
void GateForward(const GateRows<BFloat16>& rows, std::int64_t begin, std::int64_t end);
void GateBackward(const GateRows<float>& rows, std::int64_t begin, std::int64_t end);
void GateBackward(const GateRows<BFloat16>& rows, std::int64_t begin, std::int64_t end);

// joined [rows, heads + 2 * kv_heads, head_dim] and its three parts, query and key rotated by the
// row's position (row modulo length); cos and sin [length, head_dim / 2].
template <typename Element>
struct RotaryRows {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t length = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  Element* joined = nullptr;
  Element* query = nullptr;
  Element* key = nullptr;
  Element* value = nullptr;
};
// joined -> query, key, value.
void RotaryForward(const RotaryRows<float>& rows, std::int64_t begin, std::int64_t end);
void RotaryForward(const RotaryRows<BFloat16>& rows, std::int64_t begin, std::int64_t end);
// Gradients of query, key and value -> that of joined: rotated back.
void RotaryBackward(const RotaryRows<float>& rows, std::int64_t begin, std::int64_t end);
void RotaryBackward(const RotaryRows<BFloat16>& rows, std::int64_t begin, std::int64_t end);

}  // namespace muster
