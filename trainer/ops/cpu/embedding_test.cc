#include "trainer/ops/cpu/embedding.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster {
namespace {

TEST(IndexWords, GroupsPlacesByWordInOrder) {
  const std::vector<std::int64_t> ids = {7, 2, 7, 9, 2, 7};
  const WordIndex index = IndexWords(ids);
  EXPECT_EQ(index.places, (std::vector<std::int64_t>{1, 4, 0, 2, 5, 3}));
  ASSERT_EQ(index.words.size(), 3u);
  EXPECT_EQ(index.words[0].word, 2);
  EXPECT_EQ(index.words[0].begin, 0);
  EXPECT_EQ(index.words[0].end, 2);
  EXPECT_EQ(index.words[1].word, 7);
  EXPECT_EQ(index.words[1].begin, 2);
  EXPECT_EQ(index.words[1].end, 5);
  EXPECT_EQ(index.words[2].word, 9);
  EXPECT_EQ(index.words[2].end, 6);
}

TEST(IndexWords, OfNothingIsEmpty) {
  const WordIndex index = IndexWords({});
  EXPECT_TRUE(index.words.empty());
  EXPECT_TRUE(index.places.empty());
}

// 2^24 + 1 is no single: a sum in another order, or in fp64, would be another number.
TEST(SumPlaced, AddsRowsInOrderInSinglePrecision) {
  const std::vector<float> values = {16777216.0f, 1.0f, 1.0f};
  const std::vector<std::int64_t> forward = {0, 1, 2}, backward = {2, 1, 0};
  float sum = -1;
  SumPlaced(PlacedRows<float>{1, values.data(), forward.data(), &sum}, 0, 3);
  EXPECT_EQ(sum, 16777216.0f);
  SumPlaced(PlacedRows<float>{1, values.data(), backward.data(), &sum}, 0, 3);
  EXPECT_EQ(sum, 16777218.0f);
}

}  // namespace
}  // namespace muster
