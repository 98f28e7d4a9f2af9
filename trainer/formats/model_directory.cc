#include "trainer/formats/model_directory.h"

#include <charconv>
#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "trainer/formats/init_model.h"

namespace muster {
namespace fs = std::filesystem;

namespace {

constexpr const char* kWriting = ".writing";

// What all generations of a job have in common behind the target's name.
std::string JobSuffix(const ModelWriter& who) { return kWriting + ("-" + who.job) + "-g"; }

std::string Suffix(const ModelWriter& who) {
  return who.job.empty() ? kWriting : JobSuffix(who) + std::to_string(who.generation);
}

// "out/" is "out".
std::string WithoutSlash(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

fs::path ParentOf(const std::string& target_dir) {
  const fs::path parent = fs::path(target_dir).parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace

void PutFile(ModelFile file, std::vector<ModelFile>* files) {
  std::erase_if(*files, [&file](const ModelFile& each) { return each.name == file.name; });
  files->push_back(std::move(file));
}

ModelDirectory::ModelDirectory(std::string source_dir, std::string target_dir, ModelWriter writer)
    : source_dir_(std::move(source_dir)),
      target_dir_(WithoutSlash(std::move(target_dir))),
      who_(std::move(writer)),
      temporary_(target_dir_ + Suffix(who_)) {}

ModelDirectory::~ModelDirectory() {
  if (!begun_) return;
  weights_.reset();
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

// `name` lies beside the target.
ModelDirectory::Leftover ModelDirectory::Judge(const std::string& name) const {
  const std::string target = fs::path(target_dir_).filename().string();
  if (who_.job.empty()) return name == target + kWriting ? Leftover::kOlder : Leftover::kNone;
  if (!name.starts_with(target + kWriting)) return Leftover::kNone;
  const std::string mine = target + JobSuffix(who_);
  Generation generation = 0;
  if (name.starts_with(mine)) {
    std::from_chars(name.data() + mine.size(), name.data() + name.size(), generation);
  }
  return generation > who_.generation ? Leftover::kNewer : Leftover::kOlder;
}

std::vector<std::string> ModelDirectory::Leftovers(Leftover kind) const {
  std::vector<std::string> found;
  std::error_code error;
  fs::directory_iterator entries(ParentOf(target_dir_), error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (Judge(entries->path().filename().string()) == kind) {
      found.push_back(entries->path().string());
    }
  }
  return found;
}

Status ModelDirectory::BeginDirectory() {
  for (const std::string& leftover : Leftovers(Leftover::kOlder)) {
    std::error_code ignored;
    fs::remove_all(leftover, ignored);
  }
  begun_ = true;
  return MakeDirectories(temporary_);
}

Status ModelDirectory::WriteReplaced() const {
  for (const ModelFile& file : replaced_) {
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(temporary_ + "/" + file.name, file.text));
  }
  return OkStatus();
}

Status ModelDirectory::BeginWeights(std::vector<StoredTensor> tensors,
                                    std::vector<WeightFile> files) {
  weights_.emplace(temporary_, std::move(files));
  stream_.emplace(std::move(tensors), *weights_);
  return weights_->Begin();
}

Status ModelDirectory::Begin(std::vector<StoredTensor> tensors, std::int64_t max_shard_bytes) {
  MUSTER_RETURN_IF_ERROR(BeginDirectory());
  auto copied = CopyModelFiles(source_dir_, temporary_);
  MUSTER_RETURN_IF_ERROR(copied.status());
  MUSTER_RETURN_IF_ERROR(WriteReplaced());
  std::vector<WeightFile> files = PlanWeightFiles(FileTensors(tensors), max_shard_bytes);
  return BeginWeights(std::move(tensors), std::move(files));
}

Status ModelDirectory::BeginAdapter(Adapter adapter) {
  MUSTER_RETURN_IF_ERROR(BeginDirectory());
  MUSTER_RETURN_IF_ERROR(CopyTokenizerFiles(source_dir_, temporary_));
  MUSTER_RETURN_IF_ERROR(WriteReplaced());
  MUSTER_RETURN_IF_ERROR(
      WriteFileAtomically(temporary_ + "/" + adapter.config_name, adapter.config_text));
  std::vector<StoredTensor> tensors(adapter.tensors.begin(), adapter.tensors.end());
  return BeginWeights(std::move(tensors), {{adapter.weights_name, std::move(adapter.tensors)}});
}

Status ModelDirectory::Append(const float* values, std::int64_t count) {
  return stream_->Append(values, count);
}

Status ModelDirectory::Copy(const SafetensorsModel& model) { return stream_->Copy(model); }

Status ModelDirectory::Seal() {
  MUSTER_RETURN_IF_ERROR(weights_->Finish());
  return SyncDirectory(temporary_);
}

Status ModelDirectory::Publish() {
  const std::vector<std::string> newer = Leftovers(Leftover::kNewer);
  if (!newer.empty()) return Cancelled("a newer generation writes the model: " + newer.front());
  const std::string old = temporary_ + ".old";
  std::error_code ignored;
  fs::remove_all(old, ignored);
  std::error_code error;
  if (!fs::exists(temporary_, error)) return NotFound(temporary_ + " was removed meanwhile");
  const bool replaces = fs::exists(target_dir_, error);
  if (replaces) fs::rename(target_dir_, old, error);
  if (!error) {
    fs::rename(temporary_, target_dir_, error);
    if (error && replaces) fs::rename(old, target_dir_, ignored);
  }
  if (error) return Internal("cannot put the model at " + target_dir_ + ": " + error.message());
  begun_ = false;
  weights_.reset();
  fs::remove_all(old, ignored);
  return SyncDirectory(ParentOf(target_dir_).string());
}

Status ModelDirectory::Finish() {
  MUSTER_RETURN_IF_ERROR(Seal());
  return Publish();
}

}  // namespace muster
