#include "trainer/loop/hf_export.h"

#include <unistd.h>

#include <filesystem>
#include <optional>

#include "common/base/files.h"
#include "trainer/formats/init_model.h"
#include "trainer/formats/safetensors.h"
#include "trainer/loop/stored_type.h"
#include "trainer/model/llama_units.h"
#include "trainer/sharding/export_stream.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Rank 0's side: a temporary directory that becomes the target.
class ModelDirectory {
 public:
  explicit ModelDirectory(ExportOptions options)
      : options_(std::move(options)), temporary_(options_.target_dir + ".writing") {}

  Status Begin(const ModelConfig& config) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);  // of an export that was killed
    MUSTER_RETURN_IF_ERROR(MakeDirectories(temporary_));
    auto copied = CopyModelFiles(options_.source_dir, temporary_);
    MUSTER_RETURN_IF_ERROR(copied.status());
    std::vector<TensorSpec> tensors;
    for (const UnitTensor& tensor : LlamaTensors(config)) {
      tensors.push_back(
          {.name = tensor.name, .type = StoredType(config.torch_dtype), .shape = tensor.shape});
    }
    auto writer = SafetensorsWriter::Create(temporary_ + "/model.safetensors", std::move(tensors));
    MUSTER_RETURN_IF_ERROR(writer.status());
    writer_.emplace(*std::move(writer));
    return OkStatus();
  }

  Status Append(const float* values, std::int64_t count) {
    return writer_->AppendFloats(values, count);
  }

  Status Finish() {
    MUSTER_RETURN_IF_ERROR(writer_->Finish());
    MUSTER_RETURN_IF_ERROR(SyncDirectory(temporary_));
    const std::string old = options_.target_dir + ".old";
    std::error_code error;
    fs::remove_all(old, error);
    if (fs::exists(options_.target_dir)) fs::rename(options_.target_dir, old, error);
    if (!error) fs::rename(temporary_, options_.target_dir, error);
    if (error) {
      return Internal("cannot put the model at " + options_.target_dir + ": " + error.message());
    }
    fs::remove_all(old, error);
    return SyncDirectory(fs::path(options_.target_dir).parent_path().string());
  }

 private:
  ExportOptions options_;
  std::string temporary_;
  std::optional<SafetensorsWriter> writer_;
};

// Every rank learns whether rank 0 managed.
Status Agree(const Status& mine, Communicator& communicator) {
  if (communicator.size() == 1) return mine;
  std::int64_t failed = mine.ok() ? 0 : 1;
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&failed, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  // Only a symptom here: rank 0 says the cause.
  if (mine.ok() && failed != 0) return Unavailable("rank 0 could not write the model; see its log");
  return mine;
}

}  // namespace

Status ExportModel(const ModelConfig& config, const FsdpEngine& engine, Communicator& communicator,
                   const ExportOptions& options) {
  ModelDirectory directory(options);
  Status status;
  if (communicator.rank() == 0) status = directory.Begin(config);
  const Status begun = status;
  const TensorSink sink = [&](const float* values, std::int64_t count) {
    return begun.ok() ? directory.Append(values, count) : begun;
  };
  // Replicas hold the same weights: the shard group of rank 0 sends them.
  Status streamed;
  if (engine.is_first_replica()) {
    streamed = StreamTensors(engine.layout(), engine.state(), engine.shard_group(), sink);
  }
  if (communicator.rank() != 0) {
    MUSTER_RETURN_IF_ERROR(streamed);
  } else if (status.ok()) {
    status = streamed.ok() ? directory.Finish() : streamed;
  }
  return Agree(status, communicator);
}

}  // namespace muster
