#include "trainer/ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

constexpr std::int64_t kRows = 500, kWidth = 1000;

// Which elements of [kRows, kWidth] count nothing.
std::vector<bool> Dropped(DropoutKey key, double p) {
  const at::Tensor out = at::full({kRows, kWidth}, -1.0f);
  MakeCpuOps()->Run(op::Dropout{at::ones({kRows, kWidth}), key, p, out});
  std::vector<bool> dropped(kRows * kWidth);
  for (std::size_t i = 0; i < dropped.size(); ++i) dropped[i] = out.data_ptr<float>()[i] == 0;
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
  const at::Tensor in = at::arange(1, 65).to(at::kDouble).view({1, 64}),
                   scaled = at::zeros_like(in);
  MakeCpuOps()->Run(op::Dropout{in, {7}, 0.25, scaled});
  const double *const x = in.data_ptr<double>(), *const out = scaled.data_ptr<double>();
  int counted = 0;
  for (std::size_t i = 0; i < 64; ++i) {
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

TEST(Dropout, ThreadsTypesAndPlacesChangeNoMask) {
  constexpr std::int64_t kNarrow = 37, kMany = 2000;
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(at::toString(type));
    const at::Tensor x = (at::arange(kMany * kNarrow) % 64 / 64.0 + 1).view({kMany, kNarrow});
    const at::Tensor in = x.to(type), out = at::empty_like(in), own = in.clone();
    MakeCpuOps()->Run(op::Dropout{in, {5}, 0.5, out});
    MakeCpuOps()->Run(op::Dropout{own, {5}, 0.5, own});
    EXPECT_TRUE(at::equal(out, own));
    at::Tensor want = in.to(at::kDouble) * 2;
    for (std::int64_t i = 0; i < want.numel(); ++i) {
      const DropoutKey row = PartOfKey({5}, static_cast<std::uint64_t>(i / kNarrow));
      const bool counts =
          DropoutNumber(row, static_cast<std::uint32_t>(i % kNarrow)) >= 0x80000000u;
      if (!counts) want.data_ptr<double>()[i] = 0;
    }
    EXPECT_TRUE(at::equal(out.to(at::kDouble), want));
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace muster
