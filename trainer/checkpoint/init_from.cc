#include "trainer/checkpoint/init_from.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "trainer/checkpoint/file_state.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/sharded_state.h"
#include "trainer/checkpoint/state_reader.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// "a/b/" and "a/b/." name the directory b of a.
fs::path WithoutTrailingSlash(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

Result<CheckpointManifest> NewestManifest(const std::string& directory) {
  MUSTER_ASSIGN_OR_RETURN(FoundManifests found, FindManifests(directory));
  if (!found.manifests.empty()) return std::move(found.manifests.front());
  if (!found.unreadable.empty()) return found.unreadable.front();
  return NotFound(directory + " holds no committed checkpoint: neither " + kManifestFile +
                  " nor directories with one (a Hugging Face model belongs in train.model.path)");
}

}  // namespace

Result<std::unique_ptr<StateReader>> OpenState(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return NotFound(path + ": there is no such checkpoint directory or state file");
  }
  if (!fs::is_directory(status)) {
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<StateReader> state, FileState::Open(path));
    return state;
  }
  const fs::path place = WithoutTrailingSlash(path);
  const bool is_checkpoint = fs::exists(place / kManifestFile, error);
  const std::string root = is_checkpoint ? place.parent_path().string() : place.string();
  MUSTER_ASSIGN_OR_RETURN(
      CheckpointManifest manifest,
      is_checkpoint ? ReadManifest(root, place.filename().string()) : NewestManifest(root));
  auto state = std::make_unique<ShardedState>(root, std::move(manifest));
  MUSTER_RETURN_IF_ERROR(state->OpenAll());
  return std::unique_ptr<StateReader>(std::move(state));
}

Result<TrainCursor> InitFrom(const std::string& path, const std::vector<ShardArray>& arrays,
                             const InitFromOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<StateReader> state, OpenState(path));
  MUSTER_RETURN_IF_ERROR(FillArrays(*state, arrays,
                                    {.moments = options.optimizer,
                                     .convert = true,
                                     .memory = options.memory,
                                     .on_read = options.on_read}));
  return state->cursor();
}

}  // namespace muster
