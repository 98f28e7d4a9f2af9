#include "trainer/formats/weights_fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

constexpr std::int64_t kElements = 1000;

// A model of one tensor [10, 100] and a short one, in one file; `edit` gets the long one's values.
std::uint64_t FingerprintOf(TensorType type, const std::function<void(std::vector<float>&)>& edit,
                            const std::string& name = "w",
                            const std::vector<std::int64_t>& shape = {10, 100}) {
  TempDirForTest dir;
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 128);
  edit(values);
  const std::string path = dir / "model.safetensors";
  auto writer =
      SafetensorsWriter::Create(path, {{"short", TensorType::kF32, {3}}, {name, type, shape}});
  const std::vector<float> three = {1, 2, 3};
  EXPECT_TRUE(writer.ok());
  EXPECT_TRUE(writer->AppendFloats(three.data(), 3).ok());
  EXPECT_TRUE(writer->AppendFloats(values.data(), kElements).ok());
  EXPECT_TRUE(writer->Finish().ok());
  const auto model = SafetensorsModel::Open(dir.path());
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return FingerprintWeights(*model).value();
}

std::uint64_t Plain(TensorType type) {
  return FingerprintOf(type, [](std::vector<float>&) {});
}

TEST(WeightsFingerprint, IsThatOfTheValuesNotOfTheirType) {
  EXPECT_EQ(Plain(TensorType::kF32), Plain(TensorType::kF32));
  EXPECT_EQ(Plain(TensorType::kF32), Plain(TensorType::kBF16));
}

TEST(WeightsFingerprint, SeesTheFirstTheMiddleAndTheLastValues) {
  const std::uint64_t plain = Plain(TensorType::kF32);
  for (const std::size_t at : {std::size_t{0}, std::size_t{500}, std::size_t{999}}) {
    EXPECT_NE(plain, FingerprintOf(TensorType::kF32, [at](std::vector<float>& v) { v[at] += 1; }))
        << "element " << at;
  }
}

TEST(WeightsFingerprint, SeesNamesAndShapes) {
  const std::uint64_t plain = Plain(TensorType::kF32);
  const auto same = [](std::vector<float>&) {};
  EXPECT_NE(plain, FingerprintOf(TensorType::kF32, same, "v"));
  EXPECT_NE(plain, FingerprintOf(TensorType::kF32, same, "w", {100, 10}));
}

TEST(WeightsFingerprint, IsWrittenInSixteenDigits) {
  EXPECT_EQ(FingerprintText(0x123abc), "xxh3:0000000000123abc");
}

}  // namespace
}  // namespace muster
