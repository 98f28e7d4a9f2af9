#include "trainer/data/dataset.h"

#include <gtest/gtest.h>

#include <utility>

namespace muster {
namespace {

TEST(DescribePlaces, OneIsNamedBareAndNeighboursAreARun) {
  EXPECT_EQ(DescribePlaces("line", {7}, "/data/train.jsonl"), "line 7 of train.jsonl");
  EXPECT_EQ(DescribePlaces("row", {9, 3, 8, 7}, "rows.bin"), "rows 3, 7-9 of rows.bin");
}

TEST(DescribePlaces, ALineOfSeveralRowsIsNamedOnce) {
  EXPECT_EQ(DescribePlaces("line", {4, 4, 4}, "a.jsonl"), "line 4 of a.jsonl");
}

TEST(DescribePlaces, NoMoreThanAPersonLooksAt) {
  std::vector<std::int64_t> apart;
  for (std::int64_t i = 0; i < 100; ++i) apart.push_back(2 * i);
  const std::string text = DescribePlaces("row", std::move(apart), "a.bin");
  EXPECT_LT(text.size(), 80u);
  EXPECT_NE(text.find(", ... of a.bin"), std::string::npos) << text;
}

}  // namespace
}  // namespace muster
