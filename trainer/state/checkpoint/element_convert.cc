#include "trainer/state/checkpoint/element_convert.h"

#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "trainer/core/convert.h"

namespace muster {
namespace {

bool IsFloat(ElementType type) {
  return type == ElementType::kBFloat16 || type == ElementType::kFloat16 ||
         type == ElementType::kFloat32 || type == ElementType::kFloat64;
}

}  // namespace

bool CanConvert(ElementType from, ElementType to) {
  return from == to || (IsFloat(from) && IsFloat(to));
}

void ConvertElements(const void* from, ElementType from_type, void* to, ElementType to_type,
                     std::int64_t count) {
  MUSTER_CHECK(CanConvert(from_type, to_type), "no conversion between these element types");
  if (from_type != to_type) return Convert(from, from_type, to, to_type, count, /*add=*/false);
  if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * ElementSize(to_type));
}

void PutElements(const void* from, ElementType from_type, std::int64_t count,
                 const ShardArray& array, std::int64_t at, const ArrayMemory& memory) {
  const std::size_t size = ElementSize(array.type);
  char* const to = static_cast<char*>(array.data) + static_cast<std::size_t>(at) * size;
  if (!memory.write) return ConvertElements(from, from_type, to, array.type, count);
  std::vector<char> converted(static_cast<std::size_t>(count) * size);
  ConvertElements(from, from_type, converted.data(), array.type, count);
  memory.write(to, converted.data(), converted.size());
}

}  // namespace muster
