// A Hugging Face model directory, or PEFT's of an adapter, out of a saved state, in one process,
// tensor after tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/weight_files.h"
#include "trainer/state/checkpoint/state_reader.h"

namespace muster {

struct ModelExport {
  // By their names in the state, in the types in which they are to be stored.
  std::vector<TensorSpec> tensors = {};
  // What files hold of them, in their order; empty: the same.
  std::vector<StoredTensor> stored = {};
  std::string source_dir;  // configuration and tokenizer files are copied from here
  std::string target_dir;
  std::int64_t max_shard_bytes = kDefaultMaxShardBytes;
  std::vector<ModelFile> replaced = {};  // instead of source_dir's
  // What is written is an adapter; it has `tensors` in their order, under names of its own.
  std::optional<ModelDirectory::Adapter> adapter = {};
};

// Blocks on the disk; memory is a few MB. kFailedPrecondition when the state is not of this model,
// with the tensor's name; kDataLoss when it is damaged. Nothing is left then.
// `error`: of what was put into MXFP4; null: not asked for.
Status WriteModelDirectory(StateReader& state, const ModelExport& model,
                           Mxfp4Error* error = nullptr);

}  // namespace muster
