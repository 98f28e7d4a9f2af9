#include "trainer/state/checkpoint/init_from.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "trainer/comm/agree.h"
#include "trainer/comm/long_work.h"
#include "trainer/formats/weights_fingerprint.h"
#include "trainer/state/checkpoint/cursor_json.h"
#include "trainer/state/checkpoint/file_state.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/sharded_state.h"
#include "trainer/state/checkpoint/state_reader.h"

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

// What a path names.
struct Source {
  std::string root;        // of checkpoints; empty: `path` is a file
  std::string checkpoint;  // the directory's name in it; empty: the newest one
};

Result<Source> FindSource(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return NotFound(path + ": there is no such checkpoint directory or state file");
  }
  if (!fs::is_directory(status)) return Source();
  const fs::path place = WithoutTrailingSlash(path);
  if (!fs::exists(place / kManifestFile, error)) return Source{.root = place.string()};
  return Source{.root = place.parent_path().string(), .checkpoint = place.filename().string()};
}

Result<CheckpointManifest> ManifestOf(const Source& source) {
  return source.checkpoint.empty() ? NewestManifest(source.root)
                                   : ReadManifest(source.root, source.checkpoint);
}

Result<std::unique_ptr<StateReader>> OpenCheckpoint(const std::string& root,
                                                    CheckpointManifest manifest) {
  auto state = std::make_unique<ShardedState>(root, std::move(manifest));
  MUSTER_RETURN_IF_ERROR(state->OpenAll());
  return std::unique_ptr<StateReader>(std::move(state));
}

Result<TrainCursor> Fill(StateReader& state, const std::vector<ShardArray>& arrays,
                         const InitFromOptions& options) {
  MUSTER_RETURN_IF_ERROR(FillArrays(state, arrays,
                                    {.moments = options.optimizer,
                                     .convert = true,
                                     .memory = options.memory,
                                     .on_read = options.on_read}));
  return state.cursor();
}

// The values of a state file and where its training stood, as one text.
Result<std::string> FingerprintFile(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel file, SafetensorsModel::OpenFile(path));
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t weights, FingerprintWeights(file));
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<FileState> state, FileState::Open(path));
  return FingerprintText(weights) + " " + CursorToJson(state->cursor()).dump();
}

// Rank 0's choice, as all ranks know it: a checkpoint's manifest or a file's fingerprint.
Result<std::string> ChooseState(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const Source source, FindSource(path));
  if (source.root.empty()) return FingerprintFile(path);
  MUSTER_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ManifestOf(source));
  return ManifestToJson(manifest);
}

Result<std::unique_ptr<StateReader>> OpenChosen(const std::string& path,
                                                const std::string& chosen) {
  MUSTER_ASSIGN_OR_RETURN(const Source source, FindSource(path));
  Result<CheckpointManifest> manifest = ManifestFromJson(chosen);
  if (source.root.empty() == manifest.ok()) {
    return FailedPrecondition(path +
                              " is not what rank 0 has there: one is a checkpoint, the "
                              "other a file; copy one state to every node");
  }
  if (manifest.ok()) return OpenCheckpoint(source.root, *std::move(manifest));
  MUSTER_ASSIGN_OR_RETURN(const std::string mine, FingerprintFile(path));
  if (mine != chosen) {
    return FailedPrecondition(path +
                              " holds other weights than rank 0's file; copy one file to "
                              "every node");
  }
  return OpenState(path);
}

}  // namespace

Result<std::unique_ptr<StateReader>> OpenState(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const Source source, FindSource(path));
  if (source.root.empty()) {
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<StateReader> state, FileState::Open(path));
    return state;
  }
  MUSTER_ASSIGN_OR_RETURN(CheckpointManifest manifest, ManifestOf(source));
  return OpenCheckpoint(source.root, std::move(manifest));
}

Result<TrainCursor> InitFrom(Communicator& communicator, const std::string& path,
                             const std::vector<ShardArray>& arrays,
                             const InitFromOptions& options) {
  Result<std::string> chosen = std::string();
  if (communicator.rank() == 0) chosen = ChooseState(path);
  MUSTER_RETURN_IF_ERROR(AgreeOnStatus(communicator, chosen.status()));
  MUSTER_RETURN_IF_ERROR(ShareText(communicator, &*chosen, 0));
  LongWork reading(communicator);
  InitFromOptions moving = options;
  moving.on_read = [&] {
    if (options.on_read) options.on_read();
    reading.Move();
  };
  const auto read = [&]() -> Result<TrainCursor> {
    MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<StateReader> state, OpenChosen(path, *chosen));
    return Fill(*state, arrays, moving);
  };
  Result<TrainCursor> mine = read();
  MUSTER_RETURN_IF_ERROR(reading.Await());
  MUSTER_RETURN_IF_ERROR(AgreeOnStatus(communicator, mine.status()));
  return mine;
}

}  // namespace muster
