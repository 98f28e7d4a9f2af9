#include "trainer/ops/cpu/nf4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "trainer/ops/cpu/nf4_forms.h"

namespace muster {
namespace {

constexpr std::int64_t kCounts[] = {1, 2, 63, 64, 65, 128, 1000, 64 * 256, 64 * 256 + 33, 64 * 600};

struct Quantized {
  std::vector<std::uint8_t> codes, absmax_codes;
  std::vector<float> absmax, nested_absmax;
  float offset = 0;
  std::int64_t count = 0;

  explicit Quantized(const std::vector<float>& values)
      : codes(Nf4Bytes(std::ssize(values))),
        absmax_codes(Nf4Blocks(std::ssize(values))),
        absmax(absmax_codes.size()),
        nested_absmax(Nf4NestedBlocks(std::ssize(values))),
        count(std::ssize(values)) {
    QuantizeNf4({count, values.data(), codes.data(), absmax.data()}, 0, Nf4Blocks(count));
    double sum = 0;
    for (const float a : absmax) sum += a;
    offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
    QuantizeNf4Nested(
        {std::ssize(absmax), absmax.data(), offset, absmax_codes.data(), nested_absmax.data()});
  }

  Nf4Source Plain() const { return {count, codes.data(), absmax.data()}; }
  Nf4Source Nested() const {
    return {.count = count,
            .codes = codes.data(),
            .absmax_codes = absmax_codes.data(),
            .nested_absmax = nested_absmax.data(),
            .nested_code = Nf4NestedCode().data(),
            .offset = offset};
  }
  int CodeAt(std::int64_t i) const { return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15; }
};

std::vector<float> RandomValues(std::int64_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

TEST(Nf4, ACodeIsTheNearestLevelTimesTheBlocksLargestMagnitude) {
  for (const std::int64_t count : kCounts) {
    const std::vector<float> values = RandomValues(count);
    const Quantized q(values);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = i / kNf4Block * kNf4Block;
      double largest = 0;
      for (std::int64_t j = first; j < std::min(count, first + kNf4Block); ++j) {
        largest = std::max<double>(largest, std::abs(values[j]));
      }
      ASSERT_EQ(q.absmax[i / kNf4Block], static_cast<float>(largest));
      const double error = std::abs(kNf4Levels[q.CodeAt(i)] * largest - values[i]);
      for (const float level : kNf4Levels) {
        ASSERT_LE(error, std::abs(level * largest - values[i]) + 1e-6 * largest)
            << count << " " << i;
      }
    }
  }
}

TEST(Nf4, AnyCutIntoBlocksGivesTheSameBytes) {
  const std::vector<float> values = RandomValues(64 * 9 + 5);
  const Quantized whole(values);
  Quantized cut(values);
  std::fill(cut.codes.begin(), cut.codes.end(), 0);
  std::fill(cut.absmax.begin(), cut.absmax.end(), 0.0f);
  for (const auto& [begin, end] : {std::pair{7, 10}, {0, 3}, {3, 3}, {3, 7}}) {
    QuantizeNf4({cut.count, values.data(), cut.codes.data(), cut.absmax.data()}, begin, end);
  }
  EXPECT_EQ(cut.codes, whole.codes);
  EXPECT_EQ(cut.absmax, whole.absmax);
}

TEST(Nf4, WhatHasNoMagnitudeAndWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(64 * 3 + 3, 0.0f);
  values[64 + 9] = nan;
  std::fill_n(values.begin() + 128, 64, 1e-41f);
  const Quantized q(values);
  EXPECT_EQ(q.absmax[0], 0);
  EXPECT_EQ(q.codes[0], 0x77);
  EXPECT_TRUE(std::isnan(q.absmax[1]));
  EXPECT_EQ(q.codes[32], 0xff);
  EXPECT_EQ(q.absmax[2], 1e-41f);
  EXPECT_EQ(q.codes[64], 0x77);
  EXPECT_EQ(q.absmax[3], 1e-38f) << "a rest's is never less";
  EXPECT_EQ(q.codes.back(), 0x77) << "zero beside a last code";
}

// In fp32, and once more rounded to the element.
template <typename Element>
void CheckForms(ElementType type) {
  for (const std::int64_t count : kCounts) {
    const Quantized q(RandomValues(count));
    for (const Nf4Source& source : {q.Plain(), q.Nested()}) {
      std::vector<Element> want(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t block = i / kNf4Block;
        float scale = q.absmax[block];
        if (source.absmax == nullptr) {
          volatile float product =
              Nf4NestedCode()[q.absmax_codes[block]] * q.nested_absmax[block / kNf4NestedBlock];
          scale = product + q.offset;
        }
        Store(&want[i], kNf4Levels[q.CodeAt(i)] * scale);
      }
      for (const Nf4Path path : kNf4Paths) {
        const Nf4Dequantizer form = FindNf4(path);
        if (form == nullptr) continue;
        std::vector<Element> got(want.size());
        const std::int64_t middle = Nf4Blocks(count) / 2;
        form({source, type, got.data()}, middle, Nf4Blocks(count));
        form({source, type, got.data()}, 0, middle);
        EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(Element)), 0)
            << count << " elements on path " << static_cast<int>(path);
      }
    }
  }
}

TEST(Nf4, EveryFormReadsTheSameValues) {
  CheckForms<float>(ElementType::kFloat32);
  CheckForms<double>(ElementType::kFloat64);
  CheckForms<BFloat16>(ElementType::kBFloat16);
  CheckForms<Float16>(ElementType::kFloat16);
}

TEST(Nf4, AValueInFp64IsTheProductThatWasRoundedToFp32) {
  const std::int64_t count = 64 * 600;
  const Quantized q(RandomValues(count));
  std::vector<double> wide(count);
  std::vector<float> narrow(count);
  const Nf4Dequantizer form = FindNf4(Nf4Path::kPortable);
  form({q.Plain(), ElementType::kFloat64, wide.data()}, 0, Nf4Blocks(count));
  form({q.Plain(), ElementType::kFloat32, narrow.data()}, 0, Nf4Blocks(count));
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(wide[i], narrow[i]);
    const double exact = double{kNf4Levels[q.CodeAt(i)]} * q.absmax[i / kNf4Block];
    if (exact != 0) largest = std::max(largest, std::abs(wide[i] / exact - 1));
  }
  EXPECT_LE(largest, 0x1p-24);
  EXPECT_GT(largest, 1e-8) << "products are rounded";
}

TEST(Nf4, DoubleQuantisationKeepsMagnitudesToWithinAStep) {
  const Quantized q(RandomValues(64 * 600));
  for (std::size_t block = 0; block < q.absmax.size(); ++block) {
    const float largest = q.nested_absmax[block / kNf4NestedBlock];
    const float got = Nf4NestedCode()[q.absmax_codes[block]] * largest + q.offset;
    EXPECT_NEAR(got, q.absmax[block], 0.008f * largest);
  }
}

TEST(Nf4, TheNestedCodeBookAscendsThroughZeroToOne) {
  const auto& book = Nf4NestedCode();
  EXPECT_TRUE(std::is_sorted(book.begin(), book.end()));
  EXPECT_EQ(book.back(), 1);
  EXPECT_EQ(std::count(book.begin(), book.end(), 0.0f), 1);
  for (int i = 1; i < 127; ++i) EXPECT_EQ(book[127 - i], -book[127 + i]) << i;
}

}  // namespace
}  // namespace muster
