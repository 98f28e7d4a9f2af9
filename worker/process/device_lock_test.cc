#include "worker/process/device_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(SharedLockDirectory, IsTheFirstThatEveryUserMayWriteTo) {
  const TempDirForTest dir;
  const std::string root = dir / "";
  EXPECT_THAT(SharedLockDirectory(root).status().message(), HasSubstr("--device-locks DIR"));
  for (const char* name : {"run/lock", "dev/shm", "tmp"}) fs::create_directories(dir / name);
  EXPECT_FALSE(SharedLockDirectory(root).ok()) << "they are their owner's";
  ::chmod((dir / "tmp").c_str(), 01777);
  EXPECT_EQ(SharedLockDirectory(root).value(), dir / "tmp");
  ::chmod((dir / "dev/shm").c_str(), 0777);
  EXPECT_EQ(SharedLockDirectory(root).value(), dir / "tmp") << "anybody may remove others' files";
  ::chmod((dir / "dev/shm").c_str(), 01777);
  ::chmod((dir / "run/lock").c_str(), 01777);
  EXPECT_EQ(SharedLockDirectory(root).value(), dir / "run/lock");
}

class DeviceLockTest : public testing::Test {
 protected:
  std::string Refused() const {
    const Result<UniqueFd> lock = OpenDeviceLock(dir_.path(), "GPU-1");
    return lock.ok() ? "" : lock.status().message();
  }
  DeviceHolder Holder(const std::string& record) const {
    std::ofstream(path_) << record;
    return HolderOf(OpenDeviceLock(dir_.path(), "GPU-1").value(), dir_ / "jobs");
  }

  const TempDirForTest dir_;
  const std::string path_ = DeviceLockPath(dir_.path(), "GPU-1");
};

TEST_F(DeviceLockTest, IsForAllUsersWhateverTheUmask) {
  const mode_t before = ::umask(077);
  EXPECT_EQ(Refused(), "");
  ::umask(before);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0666));
  EXPECT_EQ(Refused(), "");
}

TEST_F(DeviceLockTest, WhatAnotherUserMayHavePutThereIsRefused) {
  const std::string victim = dir_.Write("victim", "precious");
  ASSERT_EQ(::symlink(victim.c_str(), path_.c_str()), 0);
  EXPECT_NE(Refused(), "");
  fs::remove(path_);
  ASSERT_EQ(::link(victim.c_str(), path_.c_str()), 0);
  EXPECT_THAT(Refused(), HasSubstr("no file of its own"));
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0666), 0);
  EXPECT_THAT(Refused(), HasSubstr("no file of its own"));
  EXPECT_EQ(ReadFile(victim).value(), "precious");
}

TEST_F(DeviceLockTest, ADirectoryThatIsNotThereIsNotMade) {
  EXPECT_FALSE(OpenDeviceLock(dir_ / "absent", "GPU-1").ok());
  EXPECT_FALSE(fs::exists(dir_ / "absent"));
}

TEST_F(DeviceLockTest, SaysWhichJobHasItAndWhetherThatIsOfThisNode) {
  const std::string guardian =
      "(guardian " + std::to_string(::getpid()) + ", or a process that it left)";
  EXPECT_EQ(Holder(HolderRecord("0123")).text, "job 0123 of another worker " + guardian);
  EXPECT_FALSE(Holder(HolderRecord("0123")).is_here);
  fs::create_directories(dir_ / "jobs/0123");
  EXPECT_EQ(Holder(HolderRecord("0123")).text, "job 0123 " + guardian);
  EXPECT_TRUE(Holder(HolderRecord("0123")).is_here);
  for (const std::string text : {"", "0123", "0123 ", "../jobs 1", "0123 1; rm", ".. 7"}) {
    EXPECT_EQ(Holder(text).text, "another process") << text;
    EXPECT_FALSE(Holder(text).is_here) << text;
  }
}

}  // namespace
}  // namespace muster
