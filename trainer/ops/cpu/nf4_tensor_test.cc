#include "trainer/ops/cpu/nf4_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/testing/nf4_testing.h"

namespace muster {
namespace {

// Files that tests/golden/make_nf4_golden.py made with bitsandbytes.
TEST(Nf4Tensor, HasTheBytesOfBitsandbytes) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MUSTER_TESTDATA)) {
    const Result<Nf4Differences> found = CompareNf4(entry.path().string());
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->codes, 0) << entry.path();
    EXPECT_EQ(found->absmax, 0) << entry.path();
    EXPECT_EQ(found->offset, 0) << entry.path();
    EXPECT_EQ(found->absmax_codes, 0) << entry.path();
    EXPECT_EQ(found->nested_absmax, 0) << entry.path();
    EXPECT_EQ(found->nested_code, 0) << entry.path();
    EXPECT_EQ(found->read_back, 0) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 10);
}

// One byte in each array of a file, changed, is found there and nowhere else.
TEST(Nf4Tensor, AComparisonFindsASingleByte) {
  const std::string from = std::string(MUSTER_TESTDATA) + "/rest.nf4";
  std::ifstream in(from, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::int64_t count = 1000, blocks = 16;
  const std::vector<std::int64_t> sizes = {500, 4 * blocks, 4, blocks, 4, 1024, 4 * count};
  const std::filesystem::path changed =
      std::filesystem::path(testing::TempDir()) / "muster-changed.nf4";
  std::size_t at = 8 + 4 * count;
  for (std::size_t array = 0; array < sizes.size(); ++array) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 1);
    std::ofstream(changed, std::ios::binary) << other;
    const Result<Nf4Differences> found = CompareNf4(changed.string());
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    const std::int64_t each[] = {found->codes,        found->absmax,        found->offset,
                                 found->absmax_codes, found->nested_absmax, found->nested_code,
                                 found->read_back};
    EXPECT_GT(each[array], 0) << array;
    EXPECT_EQ(found->total(), each[array]) << array;
    at += static_cast<std::size_t>(sizes[array]);
  }
  EXPECT_EQ(at, bytes.size());
  std::ofstream(changed, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
  EXPECT_FALSE(CompareNf4(changed.string()).ok());
  std::filesystem::remove(changed);
}

TEST(Nf4Tensor, NarrowTypesAreQuantisedAsTheSinglesThatTheyAre) {
  at::manual_seed(4);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = at::randn({37, 30}).to(type);
    const Nf4Tensor narrow = QuantizeNf4(values, true),
                    wide = QuantizeNf4(values.to(at::kFloat), true);
    EXPECT_TRUE(at::equal(narrow.codes, wide.codes));
    EXPECT_TRUE(at::equal(narrow.absmax_codes, wide.absmax_codes));
    EXPECT_FALSE(narrow.absmax.defined());
    at::Tensor read = at::empty({37, 30}, type);
    MakeCpuOps()->Run(op::DequantizeNf4{narrow.source(), read});
    EXPECT_LT(((read - values).to(at::kFloat).norm() / values.to(at::kFloat).norm()).item<float>(),
              0.12f);
  }
}

TEST(Nf4Tensor, OtherValuesAreRefused) {
  EXPECT_THROW(QuantizeNf4(at::zeros({4}, at::kDouble), false), c10::Error);
  EXPECT_THROW(QuantizeNf4(at::zeros({4}, at::kLong), false), c10::Error);
  EXPECT_THROW(QuantizeNf4(at::zeros({4, 2}).t(), false), c10::Error);
  EXPECT_THROW(QuantizeNf4(at::zeros({0}), false), c10::Error);
}

}  // namespace
}  // namespace muster
