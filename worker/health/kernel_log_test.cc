#include "worker/health/kernel_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "tests/support/eventually.h"

namespace muster::worker {
namespace {

constexpr char kXid79[] =
    "4,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=muster-trainer, GPU has "
    "fallen "
    "off the bus.";
constexpr char kOom[] =
    "3,99,1,-;Out of memory: Killed process 4711 (muster-trainer) total-vm:1kB, anon-rss:2kB, "
    "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:500";

XidEvent ParsedXid(const std::string& line) {
  const auto event = ParseKernelLine(line);
  return event && std::holds_alternative<XidEvent>(*event) ? std::get<XidEvent>(*event)
                                                           : XidEvent{.xid = -1};
}
OomKillEvent ParsedKill(const std::string& line) {
  const auto event = ParseKernelLine(line);
  return event && std::holds_alternative<OomKillEvent>(*event) ? std::get<OomKillEvent>(*event)
                                                               : OomKillEvent{.pid = -1};
}

TEST(KernelLog, ReadsXidErrors) {
  EXPECT_EQ(ParsedXid(kXid79),
            (XidEvent{"0000:3b:00", 79, 4711,
                      "pid=4711, name=muster-trainer, GPU has fallen off the bus."}));
  EXPECT_EQ(ParsedXid("4,1,2,-,caller=T12;NVRM: Xid (PCI:0000:01:00): 48, An uncorrectable error"),
            (XidEvent{"0000:01:00", 48, 0, "An uncorrectable error"}));
  EXPECT_EQ(ParsedXid("NVRM: Xid (PCI:0000:01:00): 31, pid='<unknown>', name=<unknown>, Ch 8").pid,
            0);
  EXPECT_EQ(ParsedXid("NVRM: Xid (PCI:0000:01:00): 63"), (XidEvent{"0000:01:00", 63, 0, ""}));
}

TEST(KernelLog, ReadsWhomTheOutOfMemoryKillerEnded) {
  EXPECT_EQ(ParsedKill(kOom), (OomKillEvent{4711, "muster-trainer", false}));
  EXPECT_EQ(ParsedKill("3,1,2,-;Memory cgroup out of memory: Killed process 12 (a (b) c) "
                       "total-vm:1kB, anon-rss:2kB"),
            (OomKillEvent{12, "a (b) c", true}));
  EXPECT_EQ(ParsedKill("3,1,2,-;Out of memory (oom_kill_allocating_task): Killed process 12 (sh) "
                       "total-vm:1kB"),
            (OomKillEvent{12, "sh", false}));
}

TEST(KernelLog, EverythingElseIsNothing) {
  for (const char* line :
       {"", " SUBSYSTEM=pci", "6,1,2,-;usb 1-1: new device", "NVRM: Xid (PCI:0000:01:00): x",
        "NVRM: Xid (PCI:0000:01:00", "6,1,2,-;oom_reaper: reaped process 12 (sh), now anon-rss:0kB",
        "Out of memory: Killed process x (sh) total", "6,1,2,-;Killed process 12 (sh)",
        "6,1,2,-;NVRM: loading driver"})
    EXPECT_FALSE(ParseKernelLine(line).has_value()) << line;
}

class KernelLogReaderTest : public testing::Test {
 protected:
  KernelLogReaderTest() {
    EXPECT_EQ(::mkfifo((dir_ / "kmsg").c_str(), 0600), 0);
    // Both ends, so that the reader has a writer.
    feed_ = UniqueFd(::open((dir_ / "kmsg").c_str(), O_RDWR | O_CLOEXEC));
  }
  void Feed(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(feed_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::unique_ptr<KernelLog> Open() {
    auto log = KernelLog::Open(loop_, dir_ / "kmsg",
                               [this](const KernelEvent& event) { events_.push_back(event); });
    EXPECT_TRUE(log.ok()) << log.status().ToString();
    return log.ok() ? *std::move(log) : nullptr;
  }

  const TempDirForTest dir_;
  UniqueFd feed_;
  EventLoop loop_;
  std::vector<KernelEvent> events_;
};

TEST_F(KernelLogReaderTest, ReportsEventsAsTheyCome) {
  const auto log = Open();
  ASSERT_NE(log, nullptr);
  Feed("6,1,2,-;something else");
  Feed(kXid79);
  Feed(" DEVICE=+pci:0000:3b:00.0");
  std::thread late([this] { Feed(kOom); });
  std::function<void()> poll;
  Timer timer(loop_);
  const Deadline limit = Deadline::After(std::chrono::seconds(10));
  poll = [&] {
    if (events_.size() >= 2 || limit.Expired()) return loop_.Stop();
    timer.Start(std::chrono::milliseconds(1), poll);
  };
  loop_.Post(poll);
  loop_.Run();
  late.join();
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(std::get<XidEvent>(events_[0]).xid, 79);
  EXPECT_EQ(std::get<OomKillEvent>(events_[1]).pid, 4711);
}

TEST_F(KernelLogReaderTest, DrainTakesInWhatIsThereAtOnce) {
  const auto log = Open();
  ASSERT_NE(log, nullptr);
  Feed(kOom);
  log->Drain();
  EXPECT_EQ(events_.size(), 1u);
  log->Drain();
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(KernelLogReaderTest, WhatCannotBeReadIsAnError) {
  EXPECT_FALSE(KernelLog::Open(loop_, dir_ / "absent", nullptr).ok());
  // A plain file cannot be waited on.
  UniqueFd plain(::open((dir_ / "plain").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_TRUE(plain.valid());
  EXPECT_FALSE(KernelLog::Open(loop_, dir_ / "plain", nullptr).ok());
}

}  // namespace
}  // namespace muster::worker
