#include "trainer/ops/cuda/device_documents.h"

#include <ATen/ATen.h>

#include <vector>

#include "trainer/ops/documents.h"
#include "trainer/ops/to_device.h"

namespace muster {

const DocumentArrays& DeviceDocuments::For(const BatchShape& shape, at::Device device) {
  if (arrays_.bounds.defined() && shape == shape_) return arrays_;
  const std::vector<std::int64_t> bounds = DocumentBounds(shape);
  const std::vector<std::int32_t> positions = TokenPositions(shape);
  arrays_ = {ToDevice(at::tensor(bounds, at::kLong).to(at::kInt), device),
             ToDevice(at::tensor(positions, at::kInt), device), LongestDocument(bounds)};
  shape_ = shape;
  return arrays_;
}

}  // namespace muster
