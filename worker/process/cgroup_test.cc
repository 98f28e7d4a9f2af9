#include "worker/process/cgroup.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

constexpr char kUnifiedMount[] =
    "22 1 0:20 / /proc rw - proc proc rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

TEST(Cgroup, FindsItsOwnDirectory) {
  EXPECT_EQ(OwnCgroupDirectory(kUnifiedMount, "0::/user.slice/a.scope\n"),
            "/sys/fs/cgroup/user.slice/a.scope");
  EXPECT_EQ(OwnCgroupDirectory(kUnifiedMount, "0::/\n"), "/sys/fs/cgroup");
  EXPECT_EQ(OwnCgroupDirectory(kUnifiedMount, "4:memory:/x\n0::/y\n"), "/sys/fs/cgroup/y");
}

TEST(Cgroup, HasNoneWithoutAUsableHierarchy) {
  EXPECT_EQ(OwnCgroupDirectory("22 1 0:20 / /proc rw - proc proc rw\n", "0::/\n"), "");
  EXPECT_EQ(OwnCgroupDirectory(kUnifiedMount, "4:memory:/x\n"), "");
  EXPECT_EQ(OwnCgroupDirectory(kUnifiedMount, "0::/../outside\n"), "");
  // A container's view of a subtree.
  EXPECT_EQ(OwnCgroupDirectory("30 22 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 c rw\n",
                               "0::/docker/1\n"),
            "");
}

TEST(Cgroup, CountsTheKillsForMemoryOfTheNearestGroupThatHasACount) {
  const TempDirForTest dir;
  std::filesystem::create_directories(dir / "job/rank");
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  };
  write(dir / "memory.events", "low 0\noom 5\noom_kill 4\n");
  const std::string outer = FindMemoryEvents(dir / "job/rank");
  EXPECT_EQ(outer, dir / "memory.events");
  EXPECT_EQ(ReadOomKills(outer), 4);
  write(dir / "job/memory.events", "low 0\noom 1\noom_kill 1\noom_group_kill 0\n");
  const std::string inner = FindMemoryEvents(dir / "job/rank");
  EXPECT_EQ(ReadOomKills(inner), 1);
  write(dir / "job/memory.events", "low 0\noom 2\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(ReadOomKills(inner), 2);
}

TEST(Cgroup, CountsNothingWhereTheKernelDoesNot) {
  EXPECT_EQ(FindMemoryEvents("/muster-never-made/job"), "");
  EXPECT_EQ(ReadOomKills(""), 0);
  EXPECT_EQ(ReadOomKills("/muster-never-made/memory.events"), 0);
}

TEST(Cgroup, TheLeastLimitOfMemoryAboveAProcessCounts) {
  const TempDirForTest dir;
  std::filesystem::create_directories(dir / "job/rank");
  EXPECT_EQ(MemoryLimit(dir / "job/rank"), 0u);
  std::ofstream(dir / "job/rank/memory.max") << "max\n";
  EXPECT_EQ(MemoryLimit(dir / "job/rank"), 0u);
  std::ofstream(dir / "job/memory.max") << "1000\n";
  std::ofstream(dir / "memory.max") << "2000\n";
  EXPECT_EQ(MemoryLimit(dir / "job/rank"), 1000u);
  std::ofstream(dir / "job/rank/memory.max") << "900\n";
  EXPECT_EQ(MemoryLimit(dir / "job/rank"), 900u);
}

TEST(Cgroup, RemovesItsDirectoryAtTheEnd) {
  std::string path;
  {
    const auto cgroup = MakeCgroup("muster-test-" + std::to_string(::getpid()));
    path = cgroup->path();
    EXPECT_EQ(path.empty(), cgroup->procs_fd() < 0);
    EXPECT_TRUE(cgroup->KillAll().ok());
  }
  struct stat info {};
  EXPECT_TRUE(path.empty() || ::stat(path.c_str(), &info) != 0) << path;
}

// A hierarchy of plain files, in which the kernel has made the files of the job's cgroup.
class FakeHierarchyTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* file : {"unit/cgroup.subtree_control", "unit/job/cgroup.procs",
                             "unit/job/cgroup.kill", "unit/muster-daemons/cgroup.procs"})
      Write(file, "");
  }
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / file).parent_path());
    std::ofstream(dir_ / file) << text;
  }
  std::string Read(const std::string& file) const { return ReadFile(dir_ / file).value(); }

  const TempDirForTest dir_;
};

TEST_F(FakeHierarchyTest, LimitsMemoryBesideTheLeafOfTheDaemons) {
  for (const char* file : {"unit/job/memory.max", "unit/job/memory.swap.max"}) Write(file, "max");
  const auto cgroup = MakeCgroup("job", dir_ / "unit/muster-daemons");
  ASSERT_EQ(cgroup->path(), dir_ / "unit/job");
  EXPECT_EQ(Read("unit/cgroup.subtree_control"), "+memory");
  EXPECT_TRUE(cgroup->LimitMemory(5'000'000'000).ok());
  EXPECT_EQ(Read("unit/job/memory.max"), "5000000000");
  EXPECT_EQ(Read("unit/job/memory.swap.max"), "0");
  EXPECT_TRUE(cgroup->LimitMemory(0).ok());
  EXPECT_EQ(Read("unit/job/memory.max"), "max");
  EXPECT_EQ(Read("unit/job/memory.swap.max"), "max");
}

TEST_F(FakeHierarchyTest, LimitsMemoryWithoutSwap) {
  Write("unit/job/memory.max", "max");
  EXPECT_TRUE(MakeCgroup("job", dir_ / "unit")->LimitMemory(4096).ok());
  EXPECT_EQ(Read("unit/job/memory.max"), "4096");
}

TEST_F(FakeHierarchyTest, SaysThatItLimitsNothingWithoutTheController) {
  const auto cgroup = MakeCgroup("job", dir_ / "unit");
  EXPECT_EQ(cgroup->LimitMemory(4096).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(cgroup->LimitMemory(0).ok());
  EXPECT_EQ(MakeCgroup("job", "")->LimitMemory(4096).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(MakeNoopCgroup()->LimitMemory(0).ok());
}

TEST(Cgroup, AnAbandonedOneThatIsGoneIsNoError) {
  EXPECT_TRUE(EndAbandonedCgroup("").ok());
  EXPECT_TRUE(EndAbandonedCgroup("/sys/fs/cgroup/muster-never-made").ok());
}

}  // namespace
}  // namespace muster
