#include "trainer/formats/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

// Bytes 40, 80, 20, 4 with two bytes an element.
std::vector<TensorSpec> Tensors(TensorType type = TensorType::kBF16) {
  return {{.name = "d", .type = type, .shape = {4, 5}},
          {.name = "a", .type = type, .shape = {40}},
          {.name = "c", .type = type, .shape = {10, 1}},
          {.name = "b", .type = type, .shape = {2}}};
}

std::vector<std::vector<std::string>> Planned(std::int64_t max_bytes) {
  std::vector<std::vector<std::string>> files;
  for (const WeightFile& file : PlanWeightFiles(Tensors(), max_bytes)) {
    files.emplace_back();
    for (const TensorSpec& tensor : file.tensors) files.back().push_back(tensor.name);
  }
  return files;
}

TEST(PlanWeightFiles, KeepsTheOrderAndTheBound) {
  EXPECT_THAT(Planned(144), ElementsAre(ElementsAre("d", "a", "c", "b")));
  EXPECT_THAT(Planned(143), ElementsAre(ElementsAre("d", "a", "c"), ElementsAre("b")));
  EXPECT_THAT(Planned(100), ElementsAre(ElementsAre("d"), ElementsAre("a", "c"), ElementsAre("b")));
  EXPECT_THAT(Planned(24), ElementsAre(ElementsAre("d"), ElementsAre("a"), ElementsAre("c", "b")))
      << "a tensor beyond the bound has a file of its own";
}

TEST(PlanWeightFiles, NamesFilesByTheirNumber) {
  EXPECT_EQ(PlanWeightFiles(Tensors(), 1'000)[0].name, "model.safetensors");
  const std::vector<WeightFile> files = PlanWeightFiles(Tensors(), 1);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].name, "model-00001-of-00004.safetensors");
  EXPECT_EQ(files[3].name, "model-00004-of-00004.safetensors");
}

TEST(WeightIndex, SaysWhereEachTensorLiesAndHowLargeAllAre) {
  const auto index = nlohmann::json::parse(WeightIndexJson(PlanWeightFiles(Tensors(), 100)));
  EXPECT_EQ(index["metadata"]["total_size"], 144);
  EXPECT_EQ(index["metadata"]["total_parameters"], 72);
  EXPECT_EQ(index["weight_map"].size(), 4u);
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00003.safetensors");
}

class WeightFilesOf : public testing::TestWithParam<std::int64_t> {};

TEST_P(WeightFilesOf, AreReadAsOneModel) {
  const TempDirForTest dir;
  std::vector<float> values(72);
  std::iota(values.begin(), values.end(), 0.f);
  WeightFiles files(dir.path(), PlanWeightFiles(Tensors(TensorType::kF32), GetParam()));
  ASSERT_TRUE(files.Begin().ok());
  for (std::int64_t at = 0, count = 1; at < 72; at += count, count = std::min(72 - at, count + 6)) {
    ASSERT_TRUE(files.Append(values.data() + at, count).ok());
  }
  ASSERT_TRUE(files.Finish().ok());
  const auto model = SafetensorsModel::Open(dir.path());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  std::size_t at = 0;
  for (const TensorSpec& tensor : Tensors(TensorType::kF32)) {
    ASSERT_NE(model->Find(tensor.name), nullptr);
    EXPECT_EQ(model->Find(tensor.name)->shape, tensor.shape);
    std::vector<float> got(static_cast<std::size_t>(tensor.count()));
    ASSERT_TRUE(model->ReadFloats(tensor.name, 0, tensor.count(), got.data()).ok());
    for (const float value : got) EXPECT_EQ(value, values[at++]);
  }
  EXPECT_EQ(model->metadata().at("format"), "pt") << "transformers refuses files without it";
}

INSTANTIATE_TEST_SUITE_P(Bounds, WeightFilesOf, testing::Values(1'000, 200, 100, 1));

TEST(WeightFiles, SayThatElementsAreMissing) {
  const TempDirForTest dir;
  WeightFiles files(dir.path(), PlanWeightFiles(Tensors(), 1'000));
  ASSERT_TRUE(files.Begin().ok());
  const std::vector<float> values(71);
  ASSERT_TRUE(files.Append(values.data(), 71).ok());
  EXPECT_FALSE(files.Finish().ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "model.safetensors"));
}

}  // namespace
}  // namespace muster
