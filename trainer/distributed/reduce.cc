#include "trainer/distributed/reduce.h"

#include <bit>

namespace muster {
namespace {

float Widen(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

std::uint16_t Narrow(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

template <typename T, typename Op>
void Combine(const void* a, const void* b, void* out, std::size_t count, Op op) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  T* z = static_cast<T*>(out);
  for (std::size_t i = 0; i < count; ++i) z[i] = static_cast<T>(op(x[i], y[i]));
}

template <typename T>
void ReduceAs(const void* a, const void* b, void* out, std::size_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return Combine<T>(a, b, out, count, [](T x, T y) { return x + y; });
    case ReduceOp::kMin:
      return Combine<T>(a, b, out, count, [](T x, T y) { return y < x ? y : x; });
    case ReduceOp::kMax:
      return Combine<T>(a, b, out, count, [](T x, T y) { return x < y ? y : x; });
  }
}

void ReduceBFloat16(const void* a, const void* b, void* out, std::size_t count, ReduceOp op) {
  const auto combine = [op](std::uint16_t a_bits, std::uint16_t b_bits) {
    const float x = Widen(a_bits);
    const float y = Widen(b_bits);
    if (op == ReduceOp::kSum) return Narrow(x + y);
    if (op == ReduceOp::kMin) return y < x ? b_bits : a_bits;
    return x < y ? b_bits : a_bits;
  };
  Combine<std::uint16_t>(a, b, out, count, combine);
}

}  // namespace

void Reduce(const void* a, const void* b, void* out, std::size_t count, ElementType type,
            ReduceOp op) {
  switch (type) {
    case ElementType::kUint8: return ReduceAs<std::uint8_t>(a, b, out, count, op);
    case ElementType::kInt64: return ReduceAs<std::int64_t>(a, b, out, count, op);
    case ElementType::kFloat32: return ReduceAs<float>(a, b, out, count, op);
    case ElementType::kFloat64: return ReduceAs<double>(a, b, out, count, op);
    case ElementType::kBFloat16: return ReduceBFloat16(a, b, out, count, op);
    case ElementType::kFloat16: return;  // placed by the typed reduction
  }
}

void WidenBFloat16(const std::uint16_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = Widen(in[i]);
}

void NarrowToBFloat16(const float* in, std::uint16_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = Narrow(in[i]);
}

}  // namespace muster
