#include "trainer/core/element_type.h"

namespace muster {

std::size_t ElementSize(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return 1;
    case ElementType::kBFloat16: return 2;
    case ElementType::kFloat16: return 2;
    case ElementType::kFloat32: return 4;
    case ElementType::kInt64: return 8;
    case ElementType::kFloat64: return 8;
  }
  return 0;
}

std::string_view ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return "u8";
    case ElementType::kBFloat16: return "bf16";
    case ElementType::kFloat16: return "fp16";
    case ElementType::kFloat32: return "fp32";
    case ElementType::kInt64: return "i64";
    case ElementType::kFloat64: return "fp64";
  }
  return "";
}

bool IsInteger(ElementType type) {
  return type == ElementType::kUint8 || type == ElementType::kInt64;
}

}  // namespace muster
