#include "trainer/ops/array.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <numeric>

#include "trainer/ops/scalar_type.h"

namespace muster {

ConstArray::ConstArray(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  TORCH_CHECK(tensor.dim() <= ArrayShape::kMostDimensions, "no kernel takes an array of shape ",
              tensor.sizes());
  data_ = tensor.data_ptr();
  defined_ = true;
  contiguous_ = tensor.is_contiguous();
  device_ = tensor.device().type();
  type_ = ElementTypeOf(tensor.scalar_type());
  shape_.dimensions = static_cast<int>(tensor.dim());
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape_.lengths);
}

std::int64_t ConstArray::count() const {
  return std::accumulate(shape_.lengths, shape_.lengths + shape_.dimensions, std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace muster
