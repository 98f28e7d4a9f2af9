// ElementType: the types that arrays, files and collectives hold.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster {

enum class ElementType { kUint8, kInt64, kBFloat16, kFloat16, kFloat32, kFloat64 };

std::size_t ElementSize(ElementType type);
// "u8", "i64", "bf16", "fp16", "fp32", "fp64".
std::string_view ElementTypeName(ElementType type);
bool IsInteger(ElementType type);

}  // namespace muster
