// A muster-worker as a real process under a fake coordinator, in a directory of its own, with
// command jobs. Tests only.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/json.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/spawn.h"
#include "tests/support/eventually.h"
#include "worker/service/testing/fake_coordinator.h"

namespace muster::worker {

inline constexpr char kWorkerJob[] = "00c0ffee00";

inline bool IsAlive(std::int64_t pid) {
  const auto info = ReadProcess(static_cast<pid_t>(pid));
  return info.ok() && info->state != 'Z' && info->state != 'X';
}

class WorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    coordinator_ =
        std::make_unique<FakeCoordinatorForTest>(dir_.path(), FakeCoordinatorForTest::Options{});
    StartWorker();
  }

  // What a test's worker is started with beside the usual.
  virtual std::vector<std::string> MoreArguments() const { return {}; }

  void TearDown() override {
    if (worker_ > 0) {
      // Not SIGTERM, which may ask for a drain.
      ::kill(worker_, SIGINT);
      ::waitpid(worker_, nullptr, 0);
    }
    // Guardians outlive their worker on purpose.
    std::error_code ignored;
    for (const auto& job : std::filesystem::directory_iterator(JobsDir(), ignored))
      EndGuardian(job.path().string());
  }

  std::string JobsDir() const { return ClusterPaths{dir_.path()}.JobsDir("n0"); }
  std::string JobDir() const { return JobsDir() + "/" + kWorkerJob; }

  std::int64_t GuardianPid(const std::string& job_dir) const {
    const auto text = ReadFile(job_dir + "/guardian.json");
    if (!text.ok()) return 0;
    const auto json = nlohmann::json::parse(*text, nullptr, false);
    return json.is_object() ? json.value("pid", 0) : 0;
  }

  void EndGuardian(const std::string& job_dir) const {
    const std::int64_t pid = GuardianPid(job_dir);
    if (pid <= 0 || !IsAlive(pid)) return;
    ::kill(static_cast<pid_t>(pid), SIGTERM);
    EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }));
  }

  pid_t SpawnWorker() const {
    std::vector<std::string> argv = {
        MUSTER_WORKER_BINARY, "--dir",    dir_.path(), "--node", "n0", "--slots", "2",
        "--trainer",          "/bin/true"};
    for (const std::string& argument : MoreArguments()) argv.push_back(argument);
    const auto pid = SpawnChild({.argv = argv,
                                 .environment = {"PATH=/usr/bin:/bin", "HOME=/root"},
                                 .output_fd = 2,
                                 .die_with_parent = true});
    EXPECT_TRUE(pid.ok()) << pid.status().ToString();
    return pid.ok() ? *pid : 0;
  }
  void StartWorker() { worker_ = SpawnWorker(); }
  void KillWorker() {
    ::kill(worker_, SIGKILL);
    ::waitpid(worker_, nullptr, 0);
    worker_ = 0;
  }

  // A command job whose only rank runs `script`.
  void Prepare(Generation generation, const std::string& script,
               const std::string& rendezvous = "rank0") {
    std::ofstream(dir_ / "script.sh") << script << "\n";
    v1::CoordinatorMessage message;
    *message.mutable_prepare() = MakePrepare(generation, rendezvous);
    coordinator_->Send(message);
  }
  v1::Prepare MakePrepare(Generation generation, const std::string& rendezvous) const {
    v1::Prepare prepare;
    prepare.set_job_id(kWorkerJob);
    prepare.set_job_name("test");
    prepare.set_generation(generation);
    prepare.set_spec_yaml(
        "name: test\nworkdir: " + dir_.path() +
        "\nenv: {COLOUR: blue}\ncommand: [sh, script.sh]\nrendezvous: " + rendezvous + "\n");
    prepare.set_output_dir(dir_ / "out");
    prepare.add_ranks()->set_rank(0);
    prepare.set_hosts_master(true);
    prepare.set_master_bind_address("127.0.0.1");
    return prepare;
  }

  v1::Prepared AwaitPrepared() {
    const auto message =
        coordinator_->Await([](const v1::WorkerMessage& m) { return m.has_prepared(); });
    EXPECT_TRUE(message.has_value());
    return message ? message->prepared() : v1::Prepared();
  }

  void Launch(Generation generation, int port) {
    v1::CoordinatorMessage message;
    v1::Launch* launch = message.mutable_launch();
    launch->set_job_id(kWorkerJob);
    launch->set_generation(generation);
    launch->set_master_address("127.0.0.1");
    launch->set_master_port(port);
    launch->set_world_size(1);
    launch->set_node_count(1);
    launch->set_local_world_size(1);
    coordinator_->Send(message);
  }

  v1::RankStarted RunJob(Generation generation, const std::string& script) {
    Prepare(generation, script);
    const v1::Prepared prepared = AwaitPrepared();
    EXPECT_EQ(prepared.error(), "");
    Launch(generation, prepared.master_port());
    const auto message =
        coordinator_->Await([](const v1::WorkerMessage& m) { return m.has_rank_started(); });
    EXPECT_TRUE(message.has_value());
    return message ? message->rank_started() : v1::RankStarted();
  }

  v1::RankExited AwaitExit() {
    const auto message =
        coordinator_->Await([](const v1::WorkerMessage& m) { return m.has_rank_exited(); });
    EXPECT_TRUE(message.has_value());
    return message ? message->rank_exited() : v1::RankExited();
  }

  v1::Hello AwaitHello() {
    const auto message =
        coordinator_->Await([](const v1::WorkerMessage& m) { return m.has_hello(); });
    EXPECT_TRUE(message.has_value());
    return message ? message->hello() : v1::Hello();
  }

  const TempDirForTest dir_;
  std::unique_ptr<FakeCoordinatorForTest> coordinator_;
  pid_t worker_ = 0;
};

}  // namespace muster::worker
