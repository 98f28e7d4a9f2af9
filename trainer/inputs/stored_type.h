// The element type of a model's files, as config.json names it.
#pragma once

#include <string>

#include "trainer/formats/safetensors.h"

namespace muster {

inline TensorType StoredType(const std::string& torch_dtype) {
  if (torch_dtype == "bfloat16") return TensorType::kBF16;
  if (torch_dtype == "float16") return TensorType::kF16;
  return TensorType::kF32;
}

}  // namespace muster
