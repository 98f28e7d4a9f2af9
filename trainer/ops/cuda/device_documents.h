// DeviceDocuments: where the documents of a batch begin, in the device's memory.
//
// Kept until another batch comes, since every block of the model asks for the same. The trainer's
// thread; ordered by the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/ops/batch_shape.h"

namespace muster {

struct DocumentArrays {
  at::Tensor bounds;     // [documents + 1] int32: first tokens, and the number of tokens
  at::Tensor positions;  // [N] int32: of every token within its document
  std::int64_t longest = 0;
};

class DeviceDocuments {
 public:
  // The result is good until the next call.
  const DocumentArrays& For(const BatchShape& shape, at::Device device);

 private:
  BatchShape shape_;
  DocumentArrays arrays_;
};

}  // namespace muster
