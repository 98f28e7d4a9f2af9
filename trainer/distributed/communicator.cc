#include "trainer/distributed/communicator.h"

namespace muster {

std::size_t ElementSize(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return 1;
    case ElementType::kBFloat16: return 2;
    case ElementType::kFloat32: return 4;
    case ElementType::kInt64: return 8;
    case ElementType::kFloat64: return 8;
  }
  return 0;
}

}  // namespace muster
