#include "trainer/formats/weight_files.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/json.h"

namespace muster {
namespace {

std::int64_t Bytes(const TensorSpec& tensor) {
  return tensor.count() * TensorTypeSize(tensor.type);
}

std::string ShardName(std::size_t number, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

}  // namespace

std::vector<WeightFile> PlanWeightFiles(std::vector<TensorSpec> tensors, std::int64_t max_bytes) {
  std::vector<WeightFile> files(1);
  std::int64_t bytes = 0;
  for (TensorSpec& tensor : tensors) {
    const std::int64_t more = Bytes(tensor);
    if (!files.back().tensors.empty() && more > max_bytes - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().tensors.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1 ? "model.safetensors" : ShardName(i + 1, files.size());
  }
  return files;
}

std::string WeightIndexJson(const std::vector<WeightFile>& files) {
  std::int64_t bytes = 0, parameters = 0;
  nlohmann::json map = nlohmann::json::object();  // sorted by tensor, as save_pretrained writes it
  for (const WeightFile& file : files) {
    for (const TensorSpec& tensor : file.tensors) {
      bytes += Bytes(tensor);
      parameters += tensor.count();
      map[tensor.name] = file.name;
    }
  }
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
      {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

WeightFiles::WeightFiles(std::string dir, std::vector<WeightFile> files)
    : dir_(std::move(dir)), files_(std::move(files)) {}

Status WeightFiles::Begin() { return BeginFile(); }

Status WeightFiles::BeginFile() {
  const WeightFile& file = files_[current_];
  auto writer = SafetensorsWriter::Create(dir_ + "/" + file.name, file.tensors);
  MUSTER_RETURN_IF_ERROR(writer.status());
  writer_.emplace(*std::move(writer));
  left_ = 0;
  for (const TensorSpec& tensor : file.tensors) left_ += tensor.count();
  return OkStatus();
}

Status WeightFiles::FinishFile() {
  MUSTER_RETURN_IF_ERROR(writer_->Finish());
  writer_.reset();
  return OkStatus();
}

Status WeightFiles::GoOn() {
  if (left_ > 0) return OkStatus();
  MUSTER_CHECK(current_ + 1 < files_.size(), "more elements than the tensors have");
  MUSTER_RETURN_IF_ERROR(FinishFile());
  ++current_;
  return BeginFile();
}

Status WeightFiles::AppendStored(const void* values, std::int64_t count) {
  if (count == 0) return OkStatus();
  MUSTER_RETURN_IF_ERROR(GoOn());
  left_ -= count;
  return writer_->AppendStored(values, count);
}

Status WeightFiles::Append(const float* values, std::int64_t count) {
  while (count > 0) {
    MUSTER_RETURN_IF_ERROR(GoOn());
    const std::int64_t now = std::min(count, left_);
    MUSTER_RETURN_IF_ERROR(writer_->AppendFloats(values, now));
    values += now;
    count -= now;
    left_ -= now;
  }
  return OkStatus();
}

Status WeightFiles::Finish() {
  if (current_ + 1 < files_.size()) {
    return FailedPrecondition("write " + dir_ + ": the tensors of " + files_[current_ + 1].name +
                              " were not written");
  }
  MUSTER_RETURN_IF_ERROR(FinishFile());
  if (files_.size() == 1) return OkStatus();
  return WriteFileAtomically(dir_ + "/model.safetensors.index.json", WeightIndexJson(files_));
}

}  // namespace muster
