#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/regular_file.h"
#include "trainer/state/checkpoint/committer.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"

namespace muster {
namespace {

using nlohmann::json;

// Without a coordinator the ranks meet on the shared disk: each leaves a record beside its shard,
// and rank 0 waits for all of them.
class LocalCommitter final : public CheckpointCommitter {
 public:
  explicit LocalCommitter(LocalCommitterOptions options) : options_(std::move(options)) {}

  Status ShardWritten(const CheckpointManifest& checkpoint, const ShardRecord& shard) override {
    MUSTER_RETURN_IF_ERROR(WriteRecord(checkpoint, shard.rank,
                                       {{"rank", shard.rank},
                                        {"file", shard.file},
                                        {"bytes", shard.bytes},
                                        {"checksum", shard.checksum}}));
    return shard.rank == 0 ? Commit(checkpoint) : OkStatus();
  }

  void Failed(const CheckpointManifest& checkpoint, int rank, const Status& reason) override {
    std::fprintf(stderr, "checkpoint of step %lld failed: %s\n",
                 static_cast<long long>(checkpoint.step), reason.message().c_str());
    // Spares rank 0 the wait; where the disk is full it may not get through.
    if (rank != 0) {
      (void)WriteRecord(checkpoint, rank, {{"failed", reason.message()}});
    }
  }

 private:
  std::string RecordPath(const CheckpointManifest& checkpoint, int rank) const {
    return options_.directory + "/" + checkpoint.directory + "/rank-" + std::to_string(rank) +
           ".json";
  }

  Status WriteRecord(const CheckpointManifest& checkpoint, int rank, json record) const {
    return WriteFileAtomically(RecordPath(checkpoint, rank),
                               record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  }

  // Nothing yet, a record, or why there will be none.
  Result<std::optional<ShardRecord>> ReadRecord(const CheckpointManifest& checkpoint,
                                                int rank) const {
    const auto text = ReadRegularFile(RecordPath(checkpoint, rank));
    if (text.status().code() == StatusCode::kNotFound) return std::optional<ShardRecord>();
    if (!text.ok()) return text.status();
    const json record = json::parse(*text, nullptr, false);
    try {
      if (const auto failed = record.find("failed"); failed != record.end()) {
        return Aborted("rank " + std::to_string(rank) + ": " + failed->get<std::string>());
      }
      return std::optional<ShardRecord>(
          {record.at("rank").get<int>(), record.at("file").get<std::string>(),
           record.at("bytes").get<std::uint64_t>(), record.at("checksum").get<std::string>()});
    } catch (const json::exception& error) {
      return DataLoss(RecordPath(checkpoint, rank) + ": " + error.what());
    }
  }

  // Every shard is read again, from the disk, before the checkpoint counts: older ones are removed
  // because of it.
  Status Commit(CheckpointManifest checkpoint) {
    const Deadline deadline = Deadline::After(options_.timeout);
    const std::string directory = options_.directory + "/" + checkpoint.directory;
    for (int rank = 0; rank < checkpoint.world_size; ++rank) {
      MUSTER_ASSIGN_OR_RETURN(ShardRecord record, WaitForRecord(checkpoint, rank, deadline));
      MUSTER_RETURN_IF_ERROR(VerifyShard(directory, record));
      checkpoint.shards.push_back(std::move(record));
    }
    MUSTER_RETURN_IF_ERROR(
        WriteFileAtomically(directory + "/" + kManifestFile, ManifestToJson(checkpoint)));
    const auto durable = ReadManifest(options_.directory, checkpoint.directory);
    if (!durable.ok()) return durable.status();
    Prune(checkpoint);
    return OkStatus();
  }

  Result<ShardRecord> WaitForRecord(const CheckpointManifest& checkpoint, int rank,
                                    Deadline deadline) {
    Duration pause = std::chrono::milliseconds(1);
    for (;;) {
      MUSTER_ASSIGN_OR_RETURN(std::optional<ShardRecord> record, ReadRecord(checkpoint, rank));
      if (record) return *std::move(record);
      if (deadline.Expired()) {
        return DeadlineExceeded("rank " + std::to_string(rank) +
                                " did not report its shard in time");
      }
      // No event reports a file that another host writes: ask again, less and less often.
      std::unique_lock lock(mutex_);
      pause_.wait_for(lock, std::min(pause, deadline.Remaining()));
      pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(100));
    }
  }

  // Keeps the newest `keep`, and the best one; removes older ones and what was given up before this
  // one. The manifest goes first, so that a half removed checkpoint does not count.
  void Prune(const CheckpointManifest& newest) {
    namespace fs = std::filesystem;
    const auto found = FindManifests(options_.directory);
    if (!found.ok()) return;
    std::vector<std::string> kept;
    for (const CheckpointManifest& each : found->manifests) {
      if (kept.size() < static_cast<std::size_t>(std::max(options_.keep, 1))) {
        kept.push_back(each.directory);
      }
    }
    const CheckpointManifest* const best = BestOf(found->manifests);
    if (options_.keep_best && best != nullptr) kept.push_back(best->directory);
    std::error_code error;
    fs::directory_iterator entries(options_.directory, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const fs::path& path = entries->path();
      const std::string name = path.filename().string();
      Step step = 0;
      Generation generation = 0;
      if (!ParseCheckpointDirectoryName(name, &step, &generation)) continue;
      if (std::find(kept.begin(), kept.end(), name) != kept.end()) continue;
      std::error_code ignored;
      const bool committed = fs::exists(path / kManifestFile, ignored);
      if (!committed && step >= newest.step) continue;
      fs::remove(path / kManifestFile, ignored);
      fs::remove_all(path, ignored);
    }
  }

  const LocalCommitterOptions options_;
  std::mutex mutex_;
  std::condition_variable pause_;
};

}  // namespace

std::unique_ptr<CheckpointCommitter> MakeLocalCommitter(LocalCommitterOptions options) {
  return std::make_unique<LocalCommitter>(std::move(options));
}

}  // namespace muster
