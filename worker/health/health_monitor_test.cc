#include "worker/health/health_monitor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/base/file_lock.h"
#include "common/base/testing/temp_dir.h"
#include "common/runtime/testing/loop_thread.h"
#include "tests/support/eventually.h"
#include "worker/health/testing/nvml_control.h"
#include "worker/process/device_lock.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class HealthMonitorTest : public testing::Test {
 protected:
  HealthMonitorTest() {
    EXPECT_EQ(::mkfifo((dir_ / "kmsg").c_str(), 0600), 0);
    kernel_ = UniqueFd(::open((dir_ / "kmsg").c_str(), O_RDWR | O_CLOEXEC));
    std::filesystem::create_directory(dir_ / "node");
    options_.disk_dir = dir_ / "node";
    options_.kernel_log = dir_ / "kmsg";
    options_.nvml = library_.path();
    options_.same_pids = true;
    options_.interval = 10ms;
    options_.read_memory = [this] {
      const std::lock_guard lock(mutex_);
      return memory_;
    };
  }
  void Start() {
    monitor_ = std::make_unique<HealthMonitor>(loop_, options_, [this](const NodeNotice& notice) {
      const std::lock_guard lock(mutex_);
      told_.push_back(notice);
    });
    loop_.Post([this] { monitor_->Start(); });
    thread_.emplace(loop_);
  }
  void Kernel(const std::string& text) {
    const std::string line = "4,1,2,-;" + text + "\n";
    EXPECT_EQ(::write(kernel_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  void SetMemory(const MemoryReading& reading) {
    const std::lock_guard lock(mutex_);
    memory_ = reading;
  }
  // The first notice of this kind that holds `text`, once it is there.
  NodeNotice Await(NodeNoticeKind kind, const std::string& text = "") {
    NodeNotice found;
    EXPECT_TRUE(Eventually([&] {
      const std::lock_guard lock(mutex_);
      for (const NodeNotice& notice : told_) {
        if (notice.kind != kind || notice.detail.find(text) == std::string::npos) continue;
        found = notice;
        return true;
      }
      return false;
    })) << text;
    return found;
  }
  const TempDirForTest dir_;
  UniqueFd kernel_;
  NvmlControlForTest library_;
  HealthOptions options_;
  std::mutex mutex_;
  MemoryReading memory_;
  std::vector<NodeNotice> told_;
  EventLoop loop_;
  std::unique_ptr<HealthMonitor> monitor_;
  std::optional<LoopThreadForTest> thread_;
};

TEST_F(HealthMonitorTest, AFatalXidInTheKernelsLogIsReported) {
  Start();
  Kernel("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
  const NodeNotice notice = Await(NodeNoticeKind::kXid);
  EXPECT_TRUE(notice.fatal);
  EXPECT_EQ(notice.devices, std::vector<std::string>{"0000:3b:00"});
  EXPECT_EQ(notice.detail,
            "GPU 0000:3b:00: Xid 79, the GPU has fallen off the bus; reboot the node");
}

TEST_F(HealthMonitorTest, AnXidNamesAllDevicesOfItsGpu) {
  options_.devices = {
      {.device = {.id = "GPU-a"}, .gpu = "GPU-a", .gpu_index = 0, .pci_address = "0000:3b:00.0"},
      {.device = {.id = "GPU-b"}, .gpu = "GPU-b", .gpu_index = 1, .pci_address = "0000:af:00.0"},
      {.device = {.id = "GPU-a#2"}, .gpu = "GPU-a", .gpu_index = 0, .pci_address = "0000:3b:00.0"}};
  const std::vector<std::string> both = {"GPU-a", "GPU-a#2"};
  Start();
  Kernel("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
  const NodeNotice notice = Await(NodeNoticeKind::kXid, "Xid 79");
  EXPECT_EQ(notice.devices, both);
  EXPECT_THAT(notice.detail, HasSubstr("GPU 0 (GPU-a): Xid 79"));
  library_.RecoveryAction(0, 1);
  ASSERT_TRUE(Eventually([&] { return library_.Xid(1, 94); }));
  EXPECT_EQ(Await(NodeNoticeKind::kXid, "Xid 94").devices, std::vector<std::string>{"GPU-b"});
  EXPECT_EQ(Await(NodeNoticeKind::kXid, "asks for a reset").devices, both);
}

TEST_F(HealthMonitorTest, AnExitThatAnXidExplainsNamesTheGpu) {
  options_.devices = {
      {.device = {.id = "GPU-a"}, .gpu = "GPU-a", .gpu_index = 3, .pci_address = "0000:3b:00.0"}};
  Start();
  thread_->Do([&] {
    monitor_->OnRankStarted({{"00c0ffee00"}, 1, 0, 4711});
    Kernel("NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, page fault");
    RankExited exited{.job = {"00c0ffee00"}, .generation = 1, .end = {.exit = {.signal = SIGABRT}}};
    monitor_->Complete(&exited);
    ASSERT_FALSE(exited.facts.empty());
    EXPECT_THAT(exited.facts[0], HasSubstr("kernel log: Xid 31 on GPU 3 (GPU-a): pid=4711"));
  });
}

TEST_F(HealthMonitorTest, AnXidOfAGpuThatNoJobGetsNamesItByIndex) {
  Start();
  ASSERT_TRUE(Eventually([&] { return library_.Xid(1, 94); }));
  const NodeNotice notice = Await(NodeNoticeKind::kXid);
  EXPECT_FALSE(notice.fatal);
  EXPECT_EQ(notice.devices, std::vector<std::string>{"1"});
  EXPECT_THAT(notice.detail, HasSubstr("GPU 1: Xid 94, contained memory error"));
}

TEST_F(HealthMonitorTest, AMendedGpuIsClear) {
  Start();
  ASSERT_TRUE(Eventually([&] { return library_.Xid(0, 95); }));
  EXPECT_TRUE(Await(NodeNoticeKind::kXid, "Xid 95").fatal);
  library_.RecoveryAction(0, 1);
  library_.Xid(0, 13);
  EXPECT_TRUE(Await(NodeNoticeKind::kXid, "asks for a reset").fatal);
  library_.RecoveryAction(0, 0);
  library_.Xid(0, 13);
  EXPECT_THAT(Await(NodeNoticeKind::kClear, "Xid 95").detail, HasSubstr("over: "));
}

TEST_F(HealthMonitorTest, ShortageOfMemoryIsReported) {
  SetMemory({.available_bytes = 1 << 20, .total_bytes = 1 << 30});
  Start();
  EXPECT_THAT(Await(NodeNoticeKind::kMemoryPressure).detail, HasSubstr("short of memory"));
}

TEST_F(HealthMonitorTest, ADiskThatCannotBeWrittenIsReported) {
  options_.disk_dir = dir_ / "absent";
  Start();
  EXPECT_THAT(Await(NodeNoticeKind::kDisk).detail, HasSubstr("cannot be written"));
}

TEST_F(HealthMonitorTest, DevicesThatJobsOfOtherWorkersHaveAreReported) {
  options_.device_locks = dir_.path();
  options_.jobs_dir = dir_ / "jobs";
  std::filesystem::create_directories(dir_ / "jobs/0ae");
  std::vector<UniqueFd> locks;
  for (const auto& [id, job] : {std::pair("GPU-a", "0ae"), {"GPU-b", "7f3"}, {"GPU-c", "7f3"}}) {
    options_.devices.push_back({.device = {.id = id}});
    locks.push_back(OpenDeviceLock(dir_.path(), id).value());
    ASSERT_TRUE(LockFile(locks.back().get()).value());
    dir_.Write("muster-" + std::string(id) + ".lock", job + std::string(" 4711\n"));
  }
  Start();
  const NodeNotice notice = Await(NodeNoticeKind::kDevicesInUse);
  EXPECT_EQ(notice.detail,
            "GPU-b, GPU-c in use elsewhere on this machine, by job 7f3 of another worker "
            "(guardian 4711, or a process that it left)");
  EXPECT_THAT(notice.devices, testing::ElementsAre("GPU-b", "GPU-c"));
  locks.erase(locks.begin() + 1);
  const NodeNotice one = Await(NodeNoticeKind::kDevicesInUse, "GPU-c in use");
  EXPECT_TRUE(Eventually([&] {
    const std::lock_guard lock(mutex_);
    return told_.back().kind == NodeNoticeKind::kClear;
  })) << "last, so that GPU-c is in use all the time";
  EXPECT_THAT(Await(NodeNoticeKind::kClear, "GPU-b").standing.size(), 1u);
  locks.clear();
  Await(NodeNoticeKind::kClear, "over: GPU-c in use");
}

TEST_F(HealthMonitorTest, AStopNoticeIsADrainWithItsDeadline) {
  options_.stop_notice.file = dir_ / "notice";
  Start();
  std::ofstream(dir_ / "notice.new") << "90\n";
  std::filesystem::rename(dir_ / "notice.new", dir_ / "notice");
  const NodeNotice notice = Await(NodeNoticeKind::kDrain);
  EXPECT_GT(notice.deadline_seconds, 80);
  EXPECT_LE(notice.deadline_seconds, 90);
  // It is not taken back.
  std::filesystem::remove(dir_ / "notice");
  thread_->Do([&] { monitor_->OnConnected(); });
  const std::lock_guard lock(mutex_);
  EXPECT_THAT(told_.back().standing, testing::ElementsAre(notice.detail));
}

TEST_F(HealthMonitorTest, AnOutOfMemoryKillIsFoundWhenTheExitIsReported) {
  Start();
  thread_->Do([&] {
    monitor_->OnRankStarted({{"00c0ffee00"}, 1, 0, 4711});
    // Behind the loop's back: only Complete can have read it.
    Kernel("Out of memory: Killed process 4711 (muster-trainer) total-vm:1kB");
    RankExited exited{.job = {"00c0ffee00"}, .generation = 1, .end = {.exit = {.signal = SIGKILL}}};
    monitor_->Complete(&exited);
    EXPECT_TRUE(exited.end.out_of_memory);
    EXPECT_EQ(monitor_->oom_kills(), 1u);
  });
}

TEST_F(HealthMonitorTest, AFailureOnANodeInTroubleNamesIt) {
  Start();
  thread_->Do([&] {
    // Behind the loop's back, as above: the error comes right before the rank's end.
    Kernel("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
    RankExited failed{.job = {"00c0ffee00"}, .generation = 1, .end = {.exit = {.exit_code = 1}}};
    monitor_->Complete(&failed);
    ASSERT_EQ(failed.facts.size(), 1u);
    EXPECT_THAT(failed.facts[0], HasSubstr("node: GPU 0000:3b:00: Xid 79"));
    RankExited aborted{.job = {"00c0ffee00"}, .end = {.exit = {.signal = SIGKILL}, .ended = true}};
    monitor_->Complete(&aborted);
    EXPECT_TRUE(aborted.facts.empty());
    RankExited done{.job = {"00c0ffee00"}, .generation = 1};
    monitor_->Complete(&done);
    EXPECT_TRUE(done.facts.empty());
  });
}

TEST_F(HealthMonitorTest, AHostWithoutAnyOfItIsWatchedAllTheSame) {
  options_.kernel_log = dir_ / "absent";
  options_.nvml = "libno-such-library.so.1";
  SetMemory({.available_bytes = 1 << 20, .total_bytes = 1 << 30});
  Start();
  Await(NodeNoticeKind::kMemoryPressure);
}

}  // namespace
}  // namespace muster::worker
