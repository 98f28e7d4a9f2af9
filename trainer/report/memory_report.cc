#include "trainer/report/memory_report.h"

#include <vector>

#include "common/base/json.h"
#include "common/base/replace_file.h"
#include "trainer/fsdp/fsdp_engine.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStageNames[kMemoryStageCount] = {"load", "train", "export"};
constexpr const char* kArrayNames[] = {"frozen",    "state",       "snapshots", "gathered",
                                       "gradients", "activations", "head"};
constexpr std::size_t kStageValues = 3;
constexpr std::size_t kRowValues = kStageValues * kMemoryStageCount + std::size(kArrayNames);

Json RankJson(int rank, const std::int64_t* row) {
  Json json = {{"rank", rank}};
  for (const char* name : kStageNames) {
    // A stage that has not been there held nothing.
    if (row[1] > 0) json[name] = {{"begin", row[0]}, {"peak", row[1]}, {"of_stage", row[2] != 0}};
    row += kStageValues;
  }
  Json& arrays = json["arrays"];
  for (const char* name : kArrayNames) arrays[name] = *row++;
  return json;
}

}  // namespace

void MemoryReport::Enter(MemoryStage stage) {
  End();
  stage_ = stage;
  peak_.emplace();
}

void MemoryReport::End() {
  if (!peak_) return;
  stages_[static_cast<std::size_t>(stage_)] = {
      .begin = peak_->begin_bytes(), .peak = peak_->bytes(), .of_stage = peak_->of_stage() ? 1 : 0};
  peak_.reset();
}

Status MemoryReport::Write(const EngineMemory& arrays, const std::string& path,
                           Communicator& communicator, Status* written) {
  End();
  std::vector<std::int64_t> row;
  for (const Stage& stage : stages_)
    row.insert(row.end(), {stage.begin, stage.peak, stage.of_stage});
  row.insert(row.end(), {arrays.frozen, arrays.state, arrays.snapshots, arrays.gathered,
                         arrays.gradients, arrays.activations, arrays.head});
  std::vector<std::int64_t> rows(kRowValues * static_cast<std::size_t>(communicator.size()));
  MUSTER_RETURN_IF_ERROR(
      communicator.AllGather(row.data(), rows.data(), row.size(), ElementType::kInt64)->Wait());
  if (communicator.rank() != 0) return OkStatus();
  Json ranks = Json::array();
  for (int r = 0; r < communicator.size(); ++r)
    ranks.push_back(RankJson(r, rows.data() + kRowValues * static_cast<std::size_t>(r)));
  const Json json = {{"unit", "bytes"}, {"ranks", std::move(ranks)}};
  // Not synced: this comes between a fault and the next step, which must not wait for the disk.
  *written = ReplaceFile(path, json.dump(2) + "\n", 0644);
  return OkStatus();
}

}  // namespace muster
