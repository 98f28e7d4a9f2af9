#include "trainer/data/packed_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trainer/data/eval_loader.h"
#include "trainer/data/testing/text_files_testing.h"
#include "trainer/data/text_dataset.h"

namespace muster {
namespace {

constexpr std::int64_t kLength = 64;

// Documents of 2 to 64 tokens, each of its own number; most of them short, as rows of a chat are.
std::unique_ptr<const Dataset> Documents(int count) {
  std::mt19937 random(7);
  auto documents = std::make_unique<TextDataset>();
  for (int d = 0; d < count; ++d) {
    const std::size_t length = 2 + std::min(random() % 63, random() % 63);
    documents->Add(std::vector<std::int32_t>(length, d), std::vector<std::uint8_t>(length, 1),
                   d + 1);
  }
  return documents;
}

TEST(PackedDataset, EveryDocumentIsInOnePackWhole) {
  const auto documents = Documents(3000);
  const PackedDataset packed(Documents(3000), kLength, {.seed = 1});
  std::vector<std::vector<std::int64_t>> found;
  for (std::int64_t row = 0; row < packed.size(); ++row) {
    const std::vector<std::int64_t> ids = RowOf(packed, row);
    ASSERT_LE(static_cast<std::int64_t>(ids.size()), kLength);
    std::size_t at = 0;
    for (const std::int64_t length : packed.Documents(row)) {
      found.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                         ids.begin() + static_cast<std::ptrdiff_t>(at + length));
      at += static_cast<std::size_t>(length);
    }
    ASSERT_EQ(at, ids.size());
  }
  // With the first token unlabelled, as where they stand alone: nothing is predicted across.
  auto expected = RowsOf(*documents);
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(packed.stats().label_tokens, documents->stats().label_tokens);
  EXPECT_EQ(packed.stats().documents, 3000);
  std::int64_t labels = 0;
  for (std::int64_t row = 0; row < packed.size(); ++row) labels += packed.LabelCount(row);
  EXPECT_EQ(labels, packed.stats().label_tokens);
}

TEST(PackedDataset, LittleOfThePacksIsPadding) {
  const PackedDataset packed(Documents(3000), kLength, {.seed = 1});
  const double room = static_cast<double>(packed.size() * kLength);
  EXPECT_LT(1 - static_cast<double>(packed.stats().tokens) / room, 0.01);
}

TEST(PackedDataset, WithoutShufflingTheOrderIsByAndLargeTheFiles) {
  const PackedDataset packed(Documents(3000), kLength, {.shuffle = false});
  std::int64_t last_first = -1;
  for (std::int64_t row = 0; row < packed.size(); ++row) {
    const std::vector<std::int64_t> ids = RowOf(packed, row);
    EXPECT_GT(ids.front(), last_first) << "packs go by their first documents";
    last_first = ids.front();
  }
}

TEST(PackedDataset, PacksFollowFromRowsLengthAndSeedAlone) {
  const PackedDataset packed(Documents(500), kLength, {.seed = 1});
  EXPECT_EQ(RowsOf(packed), RowsOf(PackedDataset(Documents(500), kLength, {.seed = 1})));
  EXPECT_NE(packed.Fingerprint(),
            PackedDataset(Documents(500), kLength, {.seed = 2}).Fingerprint());
  EXPECT_NE(packed.Fingerprint(), PackedDataset(Documents(500), 65, {.seed = 1}).Fingerprint());
  EXPECT_NE(packed.Fingerprint(), Documents(500)->Fingerprint());
}

TEST(PackedDataset, APackIsNamedByTheLinesOfItsDocuments) {
  auto documents = std::make_unique<TextDataset>();
  for (const int line : {4, 8})
    documents->Add(std::vector<std::int32_t>(3, line), std::vector<std::uint8_t>(3, 1), line);
  const PackedDataset packed(std::move(documents), 6, {.shuffle = false});
  ASSERT_EQ(packed.size(), 1);
  EXPECT_EQ(packed.Describe(std::vector<std::int64_t>{0}), "lines 4, 8 of ");
}

// The samples of some steps in the global order, put together from all ranks.
std::vector<std::int64_t> Samples(const Dataset& packed, int world_size, Step first, Step end) {
  std::vector<std::int64_t> samples;
  for (Step step = first; step < end; ++step) {
    BatchGeometry geometry{.per_rank = 2, .micro_batches = 6, .world_size = world_size};
    for (int round = 0; round < geometry.rounds(); ++round)
      for (geometry.rank = 0; geometry.rank < world_size; ++geometry.rank) {
        BatchLoader loader(packed, geometry, {.seed = 1}, 0);
        const auto batch = loader.Get(step, round);
        EXPECT_TRUE(batch.ok());
        samples.insert(samples.end(), batch->sample_ids.begin(), batch->sample_ids.end());
      }
  }
  return samples;
}

TEST(PackedDataset, TheGlobalOrderIsTheSameForEveryNumberOfRanks) {
  const PackedDataset packed(Documents(400), kLength, {.seed = 1});
  const auto expected = Samples(packed, 1, 0, 30);
  ASSERT_GT(static_cast<std::int64_t>(expected.size()), packed.size()) << "beyond an epoch";
  for (int world_size = 2; world_size <= 5; ++world_size)
    EXPECT_EQ(Samples(packed, world_size, 0, 30), expected) << world_size << " ranks";
}

// A job that is started again in the middle of an epoch packs anew, and on other ranks.
TEST(PackedDataset, AResumedJobGoesOnWithTheSamePacks) {
  const BatchGeometry geometry{.per_rank = 2, .micro_batches = 6};
  const PackedDataset before(Documents(400), kLength, {.seed = 1});
  BatchLoader undisturbed(before, geometry, {.seed = 1}, 0);
  std::uint64_t expected = 0;
  std::uint64_t resumed = 0;
  for (Step step = 0; step < 20; ++step) {
    expected = undisturbed.ChainSamples(expected, step);
    if (step == 6) resumed = expected;
  }
  const PackedDataset after(Documents(400), kLength, {.seed = 1});
  BatchLoader again(after, geometry, {.seed = 1}, 0);
  for (Step step = 7; step < 20; ++step) resumed = again.ChainSamples(resumed, step);
  EXPECT_EQ(resumed, expected);
  EXPECT_EQ(undisturbed.Get(7, 0)->input_ids, again.Get(7, 0)->input_ids);
}

TEST(PackedDataset, BatchesSayWhereDocumentsBegin) {
  auto documents = std::make_unique<TextDataset>();
  for (const int length : {6, 4, 3, 5})
    documents->Add(std::vector<std::int32_t>(static_cast<std::size_t>(length), length),
                   std::vector<std::uint8_t>(static_cast<std::size_t>(length), 1));
  // Packs: 6 and 4, 3 and 5.
  const PackedDataset packed(std::move(documents), 10, {.shuffle = false});
  ASSERT_EQ(packed.size(), 2);
  const auto batch = ReadBatch(packed, {0, 1}, 9);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->length, 10);
  EXPECT_EQ(batch->document_begins, (std::vector<std::int64_t>{0, 6, 10, 13, 18}))
      << "the last one is padding";
  const auto one = ReadBatch(*Documents(3), {0, 1}, 9);
  EXPECT_TRUE(one->document_begins.empty()) << "rows are documents";
}

}  // namespace
}  // namespace muster
