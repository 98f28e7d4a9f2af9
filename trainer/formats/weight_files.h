// The weights of a model directory: one safetensors file, or several and an index of them.
//
// The layout is that of transformers' save_pretrained with max_shard_size: tensors in their order,
// a new file where the next tensor would make the file's tensors larger than the bound (a tensor
// that is larger alone has a file of its own); model.safetensors if one file holds all, else
// model-00001-of-0000N.safetensors and model.safetensors.index.json with metadata.total_size (bytes
// of all tensors) and weight_map (tensor to file).
//
// WeightFiles belongs to one thread and blocks on the file system; memory is that of one
// SafetensorsWriter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "trainer/formats/safetensors.h"

namespace muster {

inline constexpr std::int64_t kDefaultMaxShardBytes = 5'000'000'000;

struct WeightFile {
  std::string name;
  std::vector<TensorSpec> tensors;
};
// Pure.
std::vector<WeightFile> PlanWeightFiles(std::vector<TensorSpec> tensors, std::int64_t max_bytes);
// The text of the index of several files. Pure.
std::string WeightIndexJson(const std::vector<WeightFile>& files);

class WeightFiles {
 public:
  // Into `dir`, which exists. `files` as PlanWeightFiles gives them, or one of any name.
  WeightFiles(std::string dir, std::vector<WeightFile> files);

  Status Begin();
  // The next `count` elements of the tensors, in their order; over the ends of tensors and files.
  Status Append(const float* values, std::int64_t count);
  // The same of elements in the type of their tensor, of one tensor.
  Status AppendStored(const void* values, std::int64_t count);
  // Checks that every element was appended; all files are durable then.
  Status Finish();

 private:
  Status BeginFile();
  Status FinishFile();
  // Goes on to the next file where the current one has all that it is to have.
  Status GoOn();

  const std::string dir_;
  const std::vector<WeightFile> files_;
  std::size_t current_ = 0;
  std::int64_t left_ = 0;  // elements that the current file still lacks
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace muster
