// ModelDirectory: a Hugging Face model directory under construction.
//
// Everything is written beside the target and renamed into place by Finish, so that the target is
// there whole or not at all; an older directory of that name is replaced. One thread; blocks on the
// file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "trainer/formats/safetensors.h"

namespace muster {

class ModelDirectory {
 public:
  // Configuration and tokenizer files come from `source_dir`.
  ModelDirectory(std::string source_dir, std::string target_dir);
  // Removes what was not finished.
  ~ModelDirectory();
  ModelDirectory(const ModelDirectory&) = delete;
  ModelDirectory& operator=(const ModelDirectory&) = delete;

  Status Begin(std::vector<TensorSpec> tensors);
  // The next `count` elements of the tensors, in their order.
  Status Append(const float* values, std::int64_t count);
  Status Finish();

 private:
  const std::string source_dir_;
  const std::string target_dir_;
  const std::string temporary_;
  bool begun_ = false;  // and not finished: the temporary directory is this object's
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace muster
