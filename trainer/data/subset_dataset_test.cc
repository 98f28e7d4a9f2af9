#include "trainer/data/subset_dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "trainer/data/testing/text_files_testing.h"
#include "trainer/data/text_dataset.h"

namespace muster {
namespace {

std::shared_ptr<const Dataset> Rows(int count) {
  auto rows = std::make_shared<TextDataset>();
  for (int row = 0; row < count; ++row) {
    const std::vector<std::int32_t> ids = {row, row + 1, row + 2};
    rows->Add(ids, std::vector<std::uint8_t>(3, 1), row + 1);
  }
  return rows;
}

TEST(SplitByRatio, EveryRowIsOnOneSideAndAboutTheRatioIsEvaluated) {
  const auto whole = Rows(10'000);
  const auto split = SplitByRatio(whole, 0.1, 42);
  ASSERT_TRUE(split.ok()) << split.status().ToString();
  EXPECT_NEAR(static_cast<double>(split->eval->size()), 1000, 150);
  EXPECT_EQ(split->train->size() + split->eval->size(), 10'000);
  std::set<std::vector<std::int64_t>> rows;
  for (const auto* side : {split->train.get(), split->eval.get()}) {
    for (auto& row : RowsOf(*side)) rows.insert(std::move(row));
    EXPECT_EQ(side->stats().rows, side->size());
    EXPECT_EQ(side->stats().label_tokens, 2 * side->size());
  }
  EXPECT_EQ(rows.size(), 10'000u);
}

// Part of what a restarted job relies on.
TEST(SplitByRatio, TheSplitFollowsFromTheSeedAlone) {
  const auto split = SplitByRatio(Rows(40), 0.25, 42);
  const auto again = SplitByRatio(Rows(40), 0.25, 42);
  const auto other = SplitByRatio(Rows(40), 0.25, 43);
  EXPECT_EQ(split->eval->Fingerprint(), again->eval->Fingerprint());
  EXPECT_NE(split->eval->Fingerprint(), other->eval->Fingerprint());
  EXPECT_NE(split->eval->Fingerprint(), split->train->Fingerprint());
  std::vector<std::int64_t> all;
  for (std::int64_t row = 0; row < split->eval->size(); ++row) all.push_back(row);
  EXPECT_EQ(split->eval->Describe(all), "lines 1, 6, 10, 23, 25, 29, 31, 39 of ");
}

TEST(SplitByRatio, ASideWithoutRowsIsRefused) {
  const auto split = SplitByRatio(Rows(3), 1e-9, 42);
  ASSERT_FALSE(split.ok());
  EXPECT_NE(split.status().message().find("of 3 rows leaves none to evaluate on"),
            std::string::npos)
      << split.status().message();
}

}  // namespace
}  // namespace muster
