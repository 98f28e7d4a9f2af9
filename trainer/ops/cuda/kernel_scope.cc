#include "trainer/ops/cuda/kernel_scope.h"

#include <ATen/ATen.h>

#include "trainer/ops/cuda/device_documents.h"
#include "trainer/ops/scalar_type.h"

namespace muster::cuda {

SortedIds KernelScope::Sorted(const ConstArray& ids) {
  const at::Tensor unsorted = TensorOf(ids);
  // Stable, so that the places of an id stay in order.
  const auto [sorted, places] =
      at::sort(unsorted, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  return {static_cast<const std::int64_t*>(Hold(sorted)),
          static_cast<const std::int64_t*>(Hold(places))};
}

const std::int32_t* KernelScope::TokenPositions(const BatchShape& shape) {
  return documents_.For(shape, device_).positions.const_data_ptr<std::int32_t>();
}

at::Tensor KernelScope::TensorOf(const ConstArray& array) const {
  return at::from_blob(
      const_cast<void*>(array.data()),
      at::IntArrayRef(array.shape().lengths, static_cast<std::size_t>(array.shape().dimensions)),
      at::TensorOptions(device_).dtype(ScalarTypeOf(array.type())));
}

void* KernelScope::Bytes(std::size_t bytes) {
  return Hold(
      at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(device_).dtype(at::kByte)));
}

void* KernelScope::Hold(const at::Tensor& tensor) {
  held_.push_back(std::make_shared<at::Tensor>(tensor));
  return tensor.data_ptr();
}

}  // namespace muster::cuda
