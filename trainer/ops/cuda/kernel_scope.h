// KernelScope: what a kernel of an operator may use beside the operator's arguments: the stream,
// and memory and arrays that LibTorch makes on it.
//
// Made for one run of one operator. What it gives stays until the kernel has been put on the
// stream, and is reused in the stream's order after that. The trainer's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/core/cuda_api.h"
#include "trainer/ops/array.h"
#include "trainer/ops/batch_shape.h"

namespace c10 {
struct Device;
}

namespace muster {

class DeviceDocuments;
class FusedAttention;

namespace cuda {

// Ids in ascending order, equal ones in the order of their places.
struct SortedIds {
  const std::int64_t* ids = nullptr;
  const std::int64_t* places = nullptr;
};

class KernelScope {
 public:
  // `attention` may be null.
  KernelScope(const c10::Device& device, CudaStream stream, DeviceDocuments& documents,
              const FusedAttention* attention)
      : device_(device), stream_(stream), documents_(documents), attention_(attention) {}

  CudaStream stream() const { return stream_; }
  // LibTorch's kernels of attention; null where it has none.
  const FusedAttention* attention() const { return attention_; }

  template <typename T>
  T* Scratch(std::int64_t count) {
    return static_cast<T*>(Bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }
  SortedIds Sorted(const ConstArray& ids);
  // [N]: the place of each token within its document.
  const std::int32_t* TokenPositions(const BatchShape& shape);
  // The array as a tensor again, which does not own it.
  at::Tensor TensorOf(const ConstArray& array) const;

 private:
  void* Bytes(std::size_t bytes);
  void* Hold(const at::Tensor& tensor);

  const c10::Device& device_;
  const CudaStream stream_;
  DeviceDocuments& documents_;
  const FusedAttention* const attention_;
  std::vector<std::shared_ptr<void>> held_;
};

}  // namespace cuda
}  // namespace muster
