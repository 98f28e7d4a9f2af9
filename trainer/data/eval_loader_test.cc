#include "trainer/data/eval_loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/data/text_dataset.h"

namespace muster {
namespace {

TextDataset Rows(int count) {
  TextDataset rows;
  for (int row = 0; row < count; ++row) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(row % 5 + 2), row);
    rows.Add(ids, std::vector<std::uint8_t>(ids.size(), 1));
  }
  return rows;
}

TEST(EvalLoader, EveryRowComesOnceWhateverTheNumberOfRanks) {
  for (const int count : {1, 7, 24}) {
    const TextDataset rows = Rows(count);
    for (int world_size = 1; world_size <= 5; ++world_size) {
      std::vector<std::int64_t> seen;
      std::int64_t labels = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const EvalLoader loader(rows, 3, world_size, rank, 0);
        for (std::int64_t round = 0; round < loader.rounds(); ++round) {
          const auto batch = loader.Get(round);
          ASSERT_TRUE(batch.ok());
          labels += batch->label_count;
          seen.insert(seen.end(), batch->sample_ids.begin(), batch->sample_ids.end());
          EXPECT_EQ(static_cast<std::int64_t>(batch->input_ids.size()),
                    batch->rows * batch->length);
        }
        EXPECT_EQ(loader.label_count(), rows.stats().label_tokens);
      }
      EXPECT_EQ(labels, rows.stats().label_tokens);
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(seen.size(), static_cast<std::size_t>(count)) << world_size << " ranks";
      for (int row = 0; row < count; ++row) EXPECT_EQ(seen[static_cast<std::size_t>(row)], row);
    }
  }
}

TEST(EvalLoader, RowsComeInOrderAndTheLastBatchIsShort) {
  const TextDataset rows = Rows(8);
  const EvalLoader loader(rows, 3, 2, 0, 0);
  ASSERT_EQ(loader.rounds(), 2);
  EXPECT_EQ(loader.Get(0)->sample_ids, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(loader.Get(1)->sample_ids, (std::vector<std::int64_t>{6, 7}));
  const EvalLoader other(rows, 3, 2, 1, 0);
  EXPECT_EQ(other.Get(1)->rows, 1) << "nothing is left: a row of padding";
  EXPECT_TRUE(other.Get(1)->sample_ids.empty());
}

}  // namespace
}  // namespace muster
