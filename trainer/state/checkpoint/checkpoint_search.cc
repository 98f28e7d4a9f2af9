#include "trainer/state/checkpoint/checkpoint_search.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/json.h"
#include "common/base/regular_file.h"
#include "trainer/comm/agree.h"
#include "trainer/comm/long_work.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/sharded_state.h"
#include "trainer/state/checkpoint/state_reader.h"

namespace muster {
namespace {

using nlohmann::json;

// What a rank's verdict means for the others; the worst counts.
enum Verdict : int { kGood, kRejected, kMissing, kTrouble, kFatal };

Verdict VerdictOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kGood;
    case StatusCode::kDataLoss: return kRejected;
    case StatusCode::kNotFound: return kMissing;
    case StatusCode::kFailedPrecondition: return kFatal;
    // No descriptors, no permission, a server that does not answer: says nothing about the
    // checkpoint, and going back to an older one would throw work away.
    default: return kTrouble;
  }
}

Status AsStatus(Verdict verdict, std::string reason) {
  if (verdict == kGood) return OkStatus();
  if (verdict == kFatal) return FailedPrecondition(std::move(reason));
  if (verdict == kMissing) return NotFound(std::move(reason));
  return verdict == kTrouble ? Internal(std::move(reason)) : DataLoss(std::move(reason));
}

}  // namespace

void ZeroArrays(const std::vector<ShardArray>& arrays, const ArrayMemory& memory) {
  const std::vector<char> zeros(memory.write ? 1 << 20 : 0);
  for (const ShardArray& array : arrays) {
    if (!memory.write) {
      if (array.count > 0) std::memset(array.data, 0, array.bytes());
      continue;
    }
    for (std::size_t at = 0; at < array.bytes(); at += zeros.size()) {
      memory.write(static_cast<char*>(array.data) + at, zeros.data(),
                   std::min(zeros.size(), array.bytes() - at));
    }
  }
}

Status CheckpointSearch::Agree(const Status& mine) {
  const Verdict verdict = VerdictOf(mine);
  return AgreeOnStatus(communicator_, AsStatus(verdict, mine.message()), verdict);
}

// Rank 0 alone.
Result<std::string> CheckpointSearch::ListCandidates() const {
  json rejected = json::array();
  json list = {{"newest_generation", 0}};
  if (!resume_file_.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(resume_file_));
    const auto manifests = ManifestListFromJson(text);
    if (!manifests.ok()) return manifests.status().WithContext(resume_file_);
    list["manifests"] = ManifestListToJson(*manifests);
  } else {
    MUSTER_ASSIGN_OR_RETURN(const FoundManifests found, FindManifests(directory_));
    for (const Status& each : found.unreadable) {
      rejected.push_back({{"directory", ""}, {"reason", "rank 0: " + each.message()}});
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
  MUSTER_RETURN_IF_ERROR(ShareText(communicator_, &text, 0));
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

Status CheckpointSearch::LoadMine(const CheckpointManifest& manifest,
                                  const std::vector<ShardArray>& into, TrainCursor* cursor,
                                  const std::function<void()>& on_read) const {
  ShardedState state(directory_, manifest);
  // With as many ranks as before, everything a rank wants most likely lies in the shard it wrote.
  const bool same_size = manifest.world_size == communicator_.size();
  MUSTER_RETURN_IF_ERROR(state.OpenFor(into, same_size ? communicator_.rank() : -1));
  if (model_.fits) {
    const Status fits = model_.fits(state.adapter());
    if (!fits.ok()) return fits.WithContext(state.path());
  }
  if (model_.parameters > 0 && state.parameters() > 0 && state.parameters() != model_.parameters) {
    return FailedPrecondition(state.path() + " does not fit this job's model: it holds one of " +
                              std::to_string(state.parameters()) + " parameters, this one has " +
                              std::to_string(model_.parameters) +
                              "; use another output directory, or the model it was made with");
  }
  MUSTER_RETURN_IF_ERROR(FillArrays(state, into, {.memory = model_.memory, .on_read = on_read}));
  *cursor = state.cursor();
  return OkStatus();
}

Result<Step> CheckpointSearch::NewestStep() {
  MUSTER_ASSIGN_OR_RETURN(const Candidates candidates, AgreeOnCandidates());
  return candidates.manifests.empty() ? 0 : candidates.manifests.front().step;
}

Result<LoadOutcome> CheckpointSearch::Run(const std::vector<ShardArray>& into, TrainCursor* cursor,
                                          Step above) {
  MUSTER_ASSIGN_OR_RETURN(Candidates candidates, AgreeOnCandidates());
  LoadOutcome outcome;
  outcome.rejected = std::move(candidates.rejected);
  for (const CheckpointManifest& manifest : candidates.manifests) {
    if (manifest.step <= above) continue;
    TrainCursor found;
    LongWork reading(communicator_);
    const Status mine = LoadMine(manifest, into, &found, [&] {
      if (model_.on_read) model_.on_read();
      reading.Move();
    });
    MUSTER_RETURN_IF_ERROR(reading.Await());
    const Status verdict = Agree(mine);
    const bool missing = verdict.code() == StatusCode::kNotFound;
    if (missing || verdict.code() == StatusCode::kDataLoss) {
      // What was half read must not be trained on.
      ZeroArrays(into, model_.memory);
      auto& list = missing ? outcome.missing : outcome.rejected;
      list.push_back({manifest.directory, verdict.message()});
      continue;
    }
    MUSTER_RETURN_IF_ERROR(verdict);
    *cursor = found;
    outcome.step = manifest.step;
    outcome.directory = manifest.directory;
    outcome.world_size = manifest.world_size;
    return outcome;
  }
  return outcome;
}

}  // namespace muster
