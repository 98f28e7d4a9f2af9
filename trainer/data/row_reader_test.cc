#include "trainer/data/row_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "trainer/data/byte_source.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Rows = std::vector<std::pair<std::string, std::int64_t>>;

class RowReaderTest : public ::testing::Test {
 protected:
  // Text and line of every row; the status of the first that fails.
  Result<Rows> Read(const std::string& name, const std::string& content) {
    return ReadFile(dir_.Write(name, content));
  }
  static Result<Rows> ReadFile(const std::string& path, std::size_t max_row_bytes = kMaxRowBytes) {
    MUSTER_ASSIGN_OR_RETURN(const auto reader, RowReader::Open(path, max_row_bytes));
    Rows rows;
    for (RawRow row;;) {
      MUSTER_ASSIGN_OR_RETURN(const bool any, reader->Next(&row));
      if (!any) return rows;
      rows.emplace_back(row.text, row.line);
    }
  }
  std::string Compress(const std::string& name, const std::string& content) {
    const std::string path = dir_ / name;
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())),
              static_cast<int>(content.size()));
    gzclose(file);
    return path;
  }

  TempDirForTest dir_;
};

TEST_F(RowReaderTest, ReadsLinesWithTheirNumbers) {
  EXPECT_THAT(*Read("a.jsonl", "\xef\xbb\xbf{1}\r\n\n  \n{2}"),
              ElementsAre(Pair("{1}\r", 1), Pair("{2}", 4)));
  EXPECT_THAT(*Read("b.jsonl", ""), ElementsAre());
}

TEST_F(RowReaderTest, ReadsLinesThatAreLongerThanABuffer) {
  const std::string long_row(700'000, 'x');
  EXPECT_THAT(*Read("a.jsonl", "a\n" + long_row + "\nb\n"),
              ElementsAre(Pair("a", 1), Pair(long_row, 2), Pair("b", 3)));
}

TEST_F(RowReaderTest, ReadsTheElementsOfAnArray) {
  EXPECT_THAT(
      *Read("a.json", "\xef\xbb\xbf [\n {\"a\": \"}],\\\"{\"},\n\n {\"b\":\n [1, {}]}\n]\n"),
      ElementsAre(Pair("{\"a\": \"}],\\\"{\"}", 2), Pair("{\"b\":\n [1, {}]}", 4)));
  EXPECT_THAT(*Read("b.json", "[]"), ElementsAre());
  EXPECT_THAT(*Read("c.json", "[7, \"x\"]"), ElementsAre(Pair("7", 1), Pair("\"x\"", 1)));
}

TEST_F(RowReaderTest, ReadsObjectsWithNothingBetween) {
  EXPECT_THAT(*Read("a.json", "{\"a\": 1}\n{\"b\": 2}\n"),
              ElementsAre(Pair("{\"a\": 1}", 1), Pair("{\"b\": 2}", 2)));
}

TEST_F(RowReaderTest, AnArrayThatIsNotWholeIsNamedByLine) {
  const auto refusal = [this](const std::string& content) {
    return Read("a.json", content).status().message();
  };
  EXPECT_THAT(refusal("[\n{\"a\": 1},\n{\"b\": \"x"),
              HasSubstr("a.json:3: the row that begins here"));
  EXPECT_THAT(refusal("[\n{\"a\": 1},\n"), HasSubstr("the array of rows does not end"));
  EXPECT_THAT(refusal("[{\"a\": 1}\n{\"b\": 2}]"), HasSubstr("a.json:2: there is no comma"));
  EXPECT_THAT(refusal("[{\"a\": 1}]\n[]"), HasSubstr("a.json:2: something stands after the end"));
}

TEST_F(RowReaderTest, ReadsCompressedFilesAndTellsOnesThatAreCutOff) {
  std::string rows;
  for (int i = 0; i < 50'000; ++i)
    rows += "{\"text\": \"" + std::to_string(std::int64_t{i} * i) + "\"}\n";
  const std::string whole = Compress("a.jsonl.gz", rows);
  const auto read = ReadFile(whole);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->size(), 50'000u);
  EXPECT_EQ(read->back().first,
            "{\"text\": \"" + std::to_string(49'999 * std::int64_t{49'999}) + "\"}");
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) / 2);
  const Status cut = ReadFile(whole).status();
  EXPECT_EQ(cut.code(), StatusCode::kDataLoss);
  EXPECT_THAT(cut.message(), HasSubstr("is cut off"));
}

// It was an error of the disk, for which a job is tried again and again, and of the line after.
TEST_F(RowReaderTest, ARowThatIsTooLongIsBadInputAndNamedByItsLine) {
  const std::string long_row = "{" + std::string(600'000, ' ') + "}";
  for (const char* const name : {"a.jsonl", "a.json"}) {
    const std::string path = dir_.Write(name, "{}\n{}\n" + long_row + "\n{}\n");
    EXPECT_TRUE(ReadFile(path, long_row.size()).ok()) << name;
    const Status refused = ReadFile(path, 500'000).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(refused.message(), HasSubstr(std::string(name) + ":3: "));
    EXPECT_THAT(refused.message(), HasSubstr("longer than 500000 bytes"));
  }
}

TEST_F(RowReaderTest, AFileThatIsCutWithinALineIsNamedByThatLine) {
  std::string noise;
  for (std::uint32_t i = 1, draw = 1; i < 100'000; ++i) {
    draw = draw * 1'664'525 + 1'013'904'223;
    noise += static_cast<char>('a' + (draw >> 24) % 26);
  }
  const std::string path = Compress("a.jsonl.gz", "1\n2\n" + noise + "\n4\n");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(ReadFile(path).status().message(), HasSubstr("a.jsonl.gz:3: "));
}

TEST_F(RowReaderTest, WhatIsNoFileIsRefused) {
  EXPECT_EQ(RowReader::Open(dir_ / "no.jsonl").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RowReader::Open(dir_.path()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
