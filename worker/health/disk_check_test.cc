#include "worker/health/disk_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

TEST(DiskCheck, ADirectoryThatCanBeWrittenIsFineAndStaysEmpty) {
  const TempDirForTest dir;
  EXPECT_EQ(CheckDisk(dir.path()), "");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(DiskCheck, AMissingDirectoryIsReported) {
  const TempDirForTest dir;
  EXPECT_THAT(CheckDisk(dir / "absent"), HasSubstr("cannot be written: No such file"));
}

TEST(DiskCheck, AFileSystemThatTakesNoFilesIsReported) { EXPECT_NE(CheckDisk("/proc/self"), ""); }

TEST(DiskCheck, JudgesByTheFileSystemsFigures) {
  constexpr std::uint64_t kTotal = 1 << 30;
  EXPECT_EQ(JudgeDisk("/d", false, kDiskFullBytes, kTotal), "");
  EXPECT_EQ(JudgeDisk("/d", false, kDiskFullBytes - 1, kTotal),
            "the disk of /d is full: 15 MiB are free");
  EXPECT_EQ(JudgeDisk("/d", true, kTotal, kTotal), "the disk of /d is read-only");
  EXPECT_EQ(JudgeDisk("/d", false, 0, 0), "") << "a file system that counts no blocks";
}

}  // namespace
}  // namespace muster::worker
