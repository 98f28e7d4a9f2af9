#include "trainer/data/cache_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "trainer/data/token_cache.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFiles = 3;

class CacheFolderTest : public ::testing::Test {
 protected:
  // As if it had not been used or changed for so long.
  static void Age(const std::string& path, std::time_t hours) {
    const timespec then = {.tv_sec = ::time(nullptr) - hours * 3600, .tv_nsec = 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  // An entry of one row, last used so long ago.
  std::string AddEntry(int number, std::time_t hours, std::uint64_t files = kFiles) const {
    const std::string path = dir_ / (std::to_string(number) + ".tokens");
    auto writer = TokenCacheWriter::Create(path, {.key = 1, .files = files});
    EXPECT_TRUE(writer.ok() && (*writer)->Finish({}).ok());
    Age(path, hours);
    return path;
  }
  UniqueFd Lock(const std::string& path, int how) const {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_EQ(::flock(fd.get(), how | LOCK_NB), 0);
    return fd;
  }
  // A file of a process of this host that is gone.
  std::string AddTemporary() const {
    std::string path = TemporaryEntryName(dir_ / "9.tokens");
    EXPECT_TRUE(WriteFileAtomically(path, "").ok());
    return path;
  }

  TempDirForTest dir_;
};

TEST_F(CacheFolderTest, TheFourThatWereUsedLastAreKept) {
  std::vector<std::string> entries;
  for (int i = 0; i < 6; ++i) entries.push_back(AddEntry(i, 10 + i));
  const std::string others = AddEntry(7, 100, kFiles + 1);
  RemoveOldEntries(dir_.path(), kFiles);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(fs::exists(entries[static_cast<std::size_t>(i)]), i < 4) << i;
  EXPECT_TRUE(fs::exists(others));
}

// Removed under a job's feet it gave ESTALE, or was tokenized at every start of five jobs.
TEST_F(CacheFolderTest, WhatIsInUseIsKeptHoweverLongAgoItWasOpened) {
  std::vector<std::string> entries;
  for (int i = 0; i < 6; ++i) entries.push_back(AddEntry(i, 10 + i));
  const UniqueFd reader = Lock(entries[5], LOCK_SH);
  // As another host's reader does, whose lock may not be seen here.
  const UniqueFd other(::open(entries[4].c_str(), O_RDONLY | O_CLOEXEC));
  const auto written = fs::last_write_time(entries[4]);
  MarkUsed(other.get());
  EXPECT_EQ(fs::last_write_time(entries[4]), written);
  RemoveOldEntries(dir_.path(), kFiles);
  EXPECT_TRUE(fs::exists(entries[5]));
  EXPECT_TRUE(fs::exists(entries[4]));
  EXPECT_FALSE(fs::exists(entries[3])) << "that one is the fifth now";
}

TEST_F(CacheFolderTest, AFileThatIsBeingWrittenIsLeftAlone) {
  const std::string mine = AddTemporary();
  const UniqueFd writer = Lock(mine, LOCK_EX);
  const std::string left = AddTemporary();
  const std::string others = dir_.Write("9.tokens.tmp.other-host.7.abcdef", "x");
  const std::string old = dir_.Write("9.tokens.tmp.other-host.7.ghijkl", "x");
  Age(old, 4);
  RemoveLeftovers(dir_.path());
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_FALSE(fs::exists(left)) << "no process on this host has it in hand";
  EXPECT_TRUE(fs::exists(others)) << "its lock may not be seen here";
  EXPECT_FALSE(fs::exists(old));
}

TEST_F(CacheFolderTest, LocksGoWithTheirEntriesAndHashesWithTime) {
  AddEntry(1, 0);
  const std::string kept = dir_.Write("1.tokens.lock", "");
  const std::string gone = dir_.Write("2.tokens.lock", "");
  const std::string young = dir_.Write("3.tokens.lock2", "");
  Age(kept, 4);
  Age(gone, 4);
  const std::string asked = dir_.Write("files-1-host.hashes", "");
  const std::string forgotten = dir_.Write("files-2-host.hashes", "");
  Age(asked, 29 * 24);
  Age(forgotten, 31 * 24);
  RemoveLeftovers(dir_.path());
  EXPECT_TRUE(fs::exists(asked));
  EXPECT_FALSE(fs::exists(forgotten));
  EXPECT_TRUE(fs::exists(kept));
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(fs::exists(young));
}

}  // namespace
}  // namespace muster
