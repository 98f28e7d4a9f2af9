#include "trainer/core/convert.h"

#include <cstdlib>
#include <type_traits>

#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

namespace muster {
namespace {

template <typename From, typename To>
MUSTER_INLINE void Copy(const From* __restrict from, To* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<From, To>) {
      to[i] = from[i];
    } else {
      Store(&to[i], Load(from[i]));
    }
  }
}

template <typename From, typename To>
MUSTER_INLINE void Add(const From* __restrict from, To* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) Store(&to[i], Load(to[i]) + Load(from[i]));
}

// Clones cannot be made of templates: one function per pair of types.
#define MUSTER_CONVERSION(From, To)                                                          \
  MUSTER_VECTOR_CLONES                                                                       \
  void CopyElements(const From* from, To* to, std::int64_t count) { Copy(from, to, count); } \
  MUSTER_VECTOR_CLONES                                                                       \
  void AddElements(const From* from, To* to, std::int64_t count) { Add(from, to, count); }
#define MUSTER_CONVERSIONS_FROM(From) \
  MUSTER_CONVERSION(From, double)     \
  MUSTER_CONVERSION(From, float)      \
  MUSTER_CONVERSION(From, BFloat16)   \
  MUSTER_CONVERSION(From, Float16)
MUSTER_CONVERSIONS_FROM(double)
MUSTER_CONVERSIONS_FROM(float)
MUSTER_CONVERSIONS_FROM(BFloat16)
MUSTER_CONVERSIONS_FROM(Float16)

#define MUSTER_SQUARES(Element)                                      \
  MUSTER_VECTOR_CLONES                                               \
  double Squares(const Element* values, std::int64_t count) {        \
    return SumOver<double>(count, [values](std::int64_t i) {         \
      return static_cast<double>(Load(values[i])) * Load(values[i]); \
    });                                                              \
  }
MUSTER_SQUARES(double)
MUSTER_SQUARES(float)
MUSTER_SQUARES(BFloat16)
MUSTER_SQUARES(Float16)

// Calls f with a null pointer of the element type.
template <typename F>
auto WithElement(ElementType type, F f) {
  switch (type) {
    case ElementType::kFloat64: return f(static_cast<double*>(nullptr));
    case ElementType::kFloat32: return f(static_cast<float*>(nullptr));
    case ElementType::kBFloat16: return f(static_cast<BFloat16*>(nullptr));
    case ElementType::kFloat16: return f(static_cast<Float16*>(nullptr));
    case ElementType::kUint8:
    case ElementType::kInt64: break;
  }
  std::abort();  // not a floating point type
}

}  // namespace

void Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
             std::int64_t count, bool add) {
  WithElement(from_type, [&]<typename From>(From*) {
    WithElement(to_type, [&]<typename To>(To*) {
      const From* source = static_cast<const From*>(from);
      To* target = static_cast<To*>(to);
      if (add) {
        AddElements(source, target, count);
      } else {
        CopyElements(source, target, count);
      }
    });
  });
}

double SumOfSquares(const void* values, ElementType type, std::int64_t count) {
  return WithElement(type, [&]<typename Element>(Element*) {
    return Squares(static_cast<const Element*>(values), count);
  });
}

}  // namespace muster
