#include "trainer/data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "trainer/data/text_dataset.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

// Row r has the ids 10 r, 10 r + 1, ... and (r mod 4) + 3 of them; all but the first two are
// trained on.
TextDataset MakeDataset(std::int32_t rows) {
  TextDataset dataset;
  for (std::int32_t row = 0; row < rows; ++row) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(row % 4 + 3));
    std::iota(ids.begin(), ids.end(), 10 * row);
    std::vector<std::uint8_t> trained(ids.size(), 1);
    trained[0] = trained[1] = 0;
    dataset.Add(ids, trained);
  }
  return dataset;
}

// The samples of a step in the global order, put together from all ranks.
std::vector<std::int64_t> StepSamples(const Dataset& dataset, BatchGeometry geometry,
                                      BatchOrder order, Step step) {
  std::vector<std::int64_t> samples;
  for (int m = 0; m < geometry.rounds(); ++m)
    for (int rank = 0; rank < geometry.world_size; ++rank) {
      geometry.rank = rank;
      BatchLoader loader(dataset, geometry, order, 0);
      const MicroBatch batch = *loader.Get(step, m);
      samples.insert(samples.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    }
  return samples;
}

TEST(BatchLoaderTest, PadsToTheLongestRowAndShiftsLabels) {
  const TextDataset dataset = MakeDataset(4);
  BatchLoader loader(dataset, {.per_rank = 2}, {.shuffle = false}, 7);
  const MicroBatch batch = *loader.Get(0, 0);
  constexpr std::int64_t kNo = kIgnoredLabel;
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 4);
  EXPECT_THAT(batch.sample_ids, ElementsAre(0, 1));
  EXPECT_THAT(batch.input_ids, ElementsAre(0, 1, 2, 7, 10, 11, 12, 13));
  EXPECT_THAT(batch.labels, ElementsAre(kNo, 2, kNo, kNo, kNo, 12, 13, kNo));
  EXPECT_EQ(batch.label_count, 3);
}

TEST(BatchLoaderTest, DealsRowsByMicroBatchThenRankThenRow) {
  const TextDataset dataset = MakeDataset(100);
  const BatchGeometry geometry{.per_rank = 2, .micro_batches = 6, .world_size = 2, .rank = 1};
  BatchLoader loader(dataset, geometry, {.shuffle = false}, 0);
  EXPECT_THAT(loader.Get(0, 0)->sample_ids, ElementsAre(2, 3));
  EXPECT_THAT(loader.Get(0, 1)->sample_ids, ElementsAre(6, 7));
  EXPECT_THAT(loader.Get(0, 2)->sample_ids, ElementsAre(10, 11));
  EXPECT_THAT(loader.Get(1, 0)->sample_ids, ElementsAre(14, 15));
  EXPECT_THAT(loader.Get(8, 1)->sample_ids, ElementsAre(2, 3)) << "position 102 of 100 rows";
}

TEST(BatchLoaderTest, TheOrderDoesNotDependOnHowTheBatchIsSplit) {
  const TextDataset dataset = MakeDataset(37);
  const BatchOrder order{.seed = 42};
  // The last ones leave some ranks without a micro-batch in the last round.
  const BatchGeometry geometries[] = {{24, 1, 1}, {1, 24, 1},  {1, 24, 24}, {2, 12, 4},
                                      {3, 8, 4},  {4, 6, 2},   {1, 24, 3},  {8, 3, 3},
                                      {2, 12, 5}, {1, 24, 23}, {6, 4, 7}};
  for (Step step = 0; step < 5; ++step) {
    const auto expected = StepSamples(dataset, geometries[0], order, step);
    for (const BatchGeometry& geometry : geometries)
      EXPECT_EQ(StepSamples(dataset, geometry, order, step), expected) << "step " << step;
  }
}

TEST(BatchLoaderTest, AMicroBatchHasOneNumberAtEveryWorldSize) {
  const TextDataset dataset = MakeDataset(37);
  for (const int world_size : {1, 2, 3, 5, 7}) {
    std::map<std::int64_t, std::vector<std::int64_t>> rows;
    for (int rank = 0; rank < world_size; ++rank) {
      const BatchGeometry geometry{
          .per_rank = 2, .micro_batches = 6, .world_size = world_size, .rank = rank};
      BatchLoader loader(dataset, geometry, {.shuffle = false}, 0);
      for (Step step = 0; step < 3; ++step) {
        for (int round = 0; round < geometry.rounds(); ++round) {
          const MicroBatch batch = *loader.Get(step, round);
          EXPECT_EQ(batch.number < 0, batch.sample_ids.empty());
          if (batch.number >= 0) rows[batch.number] = batch.sample_ids;
        }
      }
    }
    ASSERT_EQ(rows.size(), 18u) << world_size;
    for (const auto& [number, samples] : rows)
      EXPECT_THAT(samples, ElementsAre(2 * number % 37, (2 * number + 1) % 37)) << world_size;
  }
}

TEST(BatchLoaderTest, EveryEpochReadsEveryRowOnceInAnOrderOfItsOwn) {
  const TextDataset dataset = MakeDataset(50);
  BatchLoader loader(dataset, {.per_rank = 5}, {.seed = 1}, 0);
  std::set<std::vector<std::int64_t>> orders;
  for (Step epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> rows;
    for (Step step = 0; step < 10; ++step) {
      const MicroBatch batch = *loader.Get(epoch * 10 + step, 0);
      rows.insert(rows.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    }
    orders.insert(rows);
    std::sort(rows.begin(), rows.end());
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], i);
  }
  EXPECT_EQ(orders.size(), 3u);
}

// The order is part of what a checkpoint means, so a change of the generator must not go by
// unnoticed.
TEST(BatchLoaderTest, TheShuffledOrderIsFixedForGood) {
  const TextDataset dataset = MakeDataset(10);
  BatchLoader loader(dataset, {.per_rank = 10}, {.seed = 42}, 0);
  EXPECT_THAT(loader.Get(0, 0)->sample_ids, ElementsAre(4, 9, 1, 3, 5, 7, 2, 6, 0, 8));
  EXPECT_THAT(loader.Get(1, 0)->sample_ids, ElementsAre(0, 9, 5, 1, 2, 6, 4, 3, 7, 8));
  EXPECT_EQ(loader.ChainSamples(0, 0), 12788466916786067073u);
}

// How much of the micro-batches of an epoch is padding, and that every row comes once.
double Padding(const Dataset& dataset, BatchGeometry geometry, BatchOrder order) {
  BatchLoader loader(dataset, geometry, order, 0);
  std::vector<std::int64_t> seen;
  std::int64_t cells = 0;
  for (Step step = 0; step < dataset.size() / geometry.global_batch(); ++step)
    for (int round = 0; round < geometry.rounds(); ++round) {
      const MicroBatch batch = *loader.Get(step, round);
      cells += batch.rows * batch.length;
      seen.insert(seen.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), dataset.size());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  return 1 - static_cast<double>(dataset.stats().tokens) / static_cast<double>(cells);
}

TEST(BatchLoaderTest, RowsOfLikeLengthComeTogetherInAnOrderThatRanksDoNotChange) {
  const TextDataset dataset = MakeDataset(2400);
  const BatchOrder order{.seed = 42, .group_by_length = true};
  const BatchGeometry geometry{.per_rank = 4, .micro_batches = 6};
  EXPECT_GT(Padding(dataset, geometry, {.seed = 42}), 0.1);
  EXPECT_LT(Padding(dataset, geometry, order), 0.01);
  for (const Step step : {0, 7, 99, 100}) {
    const auto expected = StepSamples(dataset, geometry, order, step);
    for (int world_size = 2; world_size <= 5; ++world_size) {
      BatchGeometry split = geometry;
      split.world_size = world_size;
      EXPECT_EQ(StepSamples(dataset, split, order, step), expected) << world_size << " ranks";
    }
  }
  EXPECT_NE(StepSamples(dataset, geometry, order, 0), StepSamples(dataset, geometry, order, 100))
      << "another epoch, another order";
}

TEST(BatchLoaderTest, WhatDoesNotFillABatchComesLast) {
  const TextDataset dataset = MakeDataset(53);
  BatchLoader loader(dataset, {.per_rank = 53}, {.seed = 1, .group_by_length = true}, 0);
  std::vector<std::int64_t> rows = loader.Get(0, 0)->sample_ids;
  std::sort(rows.begin(), rows.end());
  for (std::size_t i = 0; i < 53; ++i) EXPECT_EQ(rows[i], static_cast<std::int64_t>(i));
  const BatchGeometry geometry{.per_rank = 10};
  BatchLoader tens(dataset, geometry, {.seed = 1, .group_by_length = true}, 0);
  const std::vector<std::int64_t> last = tens.Get(5, 0)->sample_ids;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(dataset.Length(last[static_cast<std::size_t>(i)]), 3);
}

TEST(BatchLoaderTest, ShufflesWithoutBias) {
  const TextDataset dataset = MakeDataset(3);
  BatchLoader loader(dataset, {.per_rank = 3}, {.seed = 9}, 0);
  std::map<std::vector<std::int64_t>, int> counts;
  for (Step step = 0; step < 6000; ++step) ++counts[loader.Get(step, 0)->sample_ids];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(BatchLoaderTest, AnyStepCanBeAskedForInAnyOrder) {
  const TextDataset dataset = MakeDataset(7);
  const BatchGeometry geometry{.per_rank = 2, .micro_batches = 4, .world_size = 2, .rank = 1};
  BatchLoader in_order(dataset, geometry, {.seed = 3}, 0);
  std::vector<std::vector<std::int64_t>> expected;
  for (Step step = 0; step < 20; ++step) expected.push_back(in_order.Get(step, 1)->sample_ids);
  BatchLoader backwards(dataset, geometry, {.seed = 3}, 0);
  for (Step step = 19; step >= 0; --step)
    EXPECT_EQ(backwards.Get(step, 1)->sample_ids, expected[static_cast<std::size_t>(step)]);
}

TEST(BatchLoaderTest, CountsTheLabelsOfTheWholeWindow) {
  const TextDataset dataset = MakeDataset(23);
  BatchGeometry geometry{.per_rank = 2, .micro_batches = 15, .world_size = 5};
  for (Step step = 0; step < 4; ++step) {
    std::int64_t sum = 0;
    for (geometry.rank = 0; geometry.rank < 5; ++geometry.rank) {
      BatchLoader loader(dataset, geometry, {.seed = 5}, 0);
      for (int m = 0; m < 3; ++m) {
        const MicroBatch batch = *loader.Get(step, m);
        const auto labels =
            std::count_if(batch.labels.begin(), batch.labels.end(),
                          [](std::int64_t label) { return label != kIgnoredLabel; });
        EXPECT_EQ(batch.label_count, labels);
        sum += labels;
      }
    }
    geometry.rank = 0;
    EXPECT_EQ(BatchLoader(dataset, geometry, {.seed = 5}, 0).WindowLabelCount(step), sum);
  }
}

TEST(BatchLoaderTest, TheChainTellsSamplesAndOrderApart) {
  const TextDataset dataset = MakeDataset(16);
  BatchLoader a(dataset, {.per_rank = 2, .micro_batches = 2, .world_size = 2}, {.seed = 1}, 0);
  BatchLoader same(dataset, {.per_rank = 4}, {.seed = 1}, 0);
  BatchLoader other(dataset, {.per_rank = 4}, {.seed = 2}, 0);
  std::uint64_t chain_a = 0;
  std::uint64_t chain_same = 0;
  for (Step step = 0; step < 9; ++step) {
    chain_a = a.ChainSamples(chain_a, step);
    chain_same = same.ChainSamples(chain_same, step);
    EXPECT_EQ(chain_a, chain_same) << "another split of the same batch";
  }
  EXPECT_NE(a.ChainSamples(0, 0), other.ChainSamples(0, 0));
  EXPECT_NE(a.ChainSamples(0, 0), a.ChainSamples(1, 0));
  EXPECT_NE(a.ChainSamples(a.ChainSamples(0, 0), 1), a.ChainSamples(a.ChainSamples(0, 1), 0));
}

TEST(BatchLoaderTest, TurnsEpochsIntoSteps) {
  const TextDataset dataset = MakeDataset(10);
  BatchLoader loader(dataset, {.per_rank = 4}, {}, 0);
  EXPECT_EQ(loader.StepsForEpochs(1), 3);
  EXPECT_EQ(loader.StepsForEpochs(2), 5);
  EXPECT_EQ(loader.StepsForEpochs(0.4), 1);
  EXPECT_EQ(loader.StepsForEpochs(1e300), 1'000'000'000'000'000);
  EXPECT_DOUBLE_EQ(loader.EpochAt(5), 2.0);
}

}  // namespace
}  // namespace muster
