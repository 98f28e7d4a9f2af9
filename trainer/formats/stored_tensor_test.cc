#include "trainer/formats/stored_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

class StoredTensorTest : public testing::Test {
 protected:
  // Writes the elements, `piece` of them at a time.
  void Write(const std::vector<StoredTensor>& tensors, const std::vector<float>& values,
             std::int64_t piece) const {
    WeightFiles files(temp_.path(), {{"model.safetensors", FileTensors(tensors)}});
    ASSERT_TRUE(files.Begin().ok());
    TensorStream stream(tensors, files);
    for (std::int64_t at = 0; at < std::ssize(values); at += piece) {
      const std::int64_t count = std::min(piece, std::ssize(values) - at);
      ASSERT_TRUE(stream.Append(values.data() + at, count).ok());
    }
    ASSERT_TRUE(files.Finish().ok());
  }

  SafetensorsModel Open() const { return *SafetensorsModel::Open(temp_.path()); }

  static std::vector<float> Read(const SafetensorsModel& model, const std::string& name,
                                 std::int64_t begin, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count), -1);
    const Status read = model.ReadFloats(name, begin, count, values.data());
    EXPECT_TRUE(read.ok()) << read.ToString();
    return values;
  }

  const TempDirForTest temp_;
};

std::vector<float> Ascending(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST_F(StoredTensorTest, MatricesOfExpertsAreTurnedInFilesAndBackAgain) {
  const StoredTensor experts({"e", TensorType::kF32, {2, 3, 5}}, StoredForm::kTurned);
  const StoredTensor plain({"p", TensorType::kBF16, {4}});
  for (const std::int64_t piece : {1, 7, 100}) {
    Write({plain, experts, StoredTensor({"q", TensorType::kF32, {2, 2}})}, Ascending(38), piece);
    SafetensorsModel model = Open();
    ASSERT_NE(model.Find("e"), nullptr);
    EXPECT_EQ(model.Find("e")->shape, (std::vector<std::int64_t>{2, 3, 5}));
    // Expert 0 is [5, 3] from 5 on: its first column is the file's first row.
    EXPECT_EQ(Read(model, "e", 0, 5), (std::vector<float>{5, 8, 11, 14, 17}));
    ASSERT_TRUE(model.SplitExperts("e", 2).ok());
    EXPECT_EQ(model.Find("e"), nullptr);
    EXPECT_EQ(model.names(), (std::vector<std::string>{"e.0", "e.1", "p", "q"}));
    for (std::int64_t begin = 0; begin < 15; ++begin) {
      for (std::int64_t count = 0; begin + count <= 15; ++count) {
        std::vector<float> want(static_cast<std::size_t>(count));
        std::iota(want.begin(), want.end(), static_cast<float>(20 + begin));
        EXPECT_EQ(Read(model, "e.1", begin, count), want) << begin << " " << count;
      }
    }
    EXPECT_FALSE(model.LiesInOrder("e.1"));
    EXPECT_TRUE(model.LiesInOrder("p"));
    EXPECT_EQ(Read(model, "q", 0, 4), (std::vector<float>{35, 36, 37, 38}));
  }
}

TEST_F(StoredTensorTest, VectorsOfExpertsLieAsTheyAre) {
  Write({StoredTensor({"b", TensorType::kF32, {3, 4}})}, Ascending(12), 5);
  SafetensorsModel model = Open();
  ASSERT_TRUE(model.SplitExperts("b", 3).ok());
  EXPECT_EQ(model.Find("b.2")->shape, std::vector<std::int64_t>{4});
  EXPECT_EQ(Read(model, "b.2", 1, 2), (std::vector<float>{10, 11}));
  EXPECT_TRUE(model.LiesInOrder("b.2"));
}

TEST_F(StoredTensorTest, ExpertsInFourBitsAreReadAsTheirValuesAndCopiedByteForByte) {
  std::vector<float> values;
  for (int i = 0; i < 2 * 3 * 64; ++i)
    values.push_back(static_cast<float>((i % 7) - 3) * 0.5F * static_cast<float>(1 << (i / 32)));
  const StoredTensor experts({"e", TensorType::kBF16, {2, 3, 64}}, StoredForm::kMxfp4);
  Write(
      {experts, StoredTensor({"p", TensorType::kF32, {1}})},
      [&] {
        std::vector<float> all = values;
        all.push_back(9);
        return all;
      }(),
      13);
  SafetensorsModel model = Open();
  EXPECT_EQ(model.Find("e_blocks")->shape, (std::vector<std::int64_t>{2, 3, 2, 16}));
  EXPECT_EQ(model.Find("e_scales")->shape, (std::vector<std::int64_t>{2, 3, 2}));
  const TempDirForTest copies;
  {
    WeightFiles files(copies.path(), {{"model.safetensors", FileTensors({experts})}});
    ASSERT_TRUE(files.Begin().ok());
    TensorStream stream({experts}, files);
    ASSERT_TRUE(stream.Copy(model).ok());
    ASSERT_TRUE(files.Finish().ok());
  }
  const SafetensorsModel copy = *SafetensorsModel::Open(copies.path());
  for (const auto& [name, count] : {std::pair("e_blocks", 192), std::pair("e_scales", 12)}) {
    std::string a(static_cast<std::size_t>(count), 'a'), b(static_cast<std::size_t>(count), 'b');
    ASSERT_TRUE(model.ReadStored(name, 0, count, a.data()).ok());
    ASSERT_TRUE(copy.ReadStored(name, 0, count, b.data()).ok());
    EXPECT_EQ(a, b) << name;
  }
  ASSERT_TRUE(model.SplitExperts("e", 2).ok());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"e.0", "e.1", "p"}));
  EXPECT_EQ(model.Find("e.1")->shape, (std::vector<std::int64_t>{3, 64}));
  for (const auto& [begin, count] : {std::pair(0, 192), std::pair(31, 2), std::pair(64, 100)}) {
    const auto first = values.begin() + 192 + begin;
    EXPECT_EQ(Read(model, "e.1", begin, count), std::vector<float>(first, first + count));
  }
}

TEST_F(StoredTensorTest, WhatHoldsNothingForEachExpertIsRefused) {
  Write({StoredTensor({"v", TensorType::kF32, {4}}),
         StoredTensor({"w_blocks", TensorType::kF32, {2, 2, 1, 16}}),
         StoredTensor({"w_scales", TensorType::kF32, {2, 2, 1}}),
         StoredTensor({"many", TensorType::kF32, {1000000000, 0}})},
        Ascending(72), 100);
  SafetensorsModel model = Open();
  EXPECT_EQ(model.SplitExperts("v", 4).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(model.SplitExperts("w", 2).code(), StatusCode::kInvalidArgument) << "no bytes";
  // A header of some bytes must not become a million tensors.
  EXPECT_EQ(model.SplitExperts("many", 2).message(),
            "tensor many has shape [1000000000, 0], but config.json calls for a part for each of 2 "
            "experts");
  const Status missing = model.SplitExperts("x", 2);
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(
      missing.message(),
      "the model's safetensors hold neither tensor x nor both x_blocks and x_scales; download "
      "the model again");
}

TEST_F(StoredTensorTest, NumbersThatAreNotFiniteAreNotPutIntoFourBits) {
  const StoredTensor experts({"e", TensorType::kBF16, {1, 1, 32}}, StoredForm::kMxfp4);
  for (const float bad : {NAN, INFINITY}) {
    WeightFiles files(temp_.path(), {{"model.safetensors", FileTensors({experts})}});
    ASSERT_TRUE(files.Begin().ok());
    TensorStream stream({experts}, files);
    std::vector<float> values(32, 1.0F);
    values[17] = bad;
    EXPECT_EQ(stream.Append(values.data(), 32).message(),
              "tensor e has a number that is not finite, which MXFP4 cannot hold; leave --mxfp4 "
              "out");
  }
}

}  // namespace
}  // namespace muster
