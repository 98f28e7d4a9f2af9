// What muster-worker detects on its node and on others, and faults of the node, as a real process.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/unique_fd.h"
#include "common/process/exit_status.h"
#include "worker/health/kernel_log.h"
#include "worker/service/testing/worker_fixture.h"

namespace muster::worker {
namespace {

class WorkerNodeTest : public WorkerTest {
 protected:
  WorkerNodeTest() {
    EXPECT_EQ(::mkfifo((dir_ / "kmsg").c_str(), 0600), 0);
    kernel_ = UniqueFd(::open((dir_ / "kmsg").c_str(), O_RDWR | O_CLOEXEC));
  }
  std::vector<std::string> MoreArguments() const override {
    return {"--address",          "127.0.0.2",     "--kernel-log",
            dir_ / "kmsg",        "--nvml",        "",
            "--failure-domain",   "rack1",         "--allow-faults",
            "--stop-notice-file", dir_ / "notice", "--drain-on-term=20"};
  }

  void Kernel(const std::string& text) {
    const std::string line = "4,1,2,-;" + text + "\n";
    EXPECT_EQ(::write(kernel_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  v1::NodeNotice AwaitNotice(v1::NodeNoticeKind kind) {
    const auto message = coordinator_->Await([kind](const v1::WorkerMessage& m) {
      return m.has_node_notice() && m.node_notice().kind() == kind;
    });
    EXPECT_TRUE(message.has_value());
    return message ? message->node_notice() : v1::NodeNotice();
  }
  v1::ProbeResult ProbeTo(const std::string& address, int port) {
    v1::CoordinatorMessage message;
    message.mutable_probe()->set_probe_id(7);
    message.mutable_probe()->set_node("n1");
    message.mutable_probe()->set_address(address);
    message.mutable_probe()->set_port(port);
    message.mutable_probe()->set_timeout_ms(5000);
    coordinator_->Send(message);
    const auto answer =
        coordinator_->Await([](const v1::WorkerMessage& m) { return m.has_probe_result(); });
    EXPECT_TRUE(answer.has_value());
    return answer ? answer->probe_result() : v1::ProbeResult();
  }
  std::string Inject(const std::string& kind) {
    v1::CoordinatorMessage message;
    message.mutable_inject_fault()->set_request_id(9);
    message.mutable_inject_fault()->set_kind(kind);
    coordinator_->Send(message);
    const auto done =
        coordinator_->Await([](const v1::WorkerMessage& m) { return m.has_fault_done(); });
    EXPECT_TRUE(done && done->fault_done().request_id() == 9);
    return done ? done->fault_done().error() : "no answer";
  }
  ProcessExit AwaitWorkersEnd() {
    int wait_status = 0;
    EXPECT_EQ(::waitpid(worker_, &wait_status, 0), worker_);
    worker_ = 0;
    return ProcessExitFromWaitStatus(wait_status);
  }
  // Ends the job and waits until the node has proved it.
  void AbortJob() {
    v1::CoordinatorMessage abort;
    abort.mutable_abort()->set_job_id(kWorkerJob);
    abort.mutable_abort()->set_generation(1);
    coordinator_->Send(abort);
    EXPECT_TRUE(coordinator_->Await([](const auto& m) { return m.has_quiesced(); }));
  }

  UniqueFd kernel_;
};

TEST_F(WorkerNodeTest, ReportsItsAddressAndThatItAllowsFaults) {
  const v1::Hello hello = AwaitHello();
  EXPECT_EQ(hello.address(), "127.0.0.2");
  EXPECT_EQ(hello.failure_domain(), "rack1");
  EXPECT_TRUE(hello.allows_faults());
}

TEST_F(WorkerNodeTest, ProbesOthersAndIsFoundAtItsAddress) {
  const v1::Hello hello = AwaitHello();
  EXPECT_EQ(ProbeTo(hello.address(), hello.metrics_port()).outcome(), v1::PROBE_OUTCOME_ANSWERED);
  EXPECT_EQ(ProbeTo("127.0.0.3", hello.metrics_port()).outcome(), v1::PROBE_OUTCOME_REFUSED);
}

TEST_F(WorkerNodeTest, AFatalXidIsReportedAndReportedAgainToTheNextCoordinator) {
  AwaitHello();
  Kernel("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
  EXPECT_TRUE(AwaitNotice(v1::NODE_NOTICE_KIND_XID).fatal());
  coordinator_.reset();
  coordinator_ =
      std::make_unique<FakeCoordinatorForTest>(dir_.path(), FakeCoordinatorForTest::Options{});
  EXPECT_TRUE(AwaitNotice(v1::NODE_NOTICE_KIND_XID).fatal());
}

TEST_F(WorkerNodeTest, ARankThatTheKernelEndedForLackOfMemoryIsReportedAsSuch) {
  if (!InInitialPidNamespace()) GTEST_SKIP() << "the kernel's log has other process ids than we";
  const auto started = RunJob(1, "exec sleep 60");
  Kernel("Out of memory: Killed process " + std::to_string(started.pid()) +
         " (sleep) total-vm:1kB");
  ::kill(static_cast<pid_t>(started.pid()), SIGKILL);
  const v1::RankExited exited = AwaitExit();
  EXPECT_TRUE(exited.out_of_memory());
  ASSERT_EQ(exited.facts_size(), 1);
  EXPECT_NE(exited.facts(0).find("out of memory on the host"), std::string::npos);
}

TEST_F(WorkerNodeTest, AKilledRankWithoutSuchALineIsNotOutOfMemory) {
  const auto started = RunJob(1, "exec sleep 60");
  Kernel("Out of memory: Killed process 1 (init) total-vm:1kB");
  ::kill(static_cast<pid_t>(started.pid()), SIGKILL);
  EXPECT_FALSE(AwaitExit().out_of_memory());
}

TEST_F(WorkerNodeTest, AStopNoticeAsksForADrain) {
  AwaitHello();
  std::ofstream(dir_ / "notice.new") << "45\n";
  std::filesystem::rename(dir_ / "notice.new", dir_ / "notice");
  const v1::NodeNotice notice = AwaitNotice(v1::NODE_NOTICE_KIND_DRAIN);
  EXPECT_GT(notice.deadline_seconds(), 30);
  EXPECT_LE(notice.deadline_seconds(), 45);
}

TEST_F(WorkerNodeTest, SigtermDrainsAndTheWorkerLeavesWhenNothingRuns) {
  const auto started = RunJob(1, "exec sleep 60");
  ::kill(worker_, SIGTERM);
  const v1::NodeNotice notice = AwaitNotice(v1::NODE_NOTICE_KIND_DRAIN);
  EXPECT_GT(notice.deadline_seconds(), 10);
  EXPECT_TRUE(IsAlive(worker_));
  EXPECT_TRUE(IsAlive(started.pid()));
  AbortJob();
  EXPECT_EQ(AwaitWorkersEnd(), ProcessExit{});
}

TEST_F(WorkerNodeTest, ASecondSigtermEndsTheWorkerAtOnceAndRanksGoOn) {
  const auto started = RunJob(1, "exec sleep 60");
  ::kill(worker_, SIGTERM);
  AwaitNotice(v1::NODE_NOTICE_KIND_DRAIN);
  ::kill(worker_, SIGTERM);
  EXPECT_EQ(AwaitWorkersEnd(), ProcessExit{});
  EXPECT_TRUE(IsAlive(started.pid()));
}

class FakeGpusTest : public WorkerTest {
  std::vector<std::string> MoreArguments() const override {
    std::ofstream(dir_ / "gpus.yaml") << "- {count: 2, kind: H100, memory: 80GB, numa: 0}\n";
    return {"--fake-gpus",
            dir_ / "gpus.yaml",
            "--label",
            "pool=a",
            "--label",
            "zone=z1",
            "--topology",
            "rack=r7,switch=s2",
            "--cpus",
            "12",
            "--memory",
            "64GB",
            "--oversubscribe-gpus",
            "2"};
  }
};

TEST_F(FakeGpusTest, AreReportedWithAllElseThatTheNodeHas) {
  const v1::Hello hello = AwaitHello();
  const v1::NodeInventory& inventory = hello.inventory();
  ASSERT_EQ(inventory.devices_size(), 4);
  EXPECT_EQ(inventory.devices(1).id(), "FAKE-n0-1");
  EXPECT_EQ(inventory.devices(3).id(), "FAKE-n0-1#2");
  EXPECT_EQ(inventory.devices(3).kind(), "H100");
  EXPECT_EQ(inventory.devices(3).memory_bytes(), 80'000'000'000u);
  EXPECT_TRUE(inventory.devices(3).fake());
  EXPECT_TRUE(inventory.devices(3).shared());
  EXPECT_EQ(inventory.cpus(), 12);
  EXPECT_EQ(inventory.memory_bytes(), 64'000'000'000u);
  ASSERT_EQ(inventory.labels_size(), 2);
  EXPECT_EQ(inventory.labels(1).key(), "zone");
  EXPECT_EQ(inventory.rack(), "r7");
  EXPECT_EQ(inventory.switch_(), "s2");
  EXPECT_EQ(hello.failure_domain(), "r7");
}

TEST_F(FakeGpusTest, ARankKnowsThatItsGpuIsFake) {
  std::ofstream(dir_ / "script.sh") << "echo $CUDA_VISIBLE_DEVICES $MUSTER_FAKE_GPUS >seen\n";
  v1::CoordinatorMessage message;
  *message.mutable_prepare() = MakePrepare(1, "rank0");
  message.mutable_prepare()->set_spec_yaml(message.prepare().spec_yaml() +
                                           "resources: {device: cuda}\n");
  message.mutable_prepare()->add_devices("FAKE-n0-1");
  coordinator_->Send(message);
  const v1::Prepared prepared = AwaitPrepared();
  EXPECT_EQ(prepared.error(), "");
  Launch(1, prepared.master_port());
  AwaitExit();
  EXPECT_EQ(ReadFile(dir_ / "seen").value(), "FAKE-n0-1 1\n");
}

TEST_F(WorkerTest, WithoutFlagsItOffersTheProcessorsAndTheMemoryThatItMayUse) {
  const v1::NodeInventory inventory = AwaitHello().inventory();
  EXPECT_GE(inventory.cpus(), 2) << "one per slot";
  EXPECT_GT(inventory.memory_bytes(), 1u << 20);
  EXPECT_EQ(inventory.labels_size(), 0);
}

class PilotNodeTest : public WorkerNodeTest {
  std::vector<std::string> MoreArguments() const override {
    auto arguments = WorkerNodeTest::MoreArguments();
    arguments.insert(arguments.end(), {"--pilot", "p1"});
    return arguments;
  }
};

TEST_F(PilotNodeTest, ASigtermThatItsScriptPassesOnAgainIsTheSameOne) {
  RunJob(1, "exec sleep 60");
  ::kill(worker_, SIGTERM);
  AwaitNotice(v1::NODE_NOTICE_KIND_DRAIN);
  ::kill(worker_, SIGTERM);
  AbortJob();  // which a worker that had left would not hear
  EXPECT_EQ(AwaitWorkersEnd(), ProcessExit{});
}

TEST_F(WorkerNodeTest, KillNodeEndsEverythingOfTheNode) {
  const auto started = RunJob(1, "sleep 60 & echo $! >child.new; mv child.new child; wait");
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(dir_ / "child"); }));
  const std::int64_t child = std::stoll(ReadFile(dir_ / "child").value());
  const std::int64_t guardian = GuardianPid(JobDir());
  EXPECT_EQ(Inject("kill-node"), "");
  EXPECT_EQ(AwaitWorkersEnd(), (ProcessExit{.signal = SIGKILL}));
  for (const std::int64_t pid : {started.pid(), child, guardian})
    EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); })) << pid;
}

TEST_F(WorkerNodeTest, StopWorkerStopsItUntilItIsContinued) {
  AwaitHello();
  EXPECT_EQ(Inject("stop-worker"), "");
  EXPECT_TRUE(Eventually([&] { return ReadProcess(worker_)->state == 'T'; }));
  ::kill(worker_, SIGCONT);
  EXPECT_NE(Inject("dance").find("unknown node fault 'dance'"), std::string::npos);
}

TEST_F(WorkerTest, AWorkerWithoutTheFlagTakesNoFaults) {
  AwaitHello();
  v1::CoordinatorMessage message;
  message.mutable_inject_fault()->set_request_id(9);
  message.mutable_inject_fault()->set_kind("kill-node");
  coordinator_->Send(message);
  const auto done = coordinator_->Await([](const auto& m) { return m.has_fault_done(); });
  ASSERT_TRUE(done);
  EXPECT_NE(done->fault_done().error().find("--allow-faults"), std::string::npos);
  EXPECT_TRUE(IsAlive(worker_));
}

}  // namespace
}  // namespace muster::worker
