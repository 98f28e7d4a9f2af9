// ModelDirectory: a Hugging Face model directory under construction.
//
// Everything is written beside the target and renamed into place, so that the target is there whole
// or not at all; an older directory of that name is replaced. The name beside the target is that of
// one generation of one job: a rank that was given up and runs on elsewhere writes into a directory
// of its own, which the next generation's Begin takes away from it. One thread; blocks on the file
// system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/stored_tensor.h"
#include "trainer/formats/weight_files.h"

namespace muster {

// The writer. Without a job no other process writes beside the same target.
struct ModelWriter {
  std::string job;
  Generation generation = 0;
};

// A file beside the weights, by its name in the directory.
struct ModelFile {
  std::string name;
  std::string text;
};

// In the place of the one of that name, or behind the others.
void PutFile(ModelFile file, std::vector<ModelFile>* files);

class ModelDirectory {
 public:
  // Configuration and tokenizer files come from `source_dir`.
  ModelDirectory(std::string source_dir, std::string target_dir, ModelWriter writer = {});
  // Removes what was not finished.
  ~ModelDirectory();
  ModelDirectory(const ModelDirectory&) = delete;
  ModelDirectory& operator=(const ModelDirectory&) = delete;

  // Before Begin: what it writes instead of the files of these names that `source_dir` has, or
  // beside them.
  void Replace(std::vector<ModelFile> files) { replaced_ = std::move(files); }

  // Also removes what other jobs and older generations of this one left unfinished. Weights beyond
  // `max_shard_bytes` are split (weight_files.h).
  Status Begin(std::vector<StoredTensor> tensors,
               std::int64_t max_shard_bytes = kDefaultMaxShardBytes);
  // The same for an adapter: its tensors in one file, its configuration, and the tokenizer's files.
  struct Adapter {
    std::string weights_name;
    std::vector<TensorSpec> tensors;
    std::string config_name;
    std::string config_text;
  };
  Status BeginAdapter(Adapter adapter);
  // The next `count` elements of the tensors, in their order.
  Status Append(const float* values, std::int64_t count);
  // As TensorStream's.
  Status Copy(const SafetensorsModel& model);
  const Mxfp4Error& mxfp4_error() const { return stream_->mxfp4_error(); }
  // Makes it durable under its temporary name. An error also when a newer generation removed it.
  Status Seal();
  // Puts what was sealed in place; when that fails, what was there stays. kCancelled when a newer
  // generation has begun to write.
  Status Publish();
  // Both.
  Status Finish();

 private:
  enum class Leftover { kNone, kOlder, kNewer };
  Leftover Judge(const std::string& name) const;
  std::vector<std::string> Leftovers(Leftover kind) const;
  Status BeginDirectory();
  Status WriteReplaced() const;
  Status BeginWeights(std::vector<StoredTensor> tensors, std::vector<WeightFile> files);

  const std::string source_dir_;
  const std::string target_dir_;
  const ModelWriter who_;
  const std::string temporary_;
  bool begun_ = false;  // and not finished: the temporary directory is this object's
  std::vector<ModelFile> replaced_;
  std::optional<WeightFiles> weights_;
  std::optional<TensorStream> stream_;  // into them
};

}  // namespace muster
