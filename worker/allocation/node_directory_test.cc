#include "worker/allocation/node_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/spawn.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// A copy of the shell by the name of one of our programs, with the directory among its arguments.
class NodeDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy_file("/bin/sh", temp_ / "muster-guardian");
    fs::create_directories(temp_ / "node");
  }
  void TearDown() override {
    for (const pid_t pid : started_) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  pid_t Start(const std::string& program, const std::string& script, const std::string& dir) {
    const auto pid = SpawnChild(
        {.argv = {program, "-c", script, "--dir", dir}, .environment = {"PATH=/usr/bin:/bin"}});
    EXPECT_TRUE(pid.ok()) << pid.status().ToString();
    started_.push_back(*pid);
    return *pid;
  }
  static bool Lives(pid_t pid) {
    const auto info = ReadProcess(pid);
    return info.ok() && info->state != 'Z';
  }

  TempDirForTest temp_;
  std::vector<pid_t> started_;
};

TEST_F(NodeDirectoryTest, EveryProcessOfTheNodeIsEndedAndNoOther) {
  const std::string dir = temp_ / "node";
  const pid_t guardian = Start(temp_ / "muster-guardian", "sleep 60; true", dir + "/jobs/1");
  const pid_t deaf = Start(temp_ / "muster-guardian", "trap '' TERM; sleep 60; sleep 60", dir);
  const pid_t beside = Start(temp_ / "muster-guardian", "sleep 60; true", dir + "2/jobs/1");
  const pid_t reader = Start("/bin/sh", "sleep 60; true", dir + "/jobs/1/log");
  EXPECT_EQ(EndProcessesOf(dir, std::chrono::milliseconds(200)), 0);
  EXPECT_FALSE(Lives(guardian));
  EXPECT_FALSE(Lives(deaf));
  EXPECT_TRUE(Lives(beside));
  EXPECT_TRUE(Lives(reader)) << "somebody who reads a log";
}

TEST_F(NodeDirectoryTest, ItIsMadeForItsUserAlone) {
  const auto dir = MakePrivateDirectory(temp_ / "muster-1000/7-0-n1");
  ASSERT_TRUE(dir.ok()) << dir.status().ToString();
  EXPECT_EQ(*dir, temp_ / "muster-1000/7-0-n1");
  for (const std::string& made : {*dir, temp_ / "muster-1000"})
    EXPECT_EQ(fs::status(made).permissions() & fs::perms::all, fs::perms::owner_all) << made;
}

// /tmp is shared: what lies there under the name may be another user's trap.
TEST_F(NodeDirectoryTest, WhatOthersCanEnterIsNotUsed) {
  const std::string parent = temp_ / "muster-1000";
  fs::create_directory(parent);
  ::chmod(parent.c_str(), 0777);
  const auto dir = MakePrivateDirectory(parent + "/7-0-n1");
  ASSERT_TRUE(dir.ok()) << dir.status().ToString();
  EXPECT_FALSE(dir->starts_with(parent + "/"));
  EXPECT_TRUE(fs::is_empty(parent));
  fs::remove(parent);
  fs::create_directory(temp_ / "elsewhere");
  fs::create_directory_symlink(temp_ / "elsewhere", parent);
  EXPECT_FALSE(MakePrivateDirectory(parent + "/7-0-n1")->starts_with(parent + "/"));
}

TEST_F(NodeDirectoryTest, WhatAnEarlierSupervisorLeftIsEndedAndRemoved) {
  const auto first = MakePrivateDirectory(temp_ / "muster-1000/7-0-n1");
  ASSERT_TRUE(first.ok());
  std::ofstream(*first + "/key") << "old";
  const pid_t guardian = Start(temp_ / "muster-guardian", "sleep 60; true", *first + "/jobs/1");
  ASSERT_EQ(MakePrivateDirectory(temp_ / "muster-1000/7-0-n1").value(), *first);
  EXPECT_TRUE(fs::is_empty(*first));
  EXPECT_FALSE(Lives(guardian));
}

}  // namespace
}  // namespace muster::worker
