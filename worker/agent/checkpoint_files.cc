#include "worker/agent/checkpoint_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/regular_file.h"
#include "common/base/version_table.h"

namespace muster::worker {
namespace {

// 7 of "step-00000020-g7"; 0 for any other name.
Generation GenerationOf(const std::string& name) {
  const std::size_t dash = name.rfind("-g");
  if (!IsCheckpointName(name) || dash == std::string::npos) return 0;
  Generation generation = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + dash + 2, end, generation);
  return parsed.ec == std::errc() && parsed.ptr == end ? generation : 0;
}

}  // namespace

std::string ManifestJson(const JobId& job, const CheckpointInfo& checkpoint) {
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (const ShardInfo& shard : checkpoint.shards)
    shards.push_back({{"rank", shard.rank},
                      {"file", shard.file},
                      {"bytes", shard.bytes},
                      {"checksum", shard.checksum}});
  nlohmann::ordered_json json = {{"format_version", kManifests.max},
                                 {"job_id", job.value},
                                 {"step", checkpoint.step},
                                 {"generation", checkpoint.generation},
                                 {"directory", checkpoint.directory},
                                 {"world_size", checkpoint.world_size},
                                 {"shards", shards},
                                 {"committed_unix_ms", checkpoint.committed_unix_ms}};
  if (checkpoint.eval_loss) json["eval_loss"] = *checkpoint.eval_loss;
  return json.dump(1) + "\n";
}

bool IsCheckpointName(const std::string& name) {
  constexpr char kAllowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return name.starts_with("step-") && name.find_first_not_of(kAllowed) == std::string::npos;
}

CommitWritten WriteManifest(const CheckpointCommitted& committed) {
  const std::string root = committed.output_dir + "/checkpoints/";
  const std::string& name = committed.checkpoint.directory;
  CommitWritten written;
  if (!IsCheckpointName(name)) {
    written.status = InvalidArgument("'" + name + "' names no checkpoint");
    return written;
  }
  const std::string path = root + name + "/manifest.json";
  const std::string json = ManifestJson(committed.job, committed.checkpoint);
  // A disk that cannot be written must not prevent the removal of old checkpoints.
  if (const auto lies_there = ReadRegularFile(path, static_cast<std::int64_t>(json.size()) + 1);
      !lies_there.ok() || *lies_there != json)
    written.status = WriteFileAtomically(path, json);
  if (!written.status.ok()) return written;
  for (const std::string& old : committed.prune) {
    if (!IsCheckpointName(old) || old == name) {
      written.prune_error = "'" + old + "' is not removed: it names no older checkpoint";
      continue;
    }
    // The manifest is removed first: an interrupted removal leaves no half checkpoint that looks
    // whole.
    std::error_code error;
    std::filesystem::remove(root + old + "/manifest.json", error);
    std::filesystem::remove_all(root + old, error);
    if (error) {
      written.prune_error = "remove " + root + old + ": " + error.message();
    } else {
      written.pruned.push_back(old);
    }
  }
  return written;
}

std::vector<std::string> RemoveAbandonedCheckpoints(const std::string& output_dir,
                                                    const Launch& launch) {
  std::vector<std::string> removed;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(output_dir + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    const Generation generation = GenerationOf(name);
    if (generation <= 0 || generation >= launch.generation) continue;
    const bool offered =
        std::any_of(launch.resume.begin(), launch.resume.end(),
                    [&](const CheckpointInfo& offer) { return offer.directory == name; });
    std::error_code failed;
    if (offered || std::filesystem::exists(entry.path() / "manifest.json", failed) || failed)
      continue;
    // Another node may be removing the same one on a shared disk.
    std::filesystem::remove_all(entry.path(), failed);
    if (!failed) removed.push_back(name);
  }
  return removed;
}

}  // namespace muster::worker
