#include "trainer/checkpoint/checkpoint_search.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "trainer/checkpoint/manifest.h"

namespace muster {
namespace {

using nlohmann::json;

// What a rank's verdict means for the others; the worst counts.
enum Verdict : std::int64_t { kGood = 0, kRejected = 1, kTrouble = 2, kFatal = 3 };

Verdict VerdictOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kGood;
    case StatusCode::kDataLoss:
    case StatusCode::kNotFound: return kRejected;
    case StatusCode::kFailedPrecondition: return kFatal;
    // No descriptors, no permission, a server that does not answer: says nothing about the
    // checkpoint, and going back to an older one would throw work away.
    default: return kTrouble;
  }
}

Status AsStatus(Verdict verdict, std::string reason) {
  if (verdict == kFatal) return FailedPrecondition(std::move(reason));
  return verdict == kTrouble ? Internal(std::move(reason)) : DataLoss(std::move(reason));
}

// The verdict and, among those who gave it, the lowest rank: one number whose maximum is wanted.
constexpr std::int64_t kRankRange = 1 << 24;

Status CheckIdentity(const ShardHeader& header, const CheckpointManifest& manifest, int rank,
                     const std::string& path) {
  if (header.rank == rank && header.world_size == manifest.world_size &&
      header.cursor.step == manifest.step && header.generation == manifest.generation &&
      (manifest.job_id.empty() || header.job_id == manifest.job_id)) {
    return OkStatus();
  }
  return DataLoss(path + " says it is rank " + std::to_string(header.rank) + " of " +
                  std::to_string(header.world_size) + ", step " +
                  std::to_string(header.cursor.step) + ", generation " +
                  std::to_string(header.generation) + " of job \"" + header.job_id +
                  "\": its manifest disagrees");
}

Status WorldSizeMismatch(const CheckpointManifest& manifest, int world_size) {
  return FailedPrecondition(
      "checkpoint " + manifest.directory + " was written by " +
      std::to_string(manifest.world_size) + " ranks and this gang has " +
      std::to_string(world_size) + ": resuming at another size is not supported yet. Run with " +
      std::to_string(manifest.world_size) + " ranks, or use another output directory");
}

}  // namespace

Status CheckpointSearch::Share(std::string* text, int root) {
  std::int64_t length = static_cast<std::int64_t>(text->size());
  MUSTER_RETURN_IF_ERROR(communicator_.Broadcast(&length, sizeof(length), root)->Wait());
  text->resize(static_cast<std::size_t>(length));
  return communicator_.Broadcast(text->data(), text->size(), root)->Wait();
}

Status CheckpointSearch::Agree(const Status& mine) {
  std::int64_t worst = VerdictOf(mine) * kRankRange + (kRankRange - 1 - communicator_.rank());
  MUSTER_RETURN_IF_ERROR(
      communicator_.AllReduce(&worst, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  const auto verdict = static_cast<Verdict>(worst / kRankRange);
  if (verdict == kGood) return OkStatus();
  const int rank = static_cast<int>(kRankRange - 1 - worst % kRankRange);
  std::string reason = mine.message();
  MUSTER_RETURN_IF_ERROR(Share(&reason, rank));
  reason = "rank " + std::to_string(rank) + ": " + reason;
  return AsStatus(verdict, std::move(reason));
}

// Rank 0 alone.
Result<std::string> CheckpointSearch::ListCandidates() const {
  json rejected = json::array();
  json list = {{"newest_generation", 0}};
  if (!resume_file_.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(resume_file_));
    const auto manifests = ManifestListFromJson(text);
    if (!manifests.ok()) return manifests.status().WithContext(resume_file_);
    list["manifests"] = ManifestListToJson(*manifests);
  } else {
    MUSTER_ASSIGN_OR_RETURN(const FoundManifests found, FindManifests(directory_));
    for (const Status& each : found.unreadable) {
      rejected.push_back({{"directory", ""}, {"reason", each.message()}});
    }
    list["manifests"] = ManifestListToJson(found.manifests);
    list["newest_generation"] = found.newest_generation;
  }
  list["rejected"] = std::move(rejected);
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<CheckpointSearch::Candidates> CheckpointSearch::AgreeOnCandidates() {
  std::string text;
  Status listed;
  if (communicator_.rank() == 0) {
    auto result = ListCandidates();
    if (result.ok()) {
      text = *std::move(result);
    } else {
      // A list that cannot be read must not look like a job that never saved.
      listed = FailedPrecondition(result.status().message());
    }
  }
  MUSTER_RETURN_IF_ERROR(Agree(listed));
  MUSTER_RETURN_IF_ERROR(Share(&text, 0));
  const json list = json::parse(text);
  Candidates candidates;
  newest_generation_ = list.at("newest_generation").get<Generation>();
  for (const json& each : list.at("rejected")) {
    candidates.rejected.push_back(
        {each.at("directory").get<std::string>(), each.at("reason").get<std::string>()});
  }
  MUSTER_ASSIGN_OR_RETURN(candidates.manifests,
                          ManifestListFromJson(list.at("manifests").get<std::string>()));
  return candidates;
}

Status CheckpointSearch::CheckMine(const CheckpointManifest& manifest,
                                   const std::vector<ShardArray>& into, TrainCursor* cursor) const {
  const int rank = communicator_.rank();
  const ShardRecord& record = manifest.shards[static_cast<std::size_t>(rank)];
  const std::string directory = directory_ + "/" + manifest.directory;
  const std::string path = directory + "/" + record.file;
  MUSTER_RETURN_IF_ERROR(VerifyShard(directory, record));
  MUSTER_ASSIGN_OR_RETURN(const ShardHeader header, ReadShardHeader(path));
  MUSTER_RETURN_IF_ERROR(CheckIdentity(header, manifest, rank, path));
  MUSTER_RETURN_IF_ERROR(CheckShardLayout(header, into, path));
  *cursor = header.cursor;
  return OkStatus();
}

Result<LoadOutcome> CheckpointSearch::Run(const std::vector<ShardArray>& into,
                                          TrainCursor* cursor) {
  MUSTER_ASSIGN_OR_RETURN(Candidates candidates, AgreeOnCandidates());
  LoadOutcome outcome;
  outcome.rejected = std::move(candidates.rejected);
  for (const CheckpointManifest& manifest : candidates.manifests) {
    if (manifest.world_size != communicator_.size()) {
      return WorldSizeMismatch(manifest, communicator_.size());
    }
    TrainCursor found;
    const Status verdict = Agree(CheckMine(manifest, into, &found));
    if (verdict.code() == StatusCode::kDataLoss) {
      outcome.rejected.push_back({manifest.directory, verdict.message()});
      continue;
    }
    MUSTER_RETURN_IF_ERROR(verdict);
    const std::string path = directory_ + "/" + manifest.directory + "/" +
                             manifest.shards[static_cast<std::size_t>(communicator_.rank())].file;
    // It was good a moment ago. What fails now leaves half-filled arrays, so it ends the attempt;
    // the next one will see whether the file is damaged.
    const Status read = Agree(ReadShardArrays(path, into));
    if (read.code() == StatusCode::kDataLoss) return Internal(read.message());
    MUSTER_RETURN_IF_ERROR(read);
    *cursor = found;
    outcome.step = manifest.step;
    outcome.directory = manifest.directory;
    return outcome;
  }
  return outcome;
}

}  // namespace muster
