#include "worker/agent/checkpoint_scrub.h"

#include <cerrno>
#include <chrono>
#include <filesystem>

#include "common/base/json.h"
#include "common/base/regular_file.h"
#include "common/checkpoint_format/shard_frame.h"
#include "worker/agent/checkpoint_files.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// A writer stores every few seconds at most. One that was killed leaves a file that does not
// change.
constexpr std::chrono::seconds kStillWritten{30};
constexpr std::size_t kMaxManifestBytes = 16 << 20;

bool IsOfJob(const fs::path& manifest, const JobId& job) {
  const auto text = ReadRegularFile(manifest.string(), kMaxManifestBytes);
  if (!text.ok()) return false;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("job_id", nlohmann::json()) == job.value;
}

bool SeesTheJobsCheckpoints(const ScrubCheckpoint& order) {
  const fs::path root = fs::path(order.output_dir) / "checkpoints";
  std::error_code error;
  if (fs::is_directory(root / order.checkpoint.directory, error)) return true;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsOfJob(entry->path() / "manifest.json", order.job)) return true;
  }
  return false;
}

Status Verify(const ExpectedShard& expected, const BeforeRead& before_read, int* error) {
  *error = 0;
  return VerifyShardFile(expected, {.before_read = before_read, .error = error});
}

}  // namespace

CheckpointScrubbed ScrubShards(const ScrubCheckpoint& order, const BeforeRead& before_read) {
  CheckpointScrubbed result{.scrub_id = order.scrub_id,
                            .job = order.job,
                            .directory = order.checkpoint.directory,
                            .outcome = ScrubOutcome::kWhole,
                            .file = "",
                            .detail = ""};
  const auto ends = [&result](ScrubOutcome outcome, std::string detail) {
    result.outcome = outcome;
    result.detail = std::move(detail);
    return result;
  };
  if (!IsCheckpointName(order.checkpoint.directory))
    return ends(ScrubOutcome::kUnreadable, "it names no checkpoint");
  const std::string directory =
      order.output_dir + "/checkpoints/" + order.checkpoint.directory + "/";
  for (const ShardInfo& shard : order.checkpoint.shards) {
    const ExpectedShard expected{directory + shard.file, shard.bytes, shard.checksum};
    result.file = shard.file;
    int error = 0;
    Status status = Verify(expected, before_read, &error);
    const bool wrong_bytes = status.code() == StatusCode::kDataLoss && error == 0;
    if (wrong_bytes) status = Verify(expected, before_read, &error);
    if (status.ok()) continue;
    if (status.code() == StatusCode::kCancelled)
      return ends(ScrubOutcome::kCalledOff, status.message());
    if (error == ENOENT || error == ENOTDIR) {
      if (SeesTheJobsCheckpoints(order)) return ends(ScrubOutcome::kMissing, status.message());
      return ends(ScrubOutcome::kUnreachable,
                  order.output_dir + "/checkpoints has no checkpoint of this job");
    }
    return ends(error == 0 && status.code() == StatusCode::kDataLoss ? ScrubOutcome::kDamaged
                                                                     : ScrubOutcome::kUnreadable,
                status.message());
  }
  result.file.clear();
  return result;
}

bool ShardIsBeingWritten(const std::vector<std::string>& output_dirs) {
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (const std::string& output_dir : output_dirs) {
    const fs::path root = fs::path(output_dir) / "checkpoints";
    for (fs::directory_iterator entry(root, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code unreadable;
      for (fs::directory_iterator file(entry->path(), unreadable); !unreadable && file != end;
           file.increment(unreadable)) {
        if (file->path().extension() != ".tmp") continue;
        const auto written = fs::last_write_time(file->path(), unreadable);
        // Another node's clock may be ahead.
        if (!unreadable && std::chrono::abs(now - written) < kStillWritten) return true;
        unreadable.clear();
      }
    }
  }
  return false;
}

}  // namespace muster::worker
