#include "trainer/verbs/checkpoint_list.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using State = ListedCheckpoint::State;

// The directory of checkpoints itself.
Result<std::string> CheckpointsOf(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path + "/checkpoints", error)) return path + "/checkpoints";
  if (fs::is_directory(path, error)) return path;
  return NotFound(path + ": there is no such directory");
}

std::int64_t ModifiedAt(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mtim.tv_sec : 0;
}

// The sizes on the disk, or every byte, against what the manifest says.
Status CheckShards(const std::string& directory, const CheckpointManifest& manifest, bool verify) {
  for (const ShardRecord& shard : manifest.shards) {
    if (verify) {
      MUSTER_RETURN_IF_ERROR(VerifyShard(directory, shard));
      continue;
    }
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(directory + "/" + shard.file, error);
    if (error) return DataLoss(shard.file + " is not there");
    if (bytes != shard.bytes) {
      return DataLoss(shard.file + " has " + std::to_string(bytes) + " bytes, the manifest says " +
                      std::to_string(shard.bytes));
    }
  }
  return OkStatus();
}

// Every shard has it. What cannot be read says nothing of the checkpoint's other shards.
std::optional<AdapterOrigin> AdapterIn(const std::string& directory,
                                       const CheckpointManifest& manifest) {
  Result<ShardHeader> header = ReadShardHeader(directory + "/" + manifest.shards.front().file);
  return header.ok() ? std::move(header->adapter) : std::nullopt;
}

ListedCheckpoint Listed(const std::string& checkpoints, const std::string& name, bool verify) {
  ListedCheckpoint listed{.directory = name};
  ParseCheckpointDirectoryName(name, &listed.step, &listed.generation);
  const std::string directory = checkpoints + "/" + name;
  listed.modified = ModifiedAt(directory);
  std::error_code error;
  const std::string manifest_path = directory + "/" + kManifestFile;
  if (!fs::exists(manifest_path, error)) return listed;
  listed.modified = ModifiedAt(manifest_path);
  const Result<CheckpointManifest> manifest = ReadManifest(checkpoints, name);
  const Status status =
      manifest.ok() ? CheckShards(directory, *manifest, verify) : manifest.status();
  listed.state = status.ok() ? State::kCommitted : State::kDamaged;
  listed.problem = status.message();
  if (!manifest.ok()) return listed;
  listed.ranks = manifest->world_size;
  if (status.ok()) {
    listed.eval_loss = manifest->eval_loss;
    listed.adapter = AdapterIn(directory, *manifest);
  }
  for (const ShardRecord& shard : manifest->shards) listed.bytes += shard.bytes;
  return listed;
}

// The order of FindManifests.
bool IsTriedBefore(const ListedCheckpoint& a, const ListedCheckpoint& b) {
  const bool counts = a.state == State::kCommitted, other = b.state == State::kCommitted;
  if (counts != other) return counts;
  return a.generation != b.generation ? a.generation > b.generation : a.step > b.step;
}

void MarkBest(std::vector<ListedCheckpoint>& found) {
  ListedCheckpoint* best = nullptr;
  for (ListedCheckpoint& each : found) {
    if (each.eval_loss && (best == nullptr || *each.eval_loss < *best->eval_loss)) best = &each;
  }
  if (best != nullptr) best->best = true;
}

// What a run holds as long as it writes.
Status CheckNobodyWrites(const std::string& checkpoints) {
  const std::string path =
      (fs::absolute(checkpoints).lexically_normal().parent_path() / "metrics.jsonl").string();
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    return OkStatus();
  }
  return FailedPrecondition(path + " is being written: a run still uses these checkpoints");
}

// The manifest goes first: what is left of the directory then does not count.
Status Remove(const std::string& directory) {
  std::error_code error;
  fs::remove(directory + "/" + kManifestFile, error);
  if (!error) MUSTER_RETURN_IF_ERROR(SyncDirectory(directory));
  if (!error) fs::remove_all(directory, error);
  return error ? Internal("cannot remove " + directory + ": " + error.message()) : OkStatus();
}

}  // namespace

std::string_view CheckpointStateName(State state) {
  switch (state) {
    case State::kCommitted: return "committed";
    case State::kUncommitted: return "uncommitted";
    case State::kDamaged: return "damaged";
  }
  return "";
}

Result<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& path, bool verify) {
  MUSTER_ASSIGN_OR_RETURN(const std::string checkpoints, CheckpointsOf(path));
  std::vector<ListedCheckpoint> found;
  std::error_code error;
  fs::directory_iterator entries(checkpoints, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    Step step = 0;
    Generation generation = 0;
    if (!ParseCheckpointDirectoryName(name, &step, &generation)) continue;
    found.push_back(Listed(checkpoints, name, verify));
  }
  if (error) return Internal("cannot list " + checkpoints + ": " + error.message());
  std::sort(found.begin(), found.end(), IsTriedBefore);
  if (!found.empty()) found.front().resumes = found.front().state == State::kCommitted;
  MarkBest(found);
  return found;
}

Result<std::vector<std::string>> PruneCheckpoints(const std::string& path, int keep) {
  MUSTER_ASSIGN_OR_RETURN(const std::string checkpoints, CheckpointsOf(path));
  MUSTER_RETURN_IF_ERROR(CheckNobodyWrites(checkpoints));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> found,
                          ListCheckpoints(path, /*verify=*/false));
  std::vector<std::string> extra;
  int seen = 0;
  for (const ListedCheckpoint& checkpoint : found) {
    if (checkpoint.state == State::kCommitted && ++seen > keep && !checkpoint.best) {
      extra.push_back(checkpoints + "/" + checkpoint.directory);
    }
  }
  std::reverse(extra.begin(), extra.end());
  for (const std::string& directory : extra) MUSTER_RETURN_IF_ERROR(Remove(directory));
  return extra;
}

std::string AgeText(std::int64_t seconds) {
  seconds = std::max<std::int64_t>(0, seconds);
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 120 * 60) return std::to_string(seconds / 60) + " min";
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86400) + " d";
}

}  // namespace muster
