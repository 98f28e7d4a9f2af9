#include "cli/base/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }

class ProcessesTest : public testing::Test {
 protected:
  ~ProcessesTest() override {
    for (const ProcessId& id : started_) SignalProcess(id, SIGKILL);
    EXPECT_TRUE(WaitUntilGone(started_, Soon()).empty());
  }

  ProcessId Start(const std::vector<std::string>& argv) {
    const auto id = StartDaemon(argv, dir_ + "/log");
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    started_.push_back(*id);
    return *id;
  }

  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
  std::vector<ProcessId> started_;
};

TEST_F(ProcessesTest, ADaemonIsDetachedAndLogs) {
  // Lists its descriptors: 0, 1, 2 and the one that ls opens for the listing.
  const ProcessId id = Start({"/bin/sh", "-c", "ps -o sid= -p $$; echo $$; ls /proc/self/fd"});
  EXPECT_TRUE(WaitUntilGone({id}, Soon()).empty());
  const std::vector<std::string> lines = TailOfFile(dir_ + "/log", 100);
  const auto has = [&](const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  EXPECT_TRUE(has(std::to_string(id.pid)));
  EXPECT_TRUE(has("2"));
  EXPECT_FALSE(has("4"));
}

TEST_F(ProcessesTest, AMissingProgramIsAnError) {
  EXPECT_EQ(StartDaemon({dir_ + "/none"}, dir_ + "/log").status().code(), StatusCode::kNotFound);
}

TEST_F(ProcessesTest, SignalsOnlyTheProcessItMeans) {
  const ProcessId id = Start({"/bin/sleep", "1000"});
  EXPECT_TRUE(IsAlive(id));
  const ProcessId other{id.pid, id.start_time + 1};
  EXPECT_FALSE(IsAlive(other));
  EXPECT_FALSE(SignalProcess(other, SIGKILL));
  EXPECT_EQ(WaitUntilGone({id}, Deadline::At(TimePoint{})), std::vector<ProcessId>{id});
  EXPECT_TRUE(SignalProcess(id, SIGTERM));
  EXPECT_TRUE(WaitUntilGone({id}, Soon()).empty());
  EXPECT_FALSE(IsAlive(id));
}

TEST_F(ProcessesTest, FindsGrandchildren) {
  const ProcessId id = Start({"/bin/sh", "-c", "sleep 1000 & echo up; wait"});
  const Deadline deadline = Soon();
  while (TailOfFile(dir_ + "/log", 1).empty()) ASSERT_FALSE(deadline.Expired());
  const std::vector<ProcessId> children = Descendants(id);
  ASSERT_EQ(children.size(), 1u);
  EXPECT_NE(children[0].pid, id.pid);
  started_.push_back(children[0]);
}

TEST_F(ProcessesTest, APidFileCountsOnlyWhileItIsLocked) {
  const std::string path = dir_ + "/pid";
  EXPECT_FALSE(LockedPidFileOwner(path).has_value());
  ASSERT_TRUE(WriteFileAtomically(path, std::to_string(::getpid()) + "\n").ok());
  EXPECT_FALSE(LockedPidFileOwner(path).has_value());
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  const auto owner = LockedPidFileOwner(path);
  ASSERT_TRUE(owner.has_value());
  EXPECT_EQ(owner->pid, ::getpid());
}

TEST_F(ProcessesTest, FindsMustersProgramsByTheirDirectoryAndNoOthers) {
  fs::create_directory(dir_ + "/cluster");
  fs::copy_file(fs::canonical("/bin/sh"), dir_ + "/muster-shell");
  const std::string wait = "read -r line < " + dir_ + "/fifo";
  ASSERT_EQ(::mkfifo((dir_ + "/fifo").c_str(), 0600), 0);
  const ProcessId own = Start({dir_ + "/muster-shell", "-c", wait, "x", dir_ + "/cluster/nodes/a"});
  const ProcessId flag =
      Start({dir_ + "/muster-shell", "-c", wait, "x", "--dir=" + dir_ + "/cluster"});
  Start({dir_ + "/muster-shell", "-c", wait, "x", dir_ + "/cluster2"});
  Start({"/bin/sh", "-c", wait, "x", dir_ + "/cluster"});
  // Until exec, a started process is still a copy of this one.
  const Deadline deadline = Soon();
  std::vector<NamedProcess> found;
  while (found.size() < 2 && !deadline.Expired()) found = ProcessesOfDirectory(dir_ + "/cluster");
  ASSERT_EQ(found.size(), 2u);
  for (const NamedProcess& process : found) {
    EXPECT_EQ(process.program, "muster-shell");
    EXPECT_TRUE(process.id == own || process.id == flag);
  }
}

TEST_F(ProcessesTest, TailsTheLastLines) {
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/log", "a\nb\nc\n").ok());
  EXPECT_EQ(TailOfFile(dir_ + "/log", 2), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(TailOfFile(dir_ + "/log", 2, 4), (std::vector<std::string>{"c"}));
  EXPECT_TRUE(TailOfFile(dir_ + "/log", 2, SizeOfFile(dir_ + "/log")).empty());
  EXPECT_TRUE(TailOfFile(dir_ + "/none", 2).empty());
  EXPECT_EQ(SizeOfFile(dir_ + "/none"), 0);
  EXPECT_FALSE(BootId().empty());
}

}  // namespace
}  // namespace muster
