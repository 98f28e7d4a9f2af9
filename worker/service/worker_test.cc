// muster-worker and muster-guardian as real processes under a fake coordinator, with command jobs.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/base/version.h"
#include "common/process/exit_status.h"
#include "worker/service/testing/worker_fixture.h"

namespace muster::worker {
namespace {

TEST_F(WorkerTest, SendsHelloWithItsIdentity) {
  const v1::Hello hello = AwaitHello();
  EXPECT_EQ(hello.protocol_version(), kProtocolVersion);
  EXPECT_EQ(hello.node(), "n0");
  EXPECT_EQ(hello.slots(), 2);
  EXPECT_EQ(hello.pid(), worker_);
  EXPECT_EQ(hello.host_id(), BootId());
  EXPECT_GT(hello.metrics_port(), 0);
  EXPECT_FALSE(hello.instance().empty());
  EXPECT_EQ(hello.hosted_size(), 0);
  EXPECT_EQ(hello.versions_size(), static_cast<int>(kVersionTable.size()));
  EXPECT_TRUE(coordinator_->Await([](const auto& m) { return m.has_heartbeat(); }));
}

// That of the next version, which also says things that this worker does not know.
TEST_F(WorkerTest, ServesANewerCoordinatorInTheProtocolOfBoth) {
  AwaitHello();
  coordinator_.reset();
  coordinator_ = std::make_unique<FakeCoordinatorForTest>(
      dir_.path(), FakeCoordinatorForTest::Options{.max_protocol_version = kProtocolVersion + 1});
  AwaitHello();
  v1::CoordinatorMessage unknown;
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddLengthDelimited(1000, "new");
  coordinator_->Send(unknown);
  v1::CoordinatorMessage with_unknown_field;
  with_unknown_field.mutable_cancel_scrub()->set_scrub_id(7);
  auto& cancel = *with_unknown_field.mutable_cancel_scrub();
  cancel.GetReflection()->MutableUnknownFields(&cancel)->AddVarint(1000, 1);
  coordinator_->Send(with_unknown_field);
  RunJob(1, "exit 5");
  EXPECT_EQ(AwaitExit().exit().exit_code(), 5);
}

TEST_F(WorkerTest, RunsACommandJobFromPrepareToRelease) {
  RunJob(1, "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR is $COLOUR; exit 3");
  const v1::RankExited exited = AwaitExit();
  EXPECT_EQ(exited.exit().exit_code(), 3);
  EXPECT_EQ(exited.exit().signal(), 0);
  ASSERT_EQ(exited.log_tail_size(), 1);
  EXPECT_EQ(exited.log_tail(0), "rank 0 of 1 at 127.0.0.1 is blue");
  EXPECT_EQ(ReadFile(dir_ / "out/logs/1/rank-0.log").value(), exited.log_tail(0) + "\n");

  v1::CoordinatorMessage read;
  read.mutable_read_log()->set_request_id(9);
  read.mutable_read_log()->set_job_id(kWorkerJob);
  read.mutable_read_log()->set_generation(1);
  read.mutable_read_log()->set_output_dir(dir_ / "out");
  coordinator_->Send(read);
  const auto chunk = coordinator_->Await([](const auto& m) { return m.has_log_chunk(); });
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->log_chunk().data(), exited.log_tail(0) + "\n");

  const std::int64_t guardian = GuardianPid(JobDir());
  v1::CoordinatorMessage release;
  release.mutable_release()->set_job_id(kWorkerJob);
  coordinator_->Send(release);
  ASSERT_TRUE(coordinator_->Await([](const auto& m) { return m.has_released(); }));
  // Its last act was to say so; its exit follows.
  EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian); }));
  EXPECT_FALSE(std::filesystem::exists(JobDir()));
}

TEST_F(WorkerTest, AbortProvesTheRankGone) {
  const auto started = RunJob(1, "trap '' TERM; while :; do sleep 1; done");
  v1::CoordinatorMessage abort;
  abort.mutable_abort()->set_job_id(kWorkerJob);
  abort.mutable_abort()->set_generation(1);
  coordinator_->Send(abort);
  EXPECT_EQ(AwaitExit().exit().signal(), SIGKILL);
  const auto quiesced = coordinator_->Await([](const auto& m) { return m.has_quiesced(); });
  ASSERT_TRUE(quiesced);
  EXPECT_EQ(quiesced->quiesced().unkillable_pids_size(), 0);
  EXPECT_FALSE(IsAlive(started.pid()));
}

TEST_F(WorkerTest, AKilledWorkersRanksGoOnAndAreTakenOver) {
  const auto started = RunJob(4, "exec sleep 60");
  KillWorker();
  EXPECT_TRUE(IsAlive(started.pid()));
  StartWorker();
  const v1::Hello hello = AwaitHello();
  ASSERT_EQ(hello.hosted_size(), 1);
  EXPECT_EQ(hello.hosted(0).job_id(), kWorkerJob);
  EXPECT_EQ(hello.hosted(0).generation(), 4);
  EXPECT_TRUE(hello.hosted(0).prepared());
  EXPECT_TRUE(hello.hosted(0).launched());
  EXPECT_FALSE(hello.hosted(0).quiesced());
  ASSERT_EQ(hello.hosted(0).started_size(), 1);
  EXPECT_EQ(hello.hosted(0).started(0).pid(), started.pid());
  ::kill(static_cast<pid_t>(started.pid()), SIGKILL);
  EXPECT_EQ(AwaitExit().exit().signal(), SIGKILL);
}

TEST_F(WorkerTest, AGuardiansDeathIsItsRanksExitAndTheNextGenerationGetsANewOne) {
  const auto started = RunJob(1, "exec sleep 60");
  ::kill(static_cast<pid_t>(GuardianPid(JobDir())), SIGKILL);
  const v1::RankExited exited = AwaitExit();
  EXPECT_EQ(exited.exit().signal(), SIGKILL);
  EXPECT_TRUE(coordinator_->Await([](const auto& m) { return m.has_quiesced(); }));
  EXPECT_FALSE(IsAlive(started.pid()));
  RunJob(2, "exit 5");
  EXPECT_EQ(AwaitExit().exit().exit_code(), 5);
}

TEST_F(WorkerTest, AGuardianThatDiedWithTheWorkerIsReportedQuiesced) {
  RunJob(1, "exec sleep 60");
  KillWorker();
  ::kill(static_cast<pid_t>(GuardianPid(JobDir())), SIGKILL);
  StartWorker();
  const v1::Hello hello = AwaitHello();
  ASSERT_EQ(hello.hosted_size(), 1);
  EXPECT_TRUE(hello.hosted(0).quiesced());
  ASSERT_EQ(hello.hosted(0).exited_size(), 1);
  EXPECT_EQ(hello.hosted(0).exited(0).exit().signal(), SIGKILL);
}

TEST_F(WorkerTest, ARestartedCoordinatorIsFoundAtItsNewPort) {
  const auto started = RunJob(1, "exec sleep 60");
  coordinator_.reset();
  coordinator_ =
      std::make_unique<FakeCoordinatorForTest>(dir_.path(), FakeCoordinatorForTest::Options{});
  const v1::Hello hello = AwaitHello();
  ASSERT_EQ(hello.hosted_size(), 1);
  EXPECT_EQ(hello.hosted(0).started(0).pid(), started.pid());
  EXPECT_TRUE(IsAlive(started.pid()));
}

TEST_F(WorkerTest, AWorkerThatIsRefusedForItsVersionTriesUntilTheCoordinatorIsUpgraded) {
  const auto started = RunJob(1, "exec sleep 60");
  coordinator_.reset();
  coordinator_ = std::make_unique<FakeCoordinatorForTest>(
      dir_.path(), FakeCoordinatorForTest::Options{.protocol_version = 99});
  for (int i = 0; i < 3; ++i) AwaitHello();
  EXPECT_TRUE(IsAlive(worker_));
  coordinator_.reset();
  coordinator_ =
      std::make_unique<FakeCoordinatorForTest>(dir_.path(), FakeCoordinatorForTest::Options{});
  const v1::Hello hello = AwaitHello();
  ASSERT_EQ(hello.hosted_size(), 1);
  EXPECT_EQ(hello.hosted(0).started(0).pid(), started.pid()) << "its ranks noticed nothing";
}

TEST_F(WorkerTest, ASecondWorkerOfTheSameNameIsRefused) {
  AwaitHello();
  const pid_t second = SpawnWorker();
  int wait_status = 0;
  ASSERT_EQ(::waitpid(second, &wait_status, 0), second);
  EXPECT_EQ(ProcessExitFromWaitStatus(wait_status).exit_code, 1);
  EXPECT_TRUE(IsAlive(worker_));
}

TEST_F(WorkerTest, AJobWithoutReadableRecordsIsEnded) {
  const auto started = RunJob(1, "exec sleep 60");
  KillWorker();
  const std::int64_t guardian = GuardianPid(JobDir());
  std::ofstream(JobDir() + "/prepare.json") << "{";
  StartWorker();
  EXPECT_EQ(AwaitHello().hosted_size(), 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(JobDir()); }));
  EXPECT_FALSE(IsAlive(started.pid()));
  // Its last act was to say so; its exit follows.
  EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian); }));
}

TEST_F(WorkerTest, ABadJobIsRefusedForGood) {
  std::filesystem::create_directories(dir_ / "out");
  std::ofstream(dir_ / "out/job.json") << R"({"id":"ffffffffff","name":"other"})";
  Prepare(1, "exit 0");
  const v1::Prepared prepared = AwaitPrepared();
  EXPECT_FALSE(prepared.retryable());
  EXPECT_NE(prepared.error().find("belongs to job ffffffffff"), std::string::npos);
}

TEST_F(WorkerTest, ACommittedCheckpointGetsItsManifestAndOldOnesGo) {
  std::filesystem::create_directories(dir_ / "out/checkpoints/step-00000010-g1");
  std::filesystem::create_directories(dir_ / "out/checkpoints/step-00000005-g1");
  AwaitHello();
  v1::CoordinatorMessage message;
  v1::CheckpointCommitted* committed = message.mutable_checkpoint_committed();
  committed->set_job_id(kWorkerJob);
  committed->set_generation(1);
  committed->set_output_dir(dir_ / "out");
  committed->mutable_checkpoint()->set_step(10);
  committed->mutable_checkpoint()->set_directory("step-00000010-g1");
  committed->add_prune("step-00000005-g1");
  coordinator_->Send(message);
  const auto written = coordinator_->Await([](const auto& m) { return m.has_manifest_written(); });
  ASSERT_TRUE(written);
  EXPECT_EQ(written->manifest_written().error(), "");
  EXPECT_EQ(written->manifest_written().generation(), 1);
  ASSERT_EQ(written->manifest_written().pruned_size(), 1);
  EXPECT_EQ(written->manifest_written().pruned(0), "step-00000005-g1");
  EXPECT_TRUE(std::filesystem::exists(dir_ / "out/checkpoints/step-00000010-g1/manifest.json"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out/checkpoints/step-00000005-g1"));
}

TEST_F(WorkerTest, AThousandReadsOfALogOnHungStorageDoNotStopHeartbeats) {
  AwaitHello();
  const std::string log = dir_ / "hung/logs/1/rank-0.log";
  std::filesystem::create_directories(dir_ / "hung/logs/1");
  // While a lease is held on it, open(2) waits.
  const UniqueFd leased(::open(log.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::fcntl(leased.get(), F_SETSIG, SIGURG), 0);
  ASSERT_EQ(::fcntl(leased.get(), F_SETLEASE, F_WRLCK), 0);
  v1::CoordinatorMessage read;
  read.mutable_read_log()->set_job_id(kWorkerJob);
  read.mutable_read_log()->set_generation(1);
  read.mutable_read_log()->set_output_dir(dir_ / "hung");
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    read.mutable_read_log()->set_request_id(i);
    coordinator_->Send(read);
  }
  const auto refused = coordinator_->Await([](const auto& m) { return m.has_log_chunk(); });
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->log_chunk().error(), "");
  EXPECT_TRUE(refused->log_chunk().busy());
  EXPECT_TRUE(coordinator_->Await([](const auto& m) { return m.has_heartbeat(); }));
  // For the threads that wait in it, before the worker is asked to end.
  EXPECT_EQ(::fcntl(leased.get(), F_SETLEASE, F_UNLCK), 0);
  EXPECT_TRUE(coordinator_->Await([](const auto& m) { return m.has_heartbeat(); }));
}

// Under the umask of the worker's user, and of one that has none.
class PrivateFilesTest : public WorkerTest, public testing::WithParamInterface<mode_t> {
 protected:
  void SetUp() override {
    const mode_t before = ::umask(GetParam());
    WorkerTest::SetUp();
    ::umask(before);
  }

  std::string NodeDir() const { return ClusterPaths{dir_.path()}.NodeDir("n0"); }

  // The permissions of other users on the worker's files.
  std::vector<std::string> OpenToOthers() const {
    std::vector<std::string> open;
    const auto look = [&open](const std::filesystem::path& path) {
      struct stat info {};
      if (::lstat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0) open.push_back(path);
    };
    look(NodeDir());
    look(JobsDir());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(JobsDir()))
      look(entry.path());
    return open;
  }
};

TEST_P(PrivateFilesTest, TheEnvironmentOfAJobIsForItsUserAlone) {
  RunJob(1, "exit 3");
  AwaitExit();
  ASSERT_TRUE(std::filesystem::exists(JobDir() + "/spec.yaml"));
  ASSERT_TRUE(std::filesystem::exists(JobDir() + "/exits/g1-rank-0.json"));
  EXPECT_EQ(OpenToOthers(), std::vector<std::string>());
}

TEST_P(PrivateFilesTest, WhatAnOlderVersionLeftOpenIsClosedAtTheStart) {
  RunJob(1, "exec sleep 60");
  KillWorker();
  for (const std::string& path : {NodeDir(), JobsDir(), JobDir()}) ::chmod(path.c_str(), 0755);
  for (const char* name : {"/spec.yaml", "/guardian.log"}) ::chmod((JobDir() + name).c_str(), 0644);
  StartWorker();
  ASSERT_EQ(AwaitHello().hosted_size(), 1);
  EXPECT_EQ(OpenToOthers(), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Umasks, PrivateFilesTest, testing::Values(022, 0),
                         [](const auto& umask) { return umask.param == 0 ? "None" : "Usual"; });

}  // namespace
}  // namespace muster::worker
