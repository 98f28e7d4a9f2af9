#include "trainer/formats/model_directory.h"

#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "trainer/formats/init_model.h"

namespace muster {
namespace fs = std::filesystem;

ModelDirectory::ModelDirectory(std::string source_dir, std::string target_dir)
    : source_dir_(std::move(source_dir)),
      target_dir_(std::move(target_dir)),
      temporary_(target_dir_ + ".writing") {}

ModelDirectory::~ModelDirectory() {
  if (!begun_) return;
  writer_.reset();
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

Status ModelDirectory::Begin(std::vector<TensorSpec> tensors) {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);  // of an export that was killed
  begun_ = true;
  MUSTER_RETURN_IF_ERROR(MakeDirectories(temporary_));
  auto copied = CopyModelFiles(source_dir_, temporary_);
  MUSTER_RETURN_IF_ERROR(copied.status());
  auto writer = SafetensorsWriter::Create(temporary_ + "/model.safetensors", std::move(tensors));
  MUSTER_RETURN_IF_ERROR(writer.status());
  writer_.emplace(*std::move(writer));
  return OkStatus();
}

Status ModelDirectory::Append(const float* values, std::int64_t count) {
  return writer_->AppendFloats(values, count);
}

Status ModelDirectory::Finish() {
  MUSTER_RETURN_IF_ERROR(writer_->Finish());
  MUSTER_RETURN_IF_ERROR(SyncDirectory(temporary_));
  const std::string old = target_dir_ + ".old";
  std::error_code error;
  fs::remove_all(old, error);
  if (fs::exists(target_dir_)) fs::rename(target_dir_, old, error);
  if (!error) fs::rename(temporary_, target_dir_, error);
  if (error) return Internal("cannot put the model at " + target_dir_ + ": " + error.message());
  begun_ = false;
  writer_.reset();
  fs::remove_all(old, error);
  const std::string parent = fs::path(target_dir_).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

}  // namespace muster
