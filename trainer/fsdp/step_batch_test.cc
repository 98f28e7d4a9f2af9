#include "trainer/fsdp/step_batch.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

MicroBatch TwoRows() {
  MicroBatch batch;
  batch.rows = 2;
  batch.length = 3;
  batch.input_ids = {1, 2, 3, 4, 5, 6};
  batch.labels = {kIgnoredLabel, 7, 8, kIgnoredLabel, kIgnoredLabel, 9};
  batch.label_count = 3;
  return batch;
}

TEST(StepBatch, RowsArePaddedOnTheRightWithoutLabels) {
  MicroBatch batch = TwoRows();
  batch.number = 12;
  const MicroBatch padded = PadToFewLengths(batch);
  EXPECT_EQ(padded.number, 12);
  ASSERT_EQ(padded.length, 32);
  ASSERT_EQ(padded.input_ids.size(), 64u);
  EXPECT_EQ(padded.input_ids[2], 3);
  EXPECT_EQ(padded.input_ids[3], 0);
  EXPECT_EQ(padded.input_ids[32], 4);
  EXPECT_EQ(padded.labels[2], 8);
  EXPECT_EQ(padded.labels[3], kIgnoredLabel);
  EXPECT_EQ(padded.labels[34], 9);
}

TEST(StepBatch, TextsArePaddedBehindTheirLastPositions) {
  const TextBatch texts = BatchOfTexts({{5, 6, 7}, {8}});
  EXPECT_EQ(texts.batch.rows, 2);
  EXPECT_EQ(texts.batch.length, 32);
  EXPECT_EQ(texts.batch.input_ids[2], 7);
  EXPECT_EQ(texts.batch.input_ids[32], 8);
  EXPECT_EQ(texts.batch.input_ids[33], 0);
  EXPECT_EQ(texts.last.positions, (std::vector<std::int64_t>{2, 32}));
  EXPECT_EQ(texts.batch.row_lengths, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(texts.last.labels.size(), 2u);
  EXPECT_EQ(texts.batch.label_count, 0);
}

TEST(StepBatch, DocumentsStayWhereTheyAreAndPaddingIsOneOfItsOwn) {
  MicroBatch batch = TwoRows();
  EXPECT_TRUE(PadToFewLengths(batch).document_begins.empty());
  batch.document_begins = {0, 2, 3, 4, 5};
  EXPECT_EQ(PadToFewLengths(batch).document_begins,
            (std::vector<std::int64_t>{0, 2, 3, 32, 33, 34, 35}));
  batch.length = 32;
  batch.input_ids.assign(64, 1);
  batch.labels.assign(64, 2);
  batch.document_begins = {0, 31, 32};
  EXPECT_EQ(PadToFewLengths(batch).document_begins, batch.document_begins) << "nothing is added";
}

TEST(StepBatch, LabelledPositionsAscend) {
  const LabelledPositions found = FindLabels(PadToFewLengths(TwoRows()));
  EXPECT_EQ(found.positions, (std::vector<std::int64_t>{1, 2, 34}));
  EXPECT_EQ(found.labels, (std::vector<std::int64_t>{7, 8, 9}));
}

TEST(StepBatch, ABatchWithoutLabelsHasNoPositions) {
  MicroBatch batch = PadToFewLengths(TwoRows());
  batch.labels.assign(64, kIgnoredLabel);
  batch.label_count = 0;
  EXPECT_TRUE(FindLabels(batch).positions.empty());
}

// Nearly every position has a label: taking rows out of the array would only copy it.
TEST(StepBatch, WhereMostPositionsHaveALabelAllAreTaken) {
  MicroBatch batch;
  batch.rows = 1;
  batch.length = 128;
  batch.input_ids.assign(128, 1);
  batch.labels.assign(128, 2);
  batch.labels.back() = kIgnoredLabel;
  batch.label_count = 127;
  const LabelledPositions found = FindLabels(batch);
  ASSERT_EQ(found.labels.size(), 128u);
  for (std::int64_t i = 0; i < 128; ++i) EXPECT_EQ(found.positions[i], i);
  EXPECT_EQ(found.labels.back(), kIgnoredLabel);
}

}  // namespace
}  // namespace muster
