#include "trainer/data/subset_dataset.h"

#include <utility>

#include <xxhash.h>

#include "common/base/check.h"

namespace muster {

SubsetDataset::SubsetDataset(std::shared_ptr<const Dataset> whole, std::vector<std::int32_t> rows)
    : whole_(std::move(whole)), rows_(std::move(rows)) {
  MUSTER_CHECK(!rows_.empty(), "a subset without rows");
  stats_ = whole_->stats();
  stats_.tokens = stats_.label_tokens = 0;
  for (std::int64_t row = 0; row < size(); ++row) {
    stats_.tokens += Length(row);
    stats_.label_tokens += LabelCount(row);
  }
  stats_.rows = size();
  const std::uint64_t parts[] = {whole_->Fingerprint(),
                                 XXH3_64bits(rows_.data(), std::span(rows_).size_bytes())};
  fingerprint_ = XXH3_64bits(parts, sizeof parts);
}

std::string SubsetDataset::Describe(std::span<const std::int64_t> rows) const {
  std::vector<std::int64_t> of_whole;
  for (const std::int64_t row : rows) of_whole.push_back(At(row));
  return whole_->Describe(of_whole);
}

Result<SplitRows> SplitByRatio(std::shared_ptr<const Dataset> whole, double ratio,
                               std::uint64_t seed) {
  MUSTER_CHECK(ratio > 0 && ratio < 1, "a ratio between 0 and 1");
  std::vector<std::int32_t> train;
  std::vector<std::int32_t> eval;
  for (std::int64_t row = 0; row < whole->size(); ++row) {
    const std::uint64_t words[] = {seed, static_cast<std::uint64_t>(row)};
    // The upper 53 bits as a number in [0, 1).
    const double draw = static_cast<double>(XXH3_64bits(words, sizeof words) >> 11) * 0x1p-53;
    (draw < ratio ? eval : train).push_back(static_cast<std::int32_t>(row));
  }
  if (train.empty() || eval.empty())
    return InvalidArgument("a part of " + std::to_string(ratio) + " of " +
                           std::to_string(whole->size()) + " rows leaves none to " +
                           (eval.empty() ? "evaluate" : "train") +
                           " on; change train.data.eval_ratio, or name files in train.data.eval");
  return SplitRows{.train = std::make_unique<const SubsetDataset>(whole, std::move(train)),
                   .eval = std::make_unique<const SubsetDataset>(whole, std::move(eval))};
}

}  // namespace muster
