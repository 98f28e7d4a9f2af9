#include "trainer/ops/cpu/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace muster {
namespace {

constexpr std::int64_t kRows = 500, kWidth = 1000;

// Which elements of [kRows, kWidth] count nothing.
std::vector<bool> Dropped(DropoutKey key, double p) {
  const std::vector<float> ones(kRows * kWidth, 1.0f);
  std::vector<float> out(ones.size(), -1.0f);
  Dropout<float>({.width = kWidth, .key = key, .p = p, .x = ones.data(), .out = out.data()}, 0,
                 kRows);
  std::vector<bool> dropped(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) dropped[i] = out[i] == 0;
  return dropped;
}

// Whether `hits` of `count` are as many as chance makes them, five standard deviations off at most.
void ExpectShare(std::int64_t hits, std::int64_t count, double p) {
  const double mean = p * static_cast<double>(count);
  const double deviation = std::sqrt(mean * (1 - p));
  EXPECT_NEAR(static_cast<double>(hits), mean, 5 * deviation);
}

// Two masks, or one and itself some elements on, have as much in common as chance gives them.
void ExpectIndependent(const std::vector<bool>& a, const std::vector<bool>& b, std::size_t lag,
                       double p) {
  std::int64_t both = 0;
  for (std::size_t i = 0; i + lag < a.size(); ++i) both += a[i] && b[i + lag];
  ExpectShare(both, static_cast<std::int64_t>(a.size() - lag), p * p);
}

TEST(Dropout, TheShareOfZerosIsTheProbability) {
  for (const double p : {0.0, 0.01, 0.1, 0.5, 0.9}) {
    SCOPED_TRACE(p);
    const std::vector<bool> dropped = Dropped({42}, p);
    std::int64_t zeros = 0;
    for (const bool each : dropped) zeros += each;
    ExpectShare(zeros, kRows * kWidth, p);
  }
}

TEST(Dropout, WhatCountsIsScaledUp) {
  std::vector<double> x(64), out(64);
  std::iota(x.begin(), x.end(), 1.0);
  Dropout<double>({.width = 64, .key = {7}, .p = 0.25, .x = x.data(), .out = out.data()}, 0, 1);
  int counted = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t number = DropoutNumber(PartOfKey({7}, 0), static_cast<std::uint32_t>(i));
    const bool counts = number >= 0x40000000u;
    counted += counts;
    EXPECT_DOUBLE_EQ(out[i], counts ? x[i] / 0.75 : 0) << i;
  }
  EXPECT_GT(counted, 0);
  EXPECT_LT(counted, 64);
}

TEST(Dropout, NeighbouringElementsAreIndependent) {
  const std::vector<bool> mask = Dropped({42}, 0.1);
  for (const std::size_t lag : {1, 2, 3, 8, 16, 64, 128, 256, 512, 1000, 2000, 4096, 65536}) {
    SCOPED_TRACE(lag);
    ExpectIndependent(mask, mask, lag, 0.1);
  }
}

TEST(Dropout, MasksOfNeighbouringKeysAreIndependent) {
  const DropoutKey key = PartOfKey({42}, 10);
  const std::vector<bool> mask = Dropped(key, 0.3);
  const DropoutKey others[] = {PartOfKey({43}, 10),     PartOfKey({42}, 11), PartOfKey({41}, 11),
                               PartOfKey(key, 0),       PartOfKey(key, 1),   {key.bits + 1},
                               {key.bits ^ 0x80000000u}};
  for (const DropoutKey other : others) {
    SCOPED_TRACE(other.bits);
    for (const std::size_t lag : {0, 1, 1000})
      ExpectIndependent(mask, Dropped(other, 0.3), lag, 0.3);
  }
}

// Rows that begin alike would drop the same columns.
TEST(Dropout, NoTwoRowsAreAlike) {
  const std::vector<bool> mask = Dropped({42}, 0.5);
  std::vector<std::vector<bool>> rows;
  for (std::int64_t row = 0; row < kRows; ++row) {
    rows.emplace_back(mask.begin() + row * kWidth, mask.begin() + row * kWidth + 64);
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
}

template <typename T>
class DropoutOf : public testing::Test {};
using Elements = testing::Types<double, float, BFloat16, Float16>;
TYPED_TEST_SUITE(DropoutOf, Elements);

TYPED_TEST(DropoutOf, CutsTypesAndPlacesChangeNoMask) {
  constexpr std::int64_t kNarrow = 37;
  std::vector<TypeParam> x(6 * kNarrow), out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) Store(&x[i], 1 + static_cast<float>(i % 64) / 64);
  const DropoutRows<TypeParam> rows{
      .width = kNarrow, .key = {5}, .p = 0.5, .x = x.data(), .out = out.data()};
  Dropout(rows, 4, 6);
  Dropout(rows, 0, 1);
  Dropout(rows, 1, 4);
  DropoutRows<TypeParam> in_place = rows;
  std::vector<TypeParam> own = x;
  in_place.x = own.data();
  in_place.out = own.data();
  Dropout(in_place, 0, 6);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const DropoutKey row = PartOfKey({5}, i / kNarrow);
    const bool counts = DropoutNumber(row, i % kNarrow) >= 0x80000000u;
    EXPECT_EQ(Load(out[i]), counts ? 2 * Load(x[i]) : 0) << i;
    EXPECT_EQ(Load(own[i]), Load(out[i])) << i;
  }
}

}  // namespace
}  // namespace muster
