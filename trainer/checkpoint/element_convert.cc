#include "trainer/checkpoint/element_convert.h"

#include <cstring>

#include "common/base/check.h"
#include "trainer/formats/half.h"

namespace muster {
namespace {

bool IsFloat(ElementType type) {
  return type == ElementType::kBFloat16 || type == ElementType::kFloat16 ||
         type == ElementType::kFloat32 || type == ElementType::kFloat64;
}

// The formats by their conversions from and to double, which holds each of them exactly.
struct BFloat16 {
  using Bits = std::uint16_t;
  static double Widen(Bits bits) { return BFloat16ToFloat(bits); }
  static Bits Narrow(double value) { return FloatToBFloat16(static_cast<float>(value)); }
};
struct Float16 {
  using Bits = std::uint16_t;
  static double Widen(Bits bits) { return Float16ToFloat(bits); }
  static Bits Narrow(double value) { return FloatToFloat16(static_cast<float>(value)); }
};
struct Float32 {
  using Bits = float;
  static double Widen(Bits value) { return value; }
  static Bits Narrow(double value) { return static_cast<float>(value); }
};
struct Float64 {
  using Bits = double;
  static double Widen(Bits value) { return value; }
  static Bits Narrow(double value) { return value; }
};

template <typename From, typename To>
void Convert(const void* from, void* to, std::int64_t count) {
  const auto* in = static_cast<const typename From::Bits*>(from);
  auto* out = static_cast<typename To::Bits*>(to);
  for (std::int64_t i = 0; i < count; ++i) out[i] = To::Narrow(From::Widen(in[i]));
}

template <typename From>
void ConvertFrom(const void* from, void* to, ElementType to_type, std::int64_t count) {
  switch (to_type) {
    case ElementType::kBFloat16: return Convert<From, BFloat16>(from, to, count);
    case ElementType::kFloat16: return Convert<From, Float16>(from, to, count);
    case ElementType::kFloat32: return Convert<From, Float32>(from, to, count);
    default: return Convert<From, Float64>(from, to, count);
  }
}

}  // namespace

bool CanConvert(ElementType from, ElementType to) {
  return from == to || (IsFloat(from) && IsFloat(to));
}

void ConvertElements(const void* from, ElementType from_type, void* to, ElementType to_type,
                     std::int64_t count) {
  MUSTER_CHECK(CanConvert(from_type, to_type), "no conversion between these element types");
  if (from_type == to_type) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * ElementSize(to_type));
    return;
  }
  switch (from_type) {
    case ElementType::kBFloat16: return ConvertFrom<BFloat16>(from, to, to_type, count);
    case ElementType::kFloat16: return ConvertFrom<Float16>(from, to, to_type, count);
    case ElementType::kFloat32: return ConvertFrom<Float32>(from, to, to_type, count);
    default: return ConvertFrom<Float64>(from, to, to_type, count);
  }
}

}  // namespace muster
