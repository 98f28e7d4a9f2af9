// Who holds the locks of a job's devices, with real processes and kills.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "common/base/locked_record.h"
#include "worker/guardian/testing/guardian_testing.h"
#include "worker/process/device_lock.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GuardianLocksTest : public GuardianTest {
 protected:
  std::string LockPath(const std::string& device) const {
    return DeviceLockPath(dir_.path(), device);
  }
  bool IsLocked(const std::string& device) const { return IsRecordLocked(LockPath(device)); }
  // The locks of devices that a process has open.
  std::vector<std::string> LocksOf(pid_t pid) const {
    std::vector<std::string> locks;
    std::error_code gone;
    for (const auto& file :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
      const std::filesystem::path target = std::filesystem::read_symlink(file.path(), gone);
      if (target.extension() == ".lock")
        locks.push_back(target.stem().string().substr(std::strlen("muster-")));
    }
    std::ranges::sort(locks);
    return locks;
  }

  // A command on a device.
  pid_t RunShell(int rank, const std::string& script, const std::string& device) {
    GuardianLaunch launch = Shell(1, rank, script);
    launch.devices = {device};
    Send(launch);
    return static_cast<pid_t>(Expect<GuardianRankStarted>().pid);
  }
  // A rank that takes assignments, on a device.
  pid_t RunRank(Generation generation, int rank, const std::vector<std::string>& devices) {
    Send(GuardianLaunch{.generation = generation,
                        .rank = rank,
                        .argv = {MUSTER_RANK_FOR_TEST},
                        .environment = {"MUSTER_ASSIGN=1", "MUSTER_CONTROL_FD=3",
                                        "CUDA_VISIBLE_DEVICES=" + std::to_string(rank),
                                        "RANK=" + std::to_string(rank)},
                        .working_directory = dir_.path(),
                        .log_path = LogPath(rank),
                        .control = true,
                        .node_ranks = {0, 1},
                        .devices = devices});
    const auto pid = static_cast<pid_t>(Expect<GuardianRankStarted>().pid);
    EXPECT_EQ(Expect<GuardianReport>().rank, rank) << "it has its assignment";
    return pid;
  }
  GuardianQuiesced Park(Generation generation) {
    Send(GuardianAbort{.generation = generation, .reason = "test", .park_seconds = 10});
    return Expect<GuardianQuiesced>();
  }
  void Kill(pid_t pid) {
    ::kill(pid, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }));
  }
};

TEST_F(GuardianLocksTest, ADeviceIsLockedFromThePreparationUntilTheProofThatNothingIsLeft) {
  Prepare(1, {"GPU-0", "GPU-1"});
  EXPECT_TRUE(IsLocked("GPU-0"));
  const pid_t rank = RunShell(0, "exec sleep 60", "GPU-0");
  EXPECT_THAT(LocksOf(rank), ElementsAre("GPU-0"));
  Kill(rank);
  Expect<GuardianRankExited>();
  EXPECT_TRUE(IsLocked("GPU-0")) << "the generation still has it";
  Send(GuardianAbort{.generation = 1});
  Expect<GuardianQuiesced>();
  EXPECT_FALSE(IsLocked("GPU-0"));
  EXPECT_FALSE(IsLocked("GPU-1"));
  EXPECT_TRUE(IsAlive(guardian_pid_));
}

TEST_F(GuardianLocksTest, KilledTogetherGuardianAndRankLeaveNoLock) {
  Prepare(1, {"GPU-0"});
  const pid_t rank = RunShell(0, "exec sleep 60", "GPU-0");
  ::kill(guardian_pid_, SIGKILL);
  ::kill(rank, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsLocked("GPU-0"); }));
  EXPECT_TRUE(Eventually([&] { return !IsAlive(rank); }));
}

TEST_F(GuardianLocksTest, WhatARankLeftBehindKeepsTheDeviceFromAnotherJob) {
  Prepare(1, {"GPU-0", "GPU-1"});
  const pid_t rank =
      RunShell(0, "setsid sh -c 'echo $$ > child.pid; exec sleep 60' & exec sleep 60", "GPU-0");
  const pid_t child = AwaitPid("child.pid");
  Kill(guardian_pid_);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(rank); }));
  EXPECT_TRUE(IsAlive(child));
  EXPECT_FALSE(IsLocked("GPU-1"));

  const pid_t first = std::exchange(guardian_pid_, StartGuardian(dir_ / "other", "9876543210"));
  Send(GuardianPrepare{.generation = 1, .devices = {"GPU-1", "GPU-0"}});
  EXPECT_THAT(Expect<GuardianPrepared>().error,
              AllOf(HasSubstr("device GPU-0"), HasSubstr("job 0123456789"),
                    HasSubstr("guardian " + std::to_string(first))));
  EXPECT_FALSE(IsLocked("GPU-1"));
  Kill(child);
  Prepare(2, {"GPU-1", "GPU-0"});
  EXPECT_TRUE(IsLocked("GPU-0"));
}

TEST_F(GuardianLocksTest, ALivingJobKeepsItsDevicesFromAnother) {
  Prepare(1, {"GPU-0"});
  const pid_t first = guardian_pid_;
  PacketSocket link = std::move(link_);
  guardian_pid_ = StartGuardian(dir_ / "other", "9876543210");
  Send(GuardianPrepare{.generation = 1, .devices = {"GPU-0"}});
  EXPECT_THAT(Expect<GuardianPrepared>().error, HasSubstr("job 0123456789"));
  ASSERT_TRUE(link.Send(Encode(GuardianCommand(GuardianRelease{}))).ok());
  Prepare(2, {"GPU-0"});
  EXPECT_TRUE(Eventually([&] { return !IsAlive(first); }));
}

TEST_F(GuardianLocksTest, AStandbyHasNoneUntilItIsAssigned) {
  Send(GuardianPrepare{.generation = 1, .spare = true, .devices = {"GPU-0"}});
  Expect<GuardianPrepared>();
  EXPECT_TRUE(IsLocked("GPU-0"));
  GuardianLaunch launch{.argv = {MUSTER_RANK_FOR_TEST},
                        .environment = {"MUSTER_ASSIGN=1", "MUSTER_CONTROL_FD=3"},
                        .working_directory = dir_.path(),
                        .log_path = dir_ / "standby.log",
                        .control = true};
  Send(GuardianStandby{.count = 1, .at_once = true, .launch = launch});
  pid_t standby = 0;
  ASSERT_TRUE(Eventually([&] {
    for (const ProcessId& id : LivingDescendants(ReadProcessTable(), guardian_pid_))
      standby = static_cast<pid_t>(id.pid);
    const auto name = ReadFile("/proc/" + std::to_string(standby) + "/comm");
    return name.ok() && *name == "told-ready\n";
  }));
  EXPECT_THAT(LocksOf(standby), IsEmpty());
  Prepare(2, {"GPU-0"});
  const pid_t pid = RunRank(2, 0, {"GPU-0"});
  EXPECT_EQ(pid, standby);
  EXPECT_THAT(LocksOf(pid), ElementsAre("GPU-0"));
}

TEST_F(GuardianLocksTest, AProcessThatIsAssignedAgainHasTheLocksOfItsNewRankOnly) {
  Prepare(1, {"GPU-0", "GPU-1"});
  const pid_t pid = RunRank(1, 0, {"GPU-0", "GPU-1"});
  EXPECT_THAT(LocksOf(pid), ElementsAre("GPU-0", "GPU-1"));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0));
  Prepare(2, {"GPU-0", "GPU-1"});
  EXPECT_EQ(RunRank(2, 0, {"GPU-1"}), pid);
  EXPECT_THAT(LocksOf(pid), ElementsAre("GPU-1"));
}

TEST_F(GuardianLocksTest, ARecoveryInPlaceLeavesNoGapForAnother) {
  Prepare(1, {"GPU-0", "GPU-1"});
  const pid_t dead = RunRank(1, 0, {"GPU-0"});
  const pid_t survivor = RunRank(1, 1, {"GPU-1"});
  std::atomic<bool> over = false;
  std::atomic<int> tries = 0;
  std::atomic<int> taken = 0;
  const UniqueFd files[] = {UniqueFd(::open(LockPath("GPU-0").c_str(), O_RDWR | O_CLOEXEC)),
                            UniqueFd(::open(LockPath("GPU-1").c_str(), O_RDWR | O_CLOEXEC))};
  std::thread thief([&] {
    while (!over) {
      for (const UniqueFd& file : files)
        if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
          ++taken;
          ::flock(file.get(), LOCK_UN);
        }
      ++tries;
    }
  });
  for (Generation generation = 1; generation <= 3; ++generation) {
    if (generation == 1) Kill(dead);
    EXPECT_THAT(Park(generation).parked_ranks, testing::Contains(1));
    Prepare(generation + 1, {"GPU-0", "GPU-1"});
    RunRank(generation + 1, 0, {"GPU-0"});
    EXPECT_EQ(RunRank(generation + 1, 1, {"GPU-1"}), survivor);
  }
  over = true;
  thief.join();
  EXPECT_EQ(taken, 0) << "of " << tries << " tries";
  EXPECT_GT(tries, 100);
}

}  // namespace
}  // namespace muster
