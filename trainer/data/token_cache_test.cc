#include "trainer/data/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/data/testing/text_files_testing.h"
#include "trainer/data/text_dataset.h"
#include "trainer/data/verified_mark.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kKey = 77;
constexpr std::uint64_t kFiles = 5;

class TokenCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    text_ = dir_.Write("rows.jsonl", NumberedRows(0, 300));
    const TextOptions options{.max_seq_len = 40, .vocab_size = 256};
    const auto writer = TokenCacheWriter::Create(entry_, {kKey, kFiles});
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    ASSERT_TRUE(EncodeFiles({text_}, ByteTokenizer(), options, {}, [&](const EncodedRows& rows) {
                  return (*writer)->Add(rows);
                }).ok());
    EXPECT_FALSE(std::filesystem::exists(entry_)) << "before it is whole";
    ASSERT_TRUE((*writer)->Finish({}).ok());
    in_memory_.emplace(*TextDataset::Load({text_}, ByteTokenizer(), options));
  }

  Result<std::unique_ptr<const CachedDataset>> Open(std::uint64_t key = kKey) const {
    auto opened = CachedDataset::Open(entry_, key, 256, {text_});
    if (opened.ok()) MUSTER_RETURN_IF_ERROR((*opened)->Verify({}));
    return opened;
  }

  TempDirForTest dir_;
  std::string entry_ = dir_ / "rows.tokens";
  std::string text_;
  std::optional<TextDataset> in_memory_;
};

TEST_F(TokenCacheTest, HoldsWhatMemoryWouldHold) {
  const auto cached = Open();
  ASSERT_TRUE(cached.ok()) << cached.status().ToString();
  EXPECT_EQ((*cached)->stats(), in_memory_->stats());
  EXPECT_GT((*cached)->stats().truncated, 0);
  EXPECT_EQ((*cached)->Fingerprint(), in_memory_->Fingerprint());
  EXPECT_EQ(RowsOf(**cached), RowsOf(*in_memory_));
  for (std::int64_t row = 0; row < in_memory_->size(); ++row)
    ASSERT_EQ((*cached)->LabelCount(row), in_memory_->LabelCount(row));
  const std::vector<std::int64_t> rows = {0, 299, 1};
  EXPECT_EQ((*cached)->Describe(rows), "lines 1-2, 300 of rows.jsonl");
}

// It was readable by all, whatever the user had forbidden.
TEST_F(TokenCacheTest, AnEntryHasTheRightsThatTheUmaskLeaves) {
  for (const mode_t hidden : {mode_t{0077}, mode_t{0027}, mode_t{0022}}) {
    const std::string path = dir_ / std::to_string(hidden) + ".tokens";
    const mode_t before = ::umask(hidden);
    const auto writer = TokenCacheWriter::Create(path, {kKey, kFiles});
    ::umask(before);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    ASSERT_TRUE((*writer)->Finish({}).ok());
    struct stat info = {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777u, 0644u & ~hidden);
  }
}

// Whichever byte has changed: of the header, the tokens, or the index.
TEST_F(TokenCacheTest, EveryDamageIsNoticed) {
  const std::string whole = *ReadFile(entry_);
  for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(entry_, std::ios::binary) << damaged;
    EXPECT_EQ(Open().status().code(), StatusCode::kDataLoss) << "byte " << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{50}, whole.size() - 1}) {
    std::ofstream(entry_, std::ios::binary) << whole.substr(0, size);
    EXPECT_EQ(Open().status().code(), StatusCode::kDataLoss) << "of " << size << " bytes";
  }
  std::ofstream(entry_, std::ios::binary) << whole;
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(Open(kKey + 1).status().message(), HasSubstr("another key"));
}

TEST_F(TokenCacheTest, AnEntryThatShrinksWhileItIsUsedIsAnErrorOfItsRow) {
  const auto cached = Open();
  ASSERT_TRUE(cached.ok());
  EXPECT_TRUE((*cached)->Check().ok());
  std::filesystem::resize_file(entry_, 1000);
  EXPECT_THAT((*cached)->Check().message(), HasSubstr("changed its size"));
  std::vector<std::int64_t> ids(static_cast<std::size_t>((*cached)->Length(290)));
  std::vector<std::int64_t> labels(ids.size());
  const Status read = (*cached)->Read(290, ids, labels);
  // Not kDataLoss, which would be reported as bad input and end the job for good.
  EXPECT_EQ(read.code(), StatusCode::kUnavailable);
  EXPECT_THAT(read.message(), HasSubstr(entry_));
}

TEST_F(TokenCacheTest, AnEntryThatSomebodyRemovedOrDamagedIsToldByALookOrByItsRow) {
  const auto cached = Open();
  ASSERT_TRUE(cached.ok());
  std::string damaged = *ReadFile(entry_);
  // The first tokens' upper bytes; the header has less than 100.
  for (std::size_t at = 100; at < 200; ++at) damaged[at] = 0x7f;
  {
    std::fstream file(entry_, std::ios::binary | std::ios::in | std::ios::out);
    file << damaged;
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>((*cached)->Length(1)));
  std::vector<std::int64_t> labels(ids.size());
  const VerifiedMark mark(entry_);
  mark.Set((*cached)->identity());
  EXPECT_TRUE(mark.Holds((*cached)->identity()));
  EXPECT_EQ((*cached)->Read(1, ids, labels).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(mark.Holds((*cached)->identity())) << "or the next attempt would trust it again";
  EXPECT_TRUE((*cached)->Check().ok()) << "as far as a look shows";
  std::filesystem::remove(entry_);
  EXPECT_THAT((*cached)->Check().message(), HasSubstr("was removed"));
}

TEST_F(TokenCacheTest, AnEntryTellsWhichFilesItWasMadeOf) {
  const auto id = ReadEntryId(entry_);
  ASSERT_TRUE(id);
  EXPECT_EQ(id->key, kKey);
  EXPECT_EQ(id->files, kFiles);
  std::filesystem::resize_file(entry_, 60);
  EXPECT_FALSE(ReadEntryId(entry_));
  EXPECT_FALSE(ReadEntryId(text_));
}

TEST_F(TokenCacheTest, AWriterThatIsGivenUpLeavesNothing) {
  std::filesystem::remove(entry_);
  { const auto writer = TokenCacheWriter::Create(entry_, {kKey, kFiles}); }
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir_.path()))
    files += file.path() != text_ ? 1 : 0;
  EXPECT_EQ(files, 0);
}

}  // namespace
}  // namespace muster
