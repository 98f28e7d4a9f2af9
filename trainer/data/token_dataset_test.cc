#include "trainer/data/token_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <numeric>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "trainer/data/batch_loader.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Id>
std::string Bytes(const std::vector<Id>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id));
}

// As numpy.save writes it: padded so that the data begins at a multiple of 64.
std::string Npy(const std::string& descr, const std::string& shape, const std::string& data,
                bool fortran = false) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header +
         data;
}

template <typename Id>
std::vector<Id> Count(std::size_t ids, Id first = 0) {
  std::vector<Id> counted(ids);
  std::iota(counted.begin(), counted.end(), first);
  return counted;
}

class TokenDatasetTest : public ::testing::Test {
 protected:
  Result<TokenDataset> Open(const std::string& name, const std::string& content) {
    return TokenDataset::Open(dir_.Write(name, content), options_);
  }
  std::string Refusal(const std::string& name, const std::string& content) {
    const auto dataset = Open(name, content);
    return dataset.ok() ? "" : dataset.status().message();
  }
  static std::vector<std::int64_t> Ids(const Dataset& dataset, std::int64_t row) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(dataset.Length(row)));
    std::vector<std::int64_t> labels(ids.size());
    EXPECT_TRUE(dataset.Read(row, ids, labels).ok());
    return ids;
  }

  TempDirForTest dir_;
  TokenDatasetOptions options_{.max_seq_len = 4, .vocab_size = 100};
};

TEST_F(TokenDatasetTest, ReadsEveryIntegerTypeOfAnArray) {
  const std::string files[] = {
      Npy("<u2", "(3, 4)", Bytes(Count<std::uint16_t>(12))),
      Npy("<u4", "(3, 4)", Bytes(Count<std::uint32_t>(12))),
      Npy("<i4", "(3, 4)", Bytes(Count<std::int32_t>(12))),
      Npy("<i8", "(3, 4)", Bytes(Count<std::int64_t>(12))),
  };
  for (const std::string& file : files) {
    const auto dataset = Open("rows.npy", file);
    ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
    EXPECT_EQ(dataset->size(), 3);
    EXPECT_THAT(Ids(*dataset, 2), ElementsAre(8, 9, 10, 11));
    EXPECT_EQ(dataset->stats(), (DatasetStats{.rows = 3, .tokens = 12, .label_tokens = 9}));
  }
}

TEST_F(TokenDatasetTest, LabelsAreTheRowShiftedByOne) {
  const auto dataset = Open("rows.npy", Npy("<u2", "(3, 4)", Bytes(Count<std::uint16_t>(12))));
  ASSERT_TRUE(dataset.ok());
  BatchLoader loader(*dataset, {.per_rank = 2}, {.shuffle = false}, 0);
  const MicroBatch batch = *loader.Get(0, 0);
  EXPECT_THAT(batch.input_ids, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(batch.labels, ElementsAre(1, 2, 3, kIgnoredLabel, 5, 6, 7, kIgnoredLabel));
  EXPECT_EQ(batch.label_count, 6);
  EXPECT_EQ(loader.WindowLabelCount(0), 6);
}

TEST_F(TokenDatasetTest, RowsOfAnArrayLongerThanMaxSeqLenAreCutAndCounted) {
  const auto dataset = Open("rows.npy", Npy("<i4", "(2, 6)", Bytes(Count<std::int32_t>(12))));
  ASSERT_TRUE(dataset.ok());
  EXPECT_THAT(Ids(*dataset, 1), ElementsAre(6, 7, 8, 9));
  EXPECT_EQ(dataset->stats(),
            (DatasetStats{.rows = 2, .truncated = 2, .tokens = 8, .label_tokens = 6}));
}

TEST_F(TokenDatasetTest, ABinOfASmallVocabularyHas16BitsAnIdAndItsTailIsCounted) {
  options_.vocab_size = 65'536;
  const auto dataset = Open("rows.bin", Bytes(Count<std::uint16_t>(11, 65'500)));
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  EXPECT_THAT(Ids(*dataset, 1), ElementsAre(65'504, 65'505, 65'506, 65'507));
  EXPECT_EQ(dataset->stats(),
            (DatasetStats{.rows = 2, .tokens = 8, .label_tokens = 6, .trailing_tokens = 3}));
}

TEST_F(TokenDatasetTest, ABinOfALargeVocabularyHas32BitsAnId) {
  options_.vocab_size = 65'537;
  const auto dataset = Open("rows.bin", Bytes(Count<std::uint32_t>(8, 65'529)));
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  EXPECT_THAT(Ids(*dataset, 1), ElementsAre(65'533, 65'534, 65'535, 65'536));
}

TEST_F(TokenDatasetTest, ABinOfTheOtherWidthIsToldApart) {
  std::vector<std::uint32_t> wide(64, 17);
  EXPECT_THAT(Refusal("rows.bin", Bytes(wide)), HasSubstr("seems to hold ids of 32 bits"));
  options_.vocab_size = 70'000;
  EXPECT_THAT(Refusal("rows.bin", Bytes(std::vector<std::uint16_t>(64, 17))),
              HasSubstr("outside the model's vocabulary"));
  EXPECT_THAT(Refusal("rows.bin", std::string(17, 'x')), HasSubstr("no multiple of the 4 bytes"));
}

TEST_F(TokenDatasetTest, AnIdOutsideTheVocabularyIsNamedByRowAndPosition) {
  std::vector<std::int32_t> ids(12, 5);
  ids[6] = 100;
  EXPECT_THAT(Refusal("rows.npy", Npy("<i4", "(3, 4)", Bytes(ids))),
              HasSubstr("rows.npy: row 1, position 2 (counted from 0): id 100 is outside the "
                        "model's vocabulary of 100"));
  ids[6] = -1;
  EXPECT_THAT(Refusal("rows.npy", Npy("<i4", "(3, 4)", Bytes(ids))), HasSubstr("id -1 is"));
}

TEST_F(TokenDatasetTest, AnIdThatTheLookAtTheStartMissesIsFoundWhenItsRowIsRead) {
  const std::int64_t rows = 1 << 18;
  std::vector<std::uint16_t> ids(static_cast<std::size_t>(rows) * 4, 5);
  ids[3001] = 100;  // in row 750, between the first two pages that Open looks at
  const auto dataset = Open("rows.npy", Npy("<u2", "(262144, 4)", Bytes(ids)));
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  std::vector<std::int64_t> row(4);
  std::vector<std::int64_t> labels(4);
  EXPECT_TRUE(dataset->Read(749, row, labels).ok());
  const Status status = dataset->Read(750, row, labels);
  EXPECT_THAT(status.message(), HasSubstr("row 750, position 1"));
  BatchLoader loader(*dataset, {}, {.shuffle = false}, 0);
  EXPECT_TRUE(loader.Get(749, 0).ok());
  EXPECT_EQ(loader.Get(750, 0).status(), status);
}

TEST_F(TokenDatasetTest, ArraysThatAreNoRowsOfIdsAreRefusedByName) {
  const std::string data = Bytes(Count<std::uint16_t>(12));
  EXPECT_THAT(Refusal("rows.npy", Npy("<u2", "(12,)", data)), HasSubstr("has 1 dimensions"));
  EXPECT_THAT(Refusal("rows.npy", Npy("<u2", "(3, 2, 2)", data)), HasSubstr("has 3 dimensions"));
  EXPECT_THAT(Refusal("rows.npy", Npy("<u2", "(3, 4)", data, true)), HasSubstr("Fortran order"));
  EXPECT_THAT(Refusal("rows.npy", Npy(">u2", "(3, 4)", data)), HasSubstr("type '>u2'"));
  EXPECT_THAT(Refusal("rows.npy", Npy("<f2", "(3, 4)", data)), HasSubstr("type '<f2'"));
  EXPECT_THAT(Refusal("rows.npy", Npy("<u2", "(0, 4)", "")), HasSubstr("has no rows"));
  EXPECT_THAT(Refusal("rows.npy", Npy("<u2", "(12, 1)", data)), HasSubstr("rows of one token"));
  EXPECT_THAT(Refusal("rows.npy", "not an array"), HasSubstr("rows.npy is no .npy file"));
  EXPECT_THAT(Refusal("rows.bin", "abcd"), HasSubstr("fewer than one row of 4"));
  EXPECT_THAT(Refusal("rows.bin", ""), HasSubstr("has no rows"));
}

TEST_F(TokenDatasetTest, AFileThatWasCutOffOrAddedToIsRefused) {
  const std::string whole = Npy("<u2", "(3, 4)", Bytes(Count<std::uint16_t>(12)));
  EXPECT_THAT(Refusal("rows.npy", whole.substr(0, whole.size() - 1)), HasSubstr("was cut off"));
  EXPECT_THAT(Refusal("rows.npy", whole + "x"), HasSubstr("added to"));
  const std::string huge = Npy("<u2", "(9223372036854775807, 9223372036854775807)", "ab");
  EXPECT_THAT(Refusal("rows.npy", huge), HasSubstr("was cut off"));
  EXPECT_THAT(Refusal("rows.npy", Npy("<u2", "(-3, 4)", "ab")), HasSubstr("was cut off"));
}

TEST_F(TokenDatasetTest, AFileThatShrinksDuringTrainingIsAnErrorAndNoSignal) {
  const auto dataset = Open("rows.bin", Bytes(Count<std::uint16_t>(16)));
  ASSERT_TRUE(dataset.ok());
  std::filesystem::resize_file(dir_ / "rows.bin", 20);
  std::vector<std::int64_t> ids(4);
  std::vector<std::int64_t> labels(4);
  EXPECT_TRUE(dataset->Read(1, ids, labels).ok());
  const Status status = dataset->Read(3, ids, labels);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("has become shorter"));
}

TEST_F(TokenDatasetTest, FingerprintsTellSizesShapesAndSampledIdsApart) {
  const auto ids = Count<std::uint16_t>(24);
  auto other = ids;
  other[23] = 7;
  const std::string wide = Npy("<u2", "(4, 6)", Bytes(ids));
  const auto mine = Open("rows.npy", Npy("<u2", "(6, 4)", Bytes(ids)))->Fingerprint();
  EXPECT_EQ(Open("same.npy", Npy("<u2", "(6, 4)", Bytes(ids)))->Fingerprint(), mine);
  EXPECT_NE(Open("rows.npy", Npy("<u2", "(6, 4)", Bytes(other)))->Fingerprint(), mine);
  EXPECT_NE(Open("rows.npy", wide)->Fingerprint(), mine);
}

TEST_F(TokenDatasetTest, AMissingFileAndADirectoryAreTold) {
  EXPECT_EQ(TokenDataset::Open(dir_ / "no.npy", options_).status().code(), StatusCode::kNotFound);
  std::filesystem::create_directory(dir_ / "dir.bin");
  EXPECT_EQ(TokenDataset::Open(dir_ / "dir.bin", options_).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TokenDatasetTest, APipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo((dir_ / "rows.npy").c_str(), 0600), 0);
  EXPECT_THAT(TokenDataset::Open(dir_ / "rows.npy", options_).status().message(),
              HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace muster
