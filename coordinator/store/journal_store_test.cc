#include "coordinator/store/journal_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "common/base/testing/temp_dir.h"
#include "coordinator/store/testing/store_testing.h"
#include "tests/support/slowness.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::kSlowness;

class JournalStoreTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_ + "/journal"; }
  JournalStoreOptions Options(const std::string& node = "n1") const {
    JournalStoreOptions options;
    options.journal = {.dir = Path(), .node = node, .pid = 7, .snapshot_commits = 4};
    return options;
  }
  std::unique_ptr<JournalStore> Open(const JournalStoreOptions& options) const {
    auto store = JournalStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // Runs `child` in a process of its own; what it writes to its descriptor comes back.
  static std::string InChild(const std::function<void(int)>& child) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      child(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    std::string told;
    char buffer[4096];
    for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
      told.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
    return told;
  }
  static void Tell(int fd, const std::string& text) {
    if (::write(fd, text.data(), text.size()) < 0) ::_exit(1);
  }

  // In memory where that is possible: what is tested here is the order of things, often.
  const TempDirForTest temp_{std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp"};
  const std::string dir_ = temp_.path();
};

TEST_F(JournalStoreTest, TheOlderOfTwoCoordinatorsEndsWithANamedCauseAndNothingIsLost) {
  const auto old = Open(Options("n1"));
  ASSERT_TRUE(CommitAndWait(*old, {NumberedJob(1)}).ok());
  const auto young = Open(Options("n2"));
  EXPECT_GT(young->epoch(), old->epoch());
  EXPECT_EQ(young->Load()->jobs.size(), 1u);
  const Status fenced = CommitAndWait(*old, {NumberedJob(2)});
  EXPECT_EQ(fenced.code(), StatusCode::kAborted) << fenced.ToString();
  EXPECT_THAT(fenced.message(), HasSubstr("node n2 (pid 7) has taken over"));
  EXPECT_EQ(CommitAndWait(*old, {NumberedJob(3)}).code(), StatusCode::kAborted);
  ASSERT_TRUE(CommitAndWait(*young, {NumberedJob(4)}).ok());
  EXPECT_EQ(Open(Options("n3"))->Load()->jobs.size(), 2u);
}

TEST_F(JournalStoreTest, AnIdleCoordinatorDetectsThatItIsFenced) {
  std::promise<Status> fenced;
  const auto old = Open(Options());
  old->WatchFence(std::chrono::milliseconds(5),
                  [&](const Status& status) { fenced.set_value(status); });
  const auto young = Open(Options("n2"));
  auto told = fenced.get_future();
  ASSERT_EQ(told.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_THAT(told.get().message(), HasSubstr("n2"));
  EXPECT_EQ(CommitAndWait(*old, {NumberedJob(1)}).code(), StatusCode::kAborted);
}

TEST_F(JournalStoreTest, TakeoversBesideARunningCoordinatorLoseNothing) {
  int acknowledged = 0;
  for (int i = 0; i < 20; ++i) {
    std::promise<void> started;
    const auto store = Open(Options("n" + std::to_string(i)));
    std::thread writer([&] {
      for (int n = 0;; ++n) {
        if (!CommitAndWait(*store, {NumberedJob(acknowledged)}).ok()) return;
        ++acknowledged;
        if (n == 10) started.set_value();
      }
    });
    started.get_future().get();
    const auto next = Open(Options("m" + std::to_string(i)));
    writer.join();
    EXPECT_EQ(next->Load()->jobs.size(), static_cast<std::size_t>(acknowledged));
  }
}

TEST_F(JournalStoreTest, OnlyTheOwnerMayReadTheJournal) {
  ASSERT_NE(Open(Options()), nullptr);
  struct stat info {};
  ASSERT_EQ(::stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((Path() + "/log/" + NumberedName(1)).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(JournalStoreTest, ADirectoryThatIsNotMountedIsNamed) {
  JournalStoreOptions options = Options();
  options.journal.dir = dir_ + "/missing/journal";
  const auto store = JournalStore::Open(options);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr(options.journal.dir));
  EXPECT_THAT(store.status().message(), HasSubstr("mounted"));
}

TEST_F(JournalStoreTest, CommitsThatWaitShareAFile) {
  const auto store = Open(Options());
  std::promise<void> queued;
  std::promise<void> all;
  store->Commit({NumberedJob(0)}, [&](const Status&) { queued.get_future().get(); });
  int done = 0;
  for (int i = 1; i <= 50; ++i) {
    store->Commit({NumberedJob(i)}, [&](const Status& status) {
      EXPECT_TRUE(status.ok());
      if (++done == 50) all.set_value();
    });
  }
  queued.set_value();
  all.get_future().get();
  EXPECT_LE(store->groups(), 3u);
}

TEST_F(JournalStoreTest, OfEventsTheNewestAreKept) {
  JournalStoreOptions options = Options();
  options.journal.kept_events = 5;
  const auto store = Open(options);
  std::vector<StoreOperation> operations;
  for (std::uint64_t seq = 1; seq <= 20; ++seq) operations.push_back(AppendEvent{{.seq = seq}});
  ASSERT_TRUE(CommitAndWait(*store, std::move(operations)).ok());
  const auto state = Open(options)->Load();
  ASSERT_EQ(state->events.size(), 5u);
  EXPECT_EQ(state->events.front().seq, 16u);
}

// Ends its process in the middle of, or before, or after the call with this number.
class KillingFiles : public PosixJournalFiles {
 public:
  enum Moment { kBefore, kHalf, kAfter };
  KillingFiles(int call, Moment moment) : call_(call), moment_(moment) {}

  int MakeDirectory(const std::string& path) override {
    return Around([&] { return PosixJournalFiles::MakeDirectory(path); });
  }
  int Write(const std::string& path, std::string_view bytes) override {
    if (moment_ == kHalf && calls_ == call_) {
      PosixJournalFiles::Write(path, bytes.substr(0, bytes.size() / 2));
      Die();
    }
    return Around([&] { return PosixJournalFiles::Write(path, bytes); });
  }
  int Link(const std::string& from, const std::string& to) override {
    return Around([&] { return PosixJournalFiles::Link(from, to); });
  }
  int Remove(const std::string& path) override {
    return Around([&] { return PosixJournalFiles::Remove(path); });
  }
  int SyncDirectory(const std::string& path) override {
    return Around([&] { return PosixJournalFiles::SyncDirectory(path); });
  }

 private:
  [[noreturn]] static void Die() {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  int Around(const std::function<int()>& call) {
    const bool here = calls_++ == call_;
    if (here && moment_ == kBefore) Die();
    const int error = call();
    if (here && moment_ == kAfter) Die();
    return error;
  }
  const int call_;
  const Moment moment_;
  int calls_ = 0;
};

constexpr int kCommitsOfLife = 6;

// One letter for each commit that was durable, "." when all are.
void CommitUntilKilled(const JournalOptions& options, int call, KillingFiles::Moment moment,
                       int fd) {
  KillingFiles files(call, moment);
  const auto journal = Journal::Open(files, options);
  if (!journal.ok()) ::_exit(1);
  for (int i = 0; i < kCommitsOfLife; ++i) {
    std::string payload;
    AppendOperation(NumberedJob(i), &payload);
    if (!(*journal)->Append(payload).ok()) ::_exit(1);
    if (::write(fd, "x", 1) != 1) ::_exit(1);
    (*journal)->CompactIfDue();
  }
  if (::write(fd, ".", 1) != 1) ::_exit(1);
}

// As a file server whose answers get lost, or a quota that even an unlink needs room in.
class UnlinkFails final : public PosixJournalFiles {
 public:
  int Remove(const std::string&) override { return EIO; }
};

TEST_F(JournalStoreTest, AnUnlinkThatFailsLosesNoCommitThatWasAcknowledged) {
  UnlinkFails files;
  JournalOptions options = Options().journal;
  options.snapshot_commits = 2;
  {
    const auto journal = Journal::Open(files, options);
    ASSERT_TRUE(journal.ok()) << journal.status().ToString();
    for (int i = 0; i < kCommitsOfLife; ++i) {
      std::string payload;
      AppendOperation(NumberedJob(i), &payload);
      ASSERT_TRUE((*journal)->Append(payload).ok());
      (*journal)->CompactIfDue();
    }
  }
  auto store = Open(Options("n2"));
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->Load()->jobs.size(), static_cast<std::size_t>(kCommitsOfLife));
}

// The answer to a link is lost, and then the file server is away.
class UnreadableName final : public PosixJournalFiles {
 public:
  int Link(const std::string& from, const std::string& to) override {
    const int error = PosixJournalFiles::Link(from, to);
    if (!failing || error != 0) return error;
    unreadable_ = to;
    return EEXIST;
  }
  int Read(const std::string& path, std::string* bytes) override {
    return path == unreadable_ ? EIO : PosixJournalFiles::Read(path, bytes);
  }
  bool failing = false;

 private:
  std::string unreadable_;
};

TEST_F(JournalStoreTest, AnOwnUnreadableCommitIsNotTakenForAnothers) {
  UnreadableName files;
  const auto journal = Journal::Open(files, Options().journal);
  ASSERT_TRUE(journal.ok()) << journal.status().ToString();
  files.failing = true;
  std::string payload;
  AppendOperation(NumberedJob(1), &payload);
  const Status status = (*journal)->Append(payload);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), StatusCode::kAborted) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("read "));
}

TEST_F(JournalStoreTest, ADirectoryThatOthersMayWriteIntoIsRefused) {
  ASSERT_EQ(::mkdir(Path().c_str(), 0700), 0);
  for (const mode_t mode : {0777, 0770}) {
    ASSERT_EQ(::chmod(Path().c_str(), mode), 0);
    const Status status = JournalStore::Open(Options()).status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("chmod 700"));
  }
  ASSERT_EQ(::chmod(Path().c_str(), 0755), 0);
  EXPECT_NE(Open(Options()), nullptr) << "others may look at it";
}

TEST_F(JournalStoreTest, DeathAtAnySystemCallLosesNothingThatWasAcknowledged) {
  for (const auto moment : {KillingFiles::kBefore, KillingFiles::kHalf, KillingFiles::kAfter}) {
    bool finished = false;
    for (int call = 0; !finished; ++call) {
      SCOPED_TRACE("call " + std::to_string(call) + ", moment " + std::to_string(moment));
      ASSERT_LT(call, 200);
      const std::string told =
          InChild([&](int fd) { CommitUntilKilled(Options().journal, call, moment, fd); });
      finished = told.ends_with(".");
      const std::size_t acknowledged = told.size() - (finished ? 1 : 0);
      auto store = Open(Options("n2"));
      ASSERT_NE(store, nullptr);
      const std::size_t kept = store->Load()->jobs.size();
      EXPECT_GE(kept, acknowledged);
      EXPECT_LE(kept, acknowledged + 1);
      // And the one after can work.
      EXPECT_TRUE(CommitAndWait(*store, {NumberedJob(100)}).ok());
      store.reset();
      std::filesystem::remove_all(Path());
    }
  }
}

TEST_F(JournalStoreTest, WhatWasReportedDurableSurvivesSigkill) {
  const std::size_t told = CommitsUntilKilled(
      [this]() -> Result<std::unique_ptr<Store>> {
        MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, JournalStore::Open(Options()));
        return store;
      },
      500);
  EXPECT_GE(Open(Options("n2"))->Load()->jobs.size(), told);
}

// Commits until it fails, and tells how many were acknowledged, why it ended, and what is there
// after `repair`.
std::string CommitUntilFull(const JournalStoreOptions& options,
                            const std::function<void()>& repair) {
  int acknowledged = 0;
  Status status;
  {
    auto store = JournalStore::Open(options);
    if (!store.ok()) return store.status().ToString();
    while (status.ok() && acknowledged < 2000) {
      JobRecord job;
      job.id = JobId{std::to_string(acknowledged)};
      // The later the larger, so that every limit is met.
      job.spec_yaml.assign(static_cast<std::size_t>(100 * acknowledged), 'x');
      status = CommitAndWait(**store, {PutJob{job}});
      if (status.ok()) ++acknowledged;
    }
  }
  repair();
  auto store = JournalStore::Open(options);
  if (!store.ok()) return store.status().ToString();
  const auto state = (*store)->Load();
  const bool same = state.ok() && static_cast<int>(state->jobs.size()) == acknowledged;
  return status.ToString() + (acknowledged > 10 && same ? " [all kept]" : " [LOST]");
}

TEST_F(JournalStoreTest, AFullDiskIsReportedAndNothingThatWasAcknowledgedIsLost) {
  const std::string told = InChild([this](int fd) {
    const uid_t uid = ::getuid();
    const gid_t gid = ::getgid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return Tell(fd, "not allowed");
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
    if (::mount("muster", dir_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return Tell(fd, "not allowed");
    }
    std::ofstream(dir_ + "/other") << std::string(200000, 'x') << std::flush;
    const auto repair = [this] { std::filesystem::remove(dir_ + "/other"); };
    Tell(fd, CommitUntilFull(Options(), repair));
  });
  if (told == "not allowed") GTEST_SKIP() << "needs user namespaces that may mount a tmpfs";
  EXPECT_THAT(told, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(told, HasSubstr("No space left on device; make room"));
  EXPECT_THAT(told, HasSubstr("[all kept]"));
}

TEST_F(JournalStoreTest, AFileThatMayNotGrowIsReportedAndNothingThatWasAcknowledgedIsLost) {
  const std::string told = InChild([this](int fd) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 20000;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto repair = [&limit] {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    // No snapshot, which would be larger than any commit.
    JournalStoreOptions options = Options();
    options.journal.snapshot_commits = 100000;
    Tell(fd, CommitUntilFull(options, repair));
  });
  EXPECT_THAT(told, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(told, HasSubstr("File too large"));
  EXPECT_THAT(told, HasSubstr("[all kept]"));
}

TEST_F(JournalStoreTest, ASnapshotThatCannotBeWrittenIsReportedAndCommitsContinue) {
  class NoSnapshots : public PosixJournalFiles {
   public:
    int Write(const std::string& path, std::string_view bytes) override {
      return path.find("/snapshot/") != std::string::npos ? EDQUOT
                                                          : PosixJournalFiles::Write(path, bytes);
    }
  };
  std::vector<std::string> warnings;
  JournalStoreOptions options = Options();
  options.files = std::make_shared<NoSnapshots>();
  options.journal.warn = [&](const std::string& warning) { warnings.push_back(warning); };
  {
    const auto store = Open(options);
    for (int i = 0; i < 9; ++i) ASSERT_TRUE(CommitAndWait(*store, {NumberedJob(i)}).ok());
  }
  ASSERT_EQ(warnings.size(), 2u) << "at most one for each four commits";
  EXPECT_THAT(warnings[0], HasSubstr("quota"));
  EXPECT_EQ(Open(Options())->Load()->jobs.size(), 9u);
}

TEST_F(JournalStoreTest, TenThousandCommitsAreReadInAFractionOfASecond) {
  JournalStoreOptions options = Options();
  options.journal.snapshot_commits = JournalOptions().snapshot_commits;
  {
    const auto journal = Journal::Open(*options.files, options.journal);
    ASSERT_TRUE(journal.ok());
    for (std::uint64_t i = 1; i <= 10000; ++i) {
      std::string payload;
      AppendOperation(NumberedJob(static_cast<int>(i % 100)), &payload);
      AppendOperation(AppendEvent{{.seq = i, .kind = "launched", .message = "as many as that"}},
                      &payload);
      ASSERT_TRUE((*journal)->Append(payload).ok());
      (*journal)->CompactIfDue();
    }
  }
  // Measured in this process's processor time: beside other tests wall time means little.
  double best_ms = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t begin = std::clock();
    const auto store = Open(options);
    ASSERT_EQ(store->Load()->events.size(), 10000u);
    best_ms = std::min(best_ms, 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::printf("start-up after 10,000 commits: %.0f ms\n", best_ms);
  EXPECT_LE(best_ms, 300 * kSlowness);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path() + "/log")) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_LE(files, 2 * 512 + 10u);
}

}  // namespace
}  // namespace muster
