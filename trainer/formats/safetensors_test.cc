#include "trainer/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string LengthPrefix(std::uint64_t length) {
  return std::string(reinterpret_cast<const char*>(&length), 8);
}

std::string File(const std::string& header, std::size_t data_bytes) {
  return LengthPrefix(header.size()) + header + std::string(data_bytes, '\0');
}

std::vector<float> Ramp(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), -3.0f);
  return values;
}

Status WriteTensors(const std::string& path, const std::vector<TensorSpec>& tensors) {
  MUSTER_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors));
  for (const TensorSpec& tensor : tensors) {
    const std::vector<float> values = Ramp(tensor.count());
    MUSTER_RETURN_IF_ERROR(writer.AppendFloats(values.data(), tensor.count()));
  }
  return writer.Finish();
}

TEST(SafetensorsTest, GrownRowsAreTheMeanOfThoseInTheFile) {
  TempDirForTest dir;
  ASSERT_TRUE(WriteTensors(dir / "model.safetensors", {{"a", TensorType::kF32, {3, 4}},
                                                       {"b", TensorType::kBF16, {2, 3}},
                                                       {"c", TensorType::kF32, {4}}})
                  .ok());
  auto model = SafetensorsModel::Open(dir.path());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ASSERT_TRUE(model->GrowRows("a", 5).ok());
  ASSERT_TRUE(model->GrowRows("b", 2).ok()) << "as many as it has";
  EXPECT_THAT(model->Find("a")->shape, ElementsAre(5, 4));
  EXPECT_THAT(model->Find("b")->shape, ElementsAre(2, 3));
  // Rows -3 to 0, 1 to 4, 5 to 8.
  std::vector<float> expected = Ramp(12);
  for (int row = 0; row < 2; ++row) expected.insert(expected.end(), {1, 2, 3, 4});
  for (std::int64_t begin = 0; begin <= 20; ++begin) {
    for (std::int64_t end = begin; end <= 20; ++end) {
      std::vector<float> values(static_cast<std::size_t>(end - begin));
      ASSERT_TRUE(model->ReadFloats("a", begin, end - begin, values.data()).ok());
      EXPECT_EQ(values, std::vector<float>(expected.begin() + begin, expected.begin() + end));
    }
  }
  EXPECT_THAT(model->GrowRows("a", 4).message(), HasSubstr("tensor a has 5 rows, more than 4"));
  EXPECT_THAT(model->GrowRows("c", 9).message(), HasSubstr("tensor c is no matrix"));
  EXPECT_EQ(model->GrowRows("none", 9).code(), StatusCode::kNotFound);
}

TEST(SafetensorsTest, TheMeanIsTakenOnceAndOnlyWhereItIsNeeded) {
  TempDirForTest dir;
  ASSERT_TRUE(
      WriteTensors(dir / "model.safetensors", {{"a", TensorType::kBF16, {300, 8192}}}).ok());
  auto model = SafetensorsModel::Open(dir.path());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ASSERT_TRUE(model->GrowRows("a", 301).ok());
  int pieces = 0;
  const auto prepare = [&](std::int64_t end) {
    return model->PrepareGrownRows("a", end, [&] { ++pieces; });
  };
  EXPECT_TRUE(prepare(300 * 8192).ok());
  EXPECT_EQ(pieces, 0);
  EXPECT_TRUE(prepare(300 * 8192 + 1).ok());
  EXPECT_EQ(pieces, 3);
  EXPECT_TRUE(prepare(301 * 8192).ok());
  EXPECT_EQ(pieces, 3);
}

TEST(SafetensorsTest, WhatIsWrittenIsReadBackInAnyInterval) {
  TempDirForTest dir;
  const std::vector<TensorSpec> tensors = {{"a", TensorType::kF32, {3, 5}},
                                           {"empty", TensorType::kF32, {0, 4}},
                                           {"b", TensorType::kBF16, {7}},
                                           {"scalar", TensorType::kF16, {}},
                                           {"c", TensorType::kF16, {2, 2, 2}}};
  ASSERT_TRUE(WriteTensors(dir / "model.safetensors", tensors).ok());
  const auto model = SafetensorsModel::Open(dir.path());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT(model->names(), ElementsAre("a", "b", "c", "empty", "scalar"));
  EXPECT_EQ(model->metadata().at("format"), "pt");
  for (const TensorSpec& tensor : tensors) {
    ASSERT_NE(model->Find(tensor.name), nullptr);
    EXPECT_EQ(*model->Find(tensor.name), tensor);
    const std::vector<float> expected = Ramp(tensor.count());
    for (std::int64_t begin = 0; begin <= tensor.count(); ++begin)
      for (std::int64_t end = begin; end <= tensor.count(); ++end) {
        std::vector<float> values(static_cast<std::size_t>(end - begin), -99.0f);
        ASSERT_TRUE(model->ReadFloats(tensor.name, begin, end - begin, values.data()).ok());
        EXPECT_EQ(values, std::vector<float>(expected.begin() + begin, expected.begin() + end));
      }
  }
  EXPECT_EQ(model->Find("d"), nullptr);
  float value = 0;
  EXPECT_EQ(model->ReadFloats("d", 0, 1, &value).code(), StatusCode::kNotFound);
}

TEST(SafetensorsTest, StoredElementsPassThroughBitByBit) {
  TempDirForTest dir;
  const std::vector<double> doubles = {1.0, -0.0, 1e-300, 1.0 / 3};
  const std::vector<std::uint16_t> halves = {0x3f80, 0x7fc1, 0x0001};
  auto writer = SafetensorsWriter::Create(
      dir / "stored", {{"wide", TensorType::kF64, {2, 2}}, {"narrow", TensorType::kBF16, {3}}});
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  ASSERT_TRUE(writer->AppendStored(doubles.data(), 1).ok());
  ASSERT_TRUE(writer->AppendStored(doubles.data() + 1, 3).ok());
  ASSERT_TRUE(writer->AppendStored(halves.data(), 3).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto model = SafetensorsModel::OpenFile(dir / "stored");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  std::vector<double> wide(2);
  ASSERT_TRUE(model->ReadStored("wide", 2, 2, wide.data()).ok());
  EXPECT_THAT(wide, ElementsAre(1e-300, 1.0 / 3));
  std::vector<std::uint16_t> narrow(3);
  ASSERT_TRUE(model->ReadStored("narrow", 0, 3, narrow.data()).ok());
  EXPECT_EQ(narrow, halves);
  EXPECT_EQ(model->ReadStored("none", 0, 1, narrow.data()).code(), StatusCode::kNotFound);
}

TEST(SafetensorsTest, AppendsOfAnySizeGiveTheSameFile) {
  TempDirForTest dir;
  const std::vector<TensorSpec> tensors = {{"a", TensorType::kF32, {1000, 301}},
                                           {"b", TensorType::kBF16, {700, 999}}};
  ASSERT_TRUE(WriteTensors(dir / "whole", tensors).ok());
  std::vector<float> all = Ramp(tensors[0].count());
  const std::vector<float> second = Ramp(tensors[1].count());
  all.insert(all.end(), second.begin(), second.end());
  auto writer = SafetensorsWriter::Create(dir / "pieces", tensors);
  ASSERT_TRUE(writer.ok());
  for (std::size_t begin = 0, piece = 1; begin < all.size(); piece = piece * 3 + 1) {
    const std::size_t count = std::min(piece, all.size() - begin);
    ASSERT_TRUE(writer->AppendFloats(all.data() + begin, static_cast<std::int64_t>(count)).ok());
    begin += count;
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto whole = ReadFile(dir / "whole");
  const auto pieces = ReadFile(dir / "pieces");
  ASSERT_TRUE(whole.ok() && pieces.ok());
  EXPECT_TRUE(*whole == *pieces);

  const auto model = SafetensorsModel::OpenFile(dir / "whole");
  ASSERT_TRUE(model.ok());
  float value = 0;
  ASSERT_TRUE(model->ReadFloats("b", 256, 1, &value).ok());
  EXPECT_EQ(value, 253.0f);
  ASSERT_TRUE(model->ReadFloats("b", 260, 1, &value).ok());
  EXPECT_EQ(value, 256.0f) << "257 lies between two bfloat16 values and goes to the even one";
}

TEST(SafetensorsTest, AnUnfinishedFileLeavesNothingBehind) {
  TempDirForTest dir;
  {
    auto writer = SafetensorsWriter::Create(dir / "x", {{"a", TensorType::kF32, {4}}});
    ASSERT_TRUE(writer.ok());
    const float values[3] = {1, 2, 3};
    ASSERT_TRUE(writer->AppendFloats(values, 3).ok());
    const Status status = writer->Finish();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("3 of 4"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SafetensorsTest, TheWriterRefusesWhatItCannotWrite) {
  TempDirForTest dir;
  EXPECT_EQ(SafetensorsWriter::Create(dir / "x", {{"a", TensorType::kI64, {4}}}).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(SafetensorsWriter::Create(dir / "x",
                                      {{"a", TensorType::kF32, {4}}, {"a", TensorType::kF32, {4}}})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(SafetensorsTest, ReadsAFileOfTheReferenceImplementation) {
  const auto model = SafetensorsModel::OpenFile(MUSTER_TESTDATA "/reference.safetensors");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT(model->names(), ElementsAre("half", "ids", "matrix"));
  EXPECT_THAT(model->Find("matrix")->shape, ElementsAre(2, 3));
  std::vector<float> values(3);
  ASSERT_TRUE(model->ReadFloats("matrix", 2, 3, values.data()).ok());
  EXPECT_THAT(values, ElementsAre(2.5f, 3.5f, 4.5f));
  ASSERT_TRUE(model->ReadFloats("half", 0, 3, values.data()).ok());
  EXPECT_THAT(values, ElementsAre(0.5f, -2.0f, 65504.0f));
  const Status status = model->ReadFloats("ids", 0, 1, values.data());
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("I64"));
}

struct BadFile {
  const char* what;
  std::string content;
  StatusCode code;
  const char* message;
};

std::string Tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

const BadFile kBadFiles[] = {
    {"empty", "", StatusCode::kDataLoss, "0 bytes"},
    {"seven bytes", "\1\0\0\0\0\0\0", StatusCode::kDataLoss, "truncated"},
    {"header beyond the file", LengthPrefix(1000) + "{}", StatusCode::kDataLoss,
     "needs 1008 bytes, the file holds 10"},
    {"huge header", LengthPrefix(200'000'000) + "{}", StatusCode::kInvalidArgument, "200000000"},
    {"header of 2^63", LengthPrefix(std::uint64_t{1} << 63) + "{}", StatusCode::kInvalidArgument,
     "9223372036854775808"},
    {"header of 2^64-1", LengthPrefix(~std::uint64_t{0}) + "{}", StatusCode::kInvalidArgument,
     "damaged"},
    {"no JSON", File("{\"a\":", 0), StatusCode::kInvalidArgument, "not valid JSON"},
    {"an array", File("[]", 0), StatusCode::kInvalidArgument, "no JSON object"},
    {"a number for a tensor", File(R"({"a":3})", 0), StatusCode::kInvalidArgument, "tensor a"},
    {"unknown dtype", File(Tensor("F13", "[1]", "[0,4]"), 4), StatusCode::kInvalidArgument, "F13"},
    {"no dtype", File(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4),
     StatusCode::kInvalidArgument, "no dtype"},
    {"no shape", File(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4),
     StatusCode::kInvalidArgument, "no shape"},
    {"negative shape", File(Tensor("F32", "[-1]", "[0,4]"), 4), StatusCode::kInvalidArgument,
     "shape"},
    {"no offsets", File(R"({"a":{"dtype":"F32","shape":[1]}})", 4), StatusCode::kInvalidArgument,
     "data_offsets"},
    {"three offsets", File(Tensor("F32", "[1]", "[0,4,8]"), 4), StatusCode::kInvalidArgument,
     "data_offsets"},
    {"offsets backwards", File(Tensor("F32", "[1]", "[4,0]"), 4), StatusCode::kInvalidArgument,
     "impossible"},
    {"fractional offset", File(Tensor("F32", "[1]", "[0,4.0]"), 4), StatusCode::kInvalidArgument,
     "impossible"},
    {"offset of 2^63", File(Tensor("F32", "[1]", "[0,9223372036854775808]"), 4),
     StatusCode::kInvalidArgument, "impossible"},
    {"offset of 2^64", File(Tensor("F32", "[1]", "[0,18446744073709551616]"), 4),
     StatusCode::kInvalidArgument, "impossible"},
    {"shape that overflows", File(Tensor("F32", "[4294967296,4294967296]", "[0,0]"), 0),
     StatusCode::kInvalidArgument, "63 bits"},
    {"shape and offsets differ", File(Tensor("F32", "[2]", "[0,4]"), 4),
     StatusCode::kInvalidArgument, "needs 8 bytes"},
    {"truncated data", File(Tensor("F32", "[8]", "[0,32]"), 31), StatusCode::kDataLoss,
     "need 32 bytes of data, the file holds 31"},
    {"bytes left over", File(Tensor("F32", "[1]", "[0,4]"), 9), StatusCode::kInvalidArgument,
     "5 bytes after"},
    {"hole at the start", File(Tensor("F32", "[1]", "[4,8]"), 8), StatusCode::kInvalidArgument,
     "hole"},
    {"overlap",
     File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
              "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12),
     StatusCode::kInvalidArgument, "inside"},
    {"one name twice",
     File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
              "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4),
     StatusCode::kInvalidArgument, "tensor a twice"},
    {"metadata of numbers", File(R"({"__metadata__":{"format":1}})", 0),
     StatusCode::kInvalidArgument, "__metadata__.format"},
};

TEST(SafetensorsTest, EveryMalformedFileIsRefusedWithItsNameAndReason) {
  TempDirForTest dir;
  for (const BadFile& bad : kBadFiles) {
    const std::string path = dir.Write("model.safetensors", bad.content);
    const auto model = SafetensorsModel::Open(dir.path());
    ASSERT_FALSE(model.ok()) << bad.what;
    EXPECT_EQ(model.status().code(), bad.code) << bad.what << ": " << model.status().message();
    EXPECT_THAT(model.status().message(), HasSubstr(bad.message)) << bad.what;
    EXPECT_THAT(model.status().message(), HasSubstr(path)) << bad.what;
  }
}

TEST(SafetensorsTest, EveryTruncationOfAGoodFileIsNoticed) {
  TempDirForTest dir;
  ASSERT_TRUE(WriteTensors(dir / "good", {{"a", TensorType::kF32, {3}}}).ok());
  const auto good = ReadFile(dir / "good");
  ASSERT_TRUE(good.ok());
  for (std::size_t size = 0; size < good->size(); ++size) {
    dir.Write("cut", good->substr(0, size));
    EXPECT_EQ(SafetensorsModel::OpenFile(dir / "cut").status().code(), StatusCode::kDataLoss)
        << size;
  }
}

TEST(SafetensorsTest, ADirectoryOrMissingFileIsAnError) {
  TempDirForTest dir;
  EXPECT_FALSE(SafetensorsModel::OpenFile(dir.path()).ok());
  const auto none = SafetensorsModel::Open(dir.path());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr(dir / "model.safetensors"));
  dir.Write("pytorch_model.bin", "x");
  EXPECT_THAT(SafetensorsModel::Open(dir.path()).status().message(),
              HasSubstr("safe_serialization"));
}

TEST(SafetensorsTest, APipeIsRefusedWithoutWaitingForAWriter) {
  TempDirForTest dir;
  ASSERT_EQ(::mkfifo((dir / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsModel::OpenFile(dir / "model.safetensors").status().message(),
              HasSubstr("is no regular file"));
}

class SafetensorsIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteTensors(dir_ / "one.safetensors", {{"a", TensorType::kF32, {2}}}).ok());
    ASSERT_TRUE(WriteTensors(dir_ / "two.safetensors",
                             {{"b", TensorType::kBF16, {3}}, {"c", TensorType::kF32, {1}}})
                    .ok());
  }
  Result<SafetensorsModel> OpenWith(const std::string& index) {
    dir_.Write("model.safetensors.index.json", index);
    return SafetensorsModel::Open(dir_.path());
  }

  TempDirForTest dir_;
};

TEST_F(SafetensorsIndexTest, PresentsAllShardsAsOneModel) {
  const auto model = OpenWith(R"({"metadata": {"total_size": 18}, "weight_map":
      {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}})");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT(model->names(), ElementsAre("a", "b", "c"));
  std::vector<float> values(3);
  ASSERT_TRUE(model->ReadFloats("b", 0, 3, values.data()).ok());
  EXPECT_THAT(values, ElementsAre(-3.0f, -2.0f, -1.0f));
  ASSERT_TRUE(model->ReadFloats("a", 1, 1, values.data()).ok());
  EXPECT_EQ(values[0], -2.0f);
}

TEST_F(SafetensorsIndexTest, RefusesAnIndexThatIsWrong) {
  const struct {
    const char* index;
    const char* message;
  } cases[] = {
      {"{", "not a valid index"},
      {"{}", "weight_map"},
      {R"({"weight_map": {}})", "weight_map"},
      {R"({"weight_map": {"a": 3}})", "not a valid index"},
      {R"({"weight_map": {"a": "three.safetensors"}})", "three.safetensors, which is not there"},
      {R"({"weight_map": {"a": "two.safetensors"}})", "tensor a lies in two.safetensors, but"},
      {R"({"weight_map": {"a": "../one.safetensors"}})", "no file name"},
  };
  for (const auto& c : cases) {
    const auto model = OpenWith(c.index);
    ASSERT_FALSE(model.ok()) << c.index;
    EXPECT_THAT(model.status().message(), HasSubstr(c.message));
    EXPECT_THAT(model.status().message(), HasSubstr("index.json"));
  }
}

}  // namespace
}  // namespace muster
