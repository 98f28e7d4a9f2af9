#include "trainer/data/encode_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/testing/temp_dir.h"
#include "trainer/data/testing/text_files_testing.h"
#include "trainer/data/text_dataset.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

const TextOptions kOptions{.vocab_size = 256};

TEST(EncodeFiles, TheOrderIsThatOfTheFilesWhateverTheNumberOfThreads) {
  const TempDirForTest dir;
  const std::vector<std::string> paths = {
      dir.Write("b.jsonl", NumberedRows(0, 1000)), dir.Write("empty.jsonl", "\n"),
      dir.Write("a.jsonl", NumberedRows(1000, 700)), dir.Write("c.json", NumberedRows(1700, 3))};
  const Tokenizer tokenizer = ByteTokenizer();
  const auto one = TextDataset::Load(paths, tokenizer, kOptions);
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  ASSERT_EQ(one->size(), 1703);
  EXPECT_EQ(tokenizer.Decode(one->Ids(1702)).substr(0, 5), "1702 ");
  for (const int threads : {2, 5}) {
    const auto several = TextDataset::Load(paths, tokenizer, kOptions, {.threads = threads});
    ASSERT_TRUE(several.ok());
    EXPECT_EQ(several->Fingerprint(), one->Fingerprint());
    EXPECT_EQ(several->stats(), one->stats());
    const std::vector<std::int64_t> rows = {999, 1000, 1702};
    EXPECT_EQ(several->Describe(rows), "line 1000 of b.jsonl, line 1 of a.jsonl, line 3 of c.json");
  }
}

TEST(EncodeFiles, OfSeveralBadRowsTheFirstIsTold) {
  const TempDirForTest dir;
  const std::string path =
      dir.Write("a.jsonl", NumberedRows(0, 900) + "{\"text\": 7}\n" + NumberedRows(901, 900) +
                               "{broken\n" + NumberedRows(0, 900));
  for (const int threads : {1, 4}) {
    const auto read = TextDataset::Load({path}, ByteTokenizer(), kOptions, {.threads = threads});
    EXPECT_THAT(read.status().message(), HasSubstr("a.jsonl:901: \"text\" is a number"));
  }
}

TEST(EncodeFiles, ABadRowBeforeTheEndOfACutFileIsToldFirst) {
  const TempDirForTest dir;
  const std::string path = dir.Write("a.json", "[{\"text\": 7},\n{\"text\": \"abc");
  EXPECT_THAT(TextDataset::Load({path}, ByteTokenizer(), kOptions).status().message(),
              HasSubstr("a.json:1: \"text\" is a number"));
}

TEST(EncodeFiles, WhoTakesTheRowsMayEndIt) {
  const TempDirForTest dir;
  const std::string path = dir.Write("a.jsonl", NumberedRows(0, 2000));
  int taken = 0;
  const Status status =
      EncodeFiles({path}, ByteTokenizer(), kOptions, {.threads = 3}, [&](const EncodedRows& rows) {
        EXPECT_EQ(rows.stats.rows, 256);
        return ++taken == 2 ? ResourceExhausted("enough") : OkStatus();
      });
  EXPECT_EQ(status, ResourceExhausted("enough"));
  EXPECT_EQ(taken, 2);
}

}  // namespace
}  // namespace muster
