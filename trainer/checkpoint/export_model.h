// A Hugging Face model directory out of a saved state, in one process, tensor after tensor.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "trainer/checkpoint/state_reader.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/weight_files.h"

namespace muster {

struct ModelExport {
  std::vector<TensorSpec> tensors;  // the model's, in the types in which they are to be stored
  std::string source_dir;           // configuration and tokenizer files are copied from here
  std::string target_dir;
  std::int64_t max_shard_bytes = kDefaultMaxShardBytes;
};

// Blocks on the disk; memory is a few MB. kFailedPrecondition when the state is not of this model,
// with the tensor's name; kDataLoss when it is damaged. Nothing is left then.
Status WriteModelDirectory(StateReader& state, const ModelExport& model);

}  // namespace muster
