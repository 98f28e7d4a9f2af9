#include "trainer/ops/cuda/device_documents.h"

#include <ATen/ATen.h>

#include <vector>

#include "trainer/ops/documents.h"

namespace muster {
namespace {

at::Tensor Moved(const at::Tensor& host, at::Device device) {
  // From pinned memory the copy is one more entry of the stream, from other memory a wait for it.
  if (device.is_cpu()) return host;
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace

const DocumentArrays& DeviceDocuments::For(const BatchShape& shape, at::Device device) {
  if (arrays_.bounds.defined() && shape == shape_) return arrays_;
  const std::vector<std::int64_t> bounds = DocumentBounds(shape);
  const std::vector<std::int32_t> positions = TokenPositions(shape);
  arrays_ = {Moved(at::tensor(bounds, at::kLong).to(at::kInt), device),
             Moved(at::tensor(positions, at::kInt), device), LongestDocument(bounds)};
  shape_ = shape;
  return arrays_;
}

}  // namespace muster
