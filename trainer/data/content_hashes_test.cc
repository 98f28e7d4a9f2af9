#include "trainer/data/content_hashes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ContentHashesTest : public ::testing::Test {
 protected:
  std::vector<FileContent> Hash() {
    reads_ = 0;
    auto files = HashFiles({first_, second_}, memory_, {.on_read = [this] { ++reads_; }});
    EXPECT_TRUE(files.ok()) << files.status().ToString();
    return *std::move(files);
  }

  TempDirForTest dir_;
  const std::string first_ = dir_.Write("a.jsonl", "first");
  const std::string second_ = dir_.Write("b.jsonl", "second");
  HashMemory memory_{.path = dir_ / "x.hashes", .settled = Duration::zero()};
  int reads_ = 0;  // of parts of files
};

TEST_F(ContentHashesTest, WhatHasNotChangedIsNotReadAgain) {
  const std::vector<FileContent> before = Hash();
  EXPECT_EQ(reads_, 2);
  EXPECT_NE(before[0].hash, before[1].hash);
  EXPECT_EQ(Hash(), before);
  EXPECT_EQ(reads_, 0);
  // As many bytes, and the time that it had.
  const auto written = std::filesystem::last_write_time(second_);
  do {  // until the file system's clock has moved on
    dir_.Write("b.jsonl", "SECOND");
    std::filesystem::last_write_time(second_, written);
  } while (IdentityOf(second_)->changed_ns == before[1].identity.changed_ns);
  const std::vector<FileContent> after = Hash();
  EXPECT_EQ(reads_, 1);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1].hash, before[1].hash);
  EXPECT_EQ(Hash(), after);
  EXPECT_EQ(reads_, 0);
}

// A second change within the same tick of the clock would not show.
TEST_F(ContentHashesTest, WhatHasChangedJustNowIsNotRemembered) {
  memory_.settled = std::chrono::hours(1);
  Hash();
  Hash();
  EXPECT_EQ(reads_, 2);
  EXPECT_FALSE(std::filesystem::exists(memory_.path));
}

TEST_F(ContentHashesTest, AMemoryThatIsDamagedIsNotBelieved) {
  const std::vector<FileContent> before = Hash();
  const std::string whole = *ReadFile(memory_.path);
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = damaged[at] == '1' ? '2' : '1';
    std::ofstream(memory_.path) << damaged;
    EXPECT_EQ(Hash(), before) << "byte " << at;
    EXPECT_EQ(reads_, 2) << "byte " << at;
    EXPECT_EQ(*ReadFile(memory_.path), whole) << "byte " << at;
  }
}

TEST_F(ContentHashesTest, AFolderThatIsNotThereIsDoneWithout) {
  const std::vector<FileContent> before = Hash();
  memory_.path = dir_ / "no/x.hashes";
  EXPECT_EQ(Hash(), before);
  memory_.path.clear();
  EXPECT_EQ(Hash(), before);
  EXPECT_EQ(reads_, 2);
}

TEST_F(ContentHashesTest, AFileThatChangesWhileItIsReadIsToldSo) {
  const auto files = HashFiles(
      {first_}, memory_, {.on_read = [this] { std::ofstream(first_, std::ios::app) << "more"; }});
  EXPECT_EQ(files.status().code(), StatusCode::kAborted);
  EXPECT_THAT(files.status().message(), HasSubstr("a.jsonl has changed"));
  EXPECT_EQ(HashFiles({dir_ / "no"}, memory_, {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
