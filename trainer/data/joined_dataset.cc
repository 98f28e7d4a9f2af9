#include "trainer/data/joined_dataset.h"

#include <algorithm>
#include <map>

#include <xxhash.h>

#include "common/base/check.h"

namespace muster {

JoinedDataset::JoinedDataset(std::vector<std::unique_ptr<const Dataset>> parts)
    : parts_(std::move(parts)) {
  MUSTER_CHECK(!parts_.empty(), "datasets to join");
  for (const auto& part : parts_) {
    begins_.push_back(stats_.rows);
    AddStats(part->stats(), &stats_);
    const std::uint64_t link[] = {fingerprint_, part->Fingerprint()};
    fingerprint_ = XXH3_64bits(link, sizeof link);
  }
}

std::pair<std::size_t, std::int64_t> JoinedDataset::Find(std::int64_t row) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), row);
  const auto part = static_cast<std::size_t>(after - begins_.begin()) - 1;
  return {part, row - begins_[part]};
}

std::int64_t JoinedDataset::Length(std::int64_t row) const {
  const auto [part, within] = Find(row);
  return parts_[part]->Length(within);
}

std::int64_t JoinedDataset::LabelCount(std::int64_t row) const {
  const auto [part, within] = Find(row);
  return parts_[part]->LabelCount(within);
}

Status JoinedDataset::Read(std::int64_t row, std::span<std::int64_t> ids,
                           std::span<std::int64_t> labels) const {
  const auto [part, within] = Find(row);
  return parts_[part]->Read(within, ids, labels);
}

std::vector<std::int64_t> JoinedDataset::Documents(std::int64_t row) const {
  const auto [part, within] = Find(row);
  return parts_[part]->Documents(within);
}

std::string JoinedDataset::Describe(std::span<const std::int64_t> rows) const {
  std::map<std::size_t, std::vector<std::int64_t>> by_part;
  for (const std::int64_t row : rows) {
    const auto [part, within] = Find(row);
    by_part[part].push_back(within);
  }
  std::string text;
  for (const auto& [part, within] : by_part)
    text += (text.empty() ? "" : ", ") + parts_[part]->Describe(within);
  return text;
}

Status JoinedDataset::Check() const {
  for (const std::unique_ptr<const Dataset>& part : parts_) MUSTER_RETURN_IF_ERROR(part->Check());
  return OkStatus();
}

}  // namespace muster
