#include "cli/top/sparkline.h"

#include <gtest/gtest.h>

#include <cmath>

namespace muster {
namespace {

using Lines = std::vector<std::string>;

TEST(Chart, FallsFromTheTopLeftToTheBottomRight) {
  const double values[] = {4, 3, 2, 1};
  EXPECT_EQ(Chart(values, 2, 1, Glyphs::kBraille), Lines{"\u2811\u2884"});
  EXPECT_EQ(Chart(values, 4, 1, Glyphs::kAscii), Lines{"@*-_"});
}

TEST(Chart, IsAsHighAsRequested) {
  const double values[] = {0, 1};
  EXPECT_EQ(Chart(values, 1, 2, Glyphs::kBraille), (Lines{"\u2808", "\u2840"}));
  EXPECT_EQ(Chart(values, 2, 3, Glyphs::kAscii), (Lines{" @", "  ", "_ "}));
}

TEST(Chart, ManyValuesAreTheirMeans) {
  const double values[] = {0, 2, 9, 11};
  EXPECT_EQ(Chart(values, 2, 1, Glyphs::kAscii), Lines{"_@"});
}

TEST(Chart, WhatIsNotThereStaysEmpty) {
  const double gap[] = {1, std::nan(""), INFINITY, 2};
  EXPECT_EQ(Chart(gap, 6, 1, Glyphs::kAscii), Lines{"_  @  "});
  EXPECT_EQ(Chart({}, 3, 1, Glyphs::kAscii), Lines{"   "});
  EXPECT_EQ(Chart({}, 1, 1, Glyphs::kBraille), Lines{"\u2800"});
  EXPECT_EQ(Chart({}, 0, 1, Glyphs::kBraille), Lines{});
}

TEST(Chart, ALevelCurveLiesInTheMiddle) {
  const double values[] = {7, 7};
  EXPECT_EQ(Chart(values, 2, 1, Glyphs::kAscii), Lines{"++"});
}

}  // namespace
}  // namespace muster
