// AgentRunner with real guardians and ranks (worker/guardian/testing/rank.cc in the trainer's
// place): what outlives a worker, and what outlives a guardian.

#include "worker/agent/agent_runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/locked_record.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/spawn.h"
#include "tests/support/eventually.h"
#include "worker/agent/job_records.h"
#include "worker/process/device_lock.h"
#include "worker/process/unix_socket.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const JobId kJob{"00c0ffee00"};

bool IsAlive(std::int64_t pid) {
  const auto info = ReadProcess(static_cast<pid_t>(pid));
  return info.ok() && info->state != 'Z' && info->state != 'X';
}

// A worker without its stream to the coordinator. Destroyed as if it had been killed: guardians and
// ranks go on.
class Worker {
 public:
  explicit Worker(const std::string& dir, Duration guardian_tick = std::chrono::seconds(1))
      : runner_(std::make_unique<AgentRunner>(
            loop_,
            AgentRunnerOptions{.jobs_dir = dir + "/jobs",
                               .devices_dir = dir,
                               .launch = {.trainer_path = MUSTER_RANK_FOR_TEST,
                                          .guardian_path = MUSTER_GUARDIAN_BINARY,
                                          .passed_through = {{"PATH", "/usr/bin:/bin"}},
                                          .devices = {{.device = {.id = "GPU-0", .fake = true}}}},
                               .guardian_tick = guardian_tick,
                               .flood_pause = std::chrono::milliseconds(100)},
            [this](WorkerMessage message) {
              const std::lock_guard lock(mutex_);
              said_.push_back(std::move(message));
            })) {
    std::promise<void> ready;
    loop_.Post([&] { runner_->Start([&] { ready.set_value(); }); });
    thread_ = std::thread([this] { loop_.Run(); });
    ready.get_future().wait();
  }

  ~Worker() {
    loop_.Stop();
    thread_.join();
  }

  void Order(const CoordinatorMessage& message) {
    loop_.Post([this, message] { runner_->Handle(message); });
  }

  // The next message of type T; those before it are skipped.
  template <typename T>
  T Await() {
    std::optional<T> found;
    EXPECT_TRUE(Eventually([&] {
      const std::lock_guard lock(mutex_);
      while (!said_.empty() && !found) {
        if (const T* one = std::get_if<T>(&said_.front())) found = *one;
        said_.pop_front();
      }
      return found.has_value();
    }));
    return found.value_or(T{});
  }

  HostedGeneration Hosted() {
    std::promise<std::vector<HostedGeneration>> hosted;
    loop_.Post([&] { hosted.set_value(runner_->Hosted()); });
    const auto all = hosted.get_future().get();
    return all.size() == 1 ? all[0] : HostedGeneration{};
  }

 private:
  EventLoop loop_;
  std::mutex mutex_;
  std::deque<WorkerMessage> said_;
  std::unique_ptr<AgentRunner> runner_;
  std::thread thread_;
};

class AgentRunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(dir_ / "model");
    worker_ = std::make_unique<Worker>(dir_.path());
  }

  void TearDown() override {
    worker_->Order(Release{kJob});
    worker_->Await<Released>();
  }

  void RestartWorker(Duration guardian_tick = std::chrono::seconds(1)) {
    worker_.reset();
    worker_ = std::make_unique<Worker>(dir_.path(), guardian_tick);
  }

  void SignalGuardian(int signal) {
    const auto text = ReadFile(dir_ / ("jobs/" + kJob.value + "/guardian.json"));
    ASSERT_TRUE(text.ok());
    ::kill(nlohmann::json::parse(*text).value("pid", 0), signal);
  }
  void KillGuardian() { SignalGuardian(SIGKILL); }

  // A generation of two ranks that do `on_assign`, with the node's GPU.
  void Order(Generation generation, const std::string& on_assign = "") {
    worker_->Order(PrepareOf(generation, on_assign));
  }

  Prepare PrepareOf(Generation generation, const std::string& on_assign = "") const {
    return {.job = kJob,
            .job_name = "test",
            .generation = generation,
            .spec_yaml = "name: test\nworkdir: " + dir_.path() + "\nenv: {ON_ASSIGN: \"" +
                         on_assign +
                         "\"}\ntrain: {model: {path: model}, data: {train: r.jsonl}, "
                         "schedule: {max_steps: 1}}\n",
            .output_dir = dir_ / "out",
            .ranks = {{0, 0}, {1, 1}},
            .hosts_master = true,
            .master_bind_address = "127.0.0.1",
            .devices = {"GPU-0"}};
  }

  // Two ranks that do `on_assign`; their pids.
  std::vector<std::int64_t> Run(Generation generation, const std::string& on_assign = "") {
    Order(generation, on_assign);
    EXPECT_EQ(worker_->Await<Prepared>().error, "");
    EXPECT_TRUE(IsRecordLocked(DeviceLockPath(dir_.path(), "GPU-0")));
    worker_->Order(Launch{.job = kJob, .generation = generation, .world_size = 2});
    std::vector<std::int64_t> pids(2);
    for (int i = 0; i < 2; ++i) {
      const auto started = worker_->Await<RankStarted>();
      EXPECT_EQ(started.generation, generation);
      pids.at(static_cast<std::size_t>(started.rank)) = started.pid;
    }
    EXPECT_TRUE(Eventually([&] {
      return LogOf(generation, 0).ends_with('\n') && LogOf(generation, 1).ends_with('\n');
    }));
    return pids;
  }

  std::string LogOf(Generation generation, int rank) const {
    const auto text = ReadFile(RankLogPath(dir_ / "out", generation, rank));
    return text.ok() ? *text : std::string();
  }

  static Abort Park(Generation generation, double seconds = 10) {
    return {.job = kJob, .generation = generation, .reason = "test", .park_seconds = seconds};
  }

  const TempDirForTest dir_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(AgentRunnerTest, SurvivorsServeTheNextGeneration) {
  const auto before = Run(1);
  ::kill(static_cast<pid_t>(before[0]), SIGKILL);
  const auto exited = worker_->Await<RankExited>();
  EXPECT_EQ(exited.rank, 0);
  ASSERT_TRUE(exited.last) << "its page outlives it";
  EXPECT_EQ(exited.last->rank, 0);
  worker_->Order(Park(1));
  EXPECT_THAT(worker_->Await<Quiesced>().parked_ranks, ElementsAre(1));
  const auto after = Run(2);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[0], before[0]);
  EXPECT_THAT(LogOf(2, 0), HasSubstr("assigned g2 rank 0 listening"));
}

TEST_F(AgentRunnerTest, AGpuThatAnotherProcessHasIsRefusedWithItsName) {
  UniqueFd gpu = OpenDeviceLock(dir_.path(), "GPU-0").value();
  ASSERT_TRUE(LockFile(gpu.get()).value());
  Order(1);
  const auto late = worker_->Await<Prepared>();
  EXPECT_EQ(late.error, "device GPU-0 is still held by another process");
  EXPECT_TRUE(late.retryable);
  gpu.reset();
  Run(2);
}

TEST_F(AgentRunnerTest, ARestartedWorkerKnowsOfParkedRanksAndGoesOnWithThem) {
  const auto before = Run(1);
  worker_->Order(Park(1));
  EXPECT_THAT(worker_->Await<Quiesced>().parked_ranks, ElementsAre(0, 1));
  RestartWorker();
  EXPECT_THAT(worker_->Hosted().parked_ranks, ElementsAre(0, 1));
  EXPECT_TRUE(worker_->Hosted().quiesced);
  EXPECT_THAT(worker_->Hosted().devices, ElementsAre("GPU-0"));
  EXPECT_TRUE(IsRecordLocked(DeviceLockPath(dir_.path(), "GPU-0")));
  EXPECT_EQ(Run(2), before);
}

TEST_F(AgentRunnerTest, AWorkerThatIsKilledWhileRanksAreToParkHearsHowItEnded) {
  const auto before = Run(1, "deaf");
  // Deaf, so they are ended after the deadline, with or without a listener.
  worker_->Order(Park(1, 0.2));
  EXPECT_TRUE(Eventually([&] { return LogOf(1, 1).find("\"park\"") != std::string::npos; }));
  RestartWorker();
  EXPECT_TRUE(Eventually([&] { return worker_->Hosted().quiesced; }));
  EXPECT_THAT(worker_->Hosted().parked_ranks, IsEmpty());
  EXPECT_FALSE(IsAlive(before[0]));
}

TEST_F(AgentRunnerTest, SegmentsOutliveTheirGuardian) {
  Run(1, "segment:a");
  worker_->Order(Park(1));
  EXPECT_THAT(worker_->Await<Quiesced>().parked_ranks, ElementsAre(0, 1));
  KillGuardian();
  const auto quiesced = worker_->Await<Quiesced>();
  EXPECT_THAT(quiesced.parked_ranks, IsEmpty()) << "they ended with it";
  Run(2);
  EXPECT_THAT(LogOf(2, 0), HasSubstr("rank 0 listening a=of-a"));
  EXPECT_THAT(LogOf(2, 1), HasSubstr("rank 1 a=of-a"));
}

TEST_F(AgentRunnerTest, SegmentsOutliveWorkerAndThenGuardian) {
  Run(1, "segment:a");
  RestartWorker();
  KillGuardian();
  worker_->Await<Quiesced>();
  Run(2);
  EXPECT_THAT(LogOf(2, 1), HasSubstr("rank 1 a=of-a"));
}

// So short that the test is; so long that a guardian answers.
constexpr std::chrono::milliseconds kTick{150};

TEST_F(AgentRunnerTest, AStoppedGuardianIsEndedAndItsRanksAreProvedGone) {
  const auto before = Run(1);
  RestartWorker(kTick);
  SignalGuardian(SIGSTOP);
  worker_->Order(Park(1));
  const auto quiesced = worker_->Await<Quiesced>();
  EXPECT_THAT(quiesced.parked_ranks, IsEmpty());
  EXPECT_THAT(quiesced.unkillable_pids, IsEmpty());
  for (const std::int64_t pid : before) EXPECT_FALSE(IsAlive(pid));
}

TEST_F(AgentRunnerTest, AStoppedGuardianThatARestartedWorkerFindsIsEndedToo) {
  const auto before = Run(1);
  SignalGuardian(SIGSTOP);
  RestartWorker(kTick);
  EXPECT_TRUE(Eventually([&] { return worker_->Hosted().quiesced; }));
  for (const std::int64_t pid : before) EXPECT_FALSE(IsAlive(pid));
}

TEST_F(AgentRunnerTest, AnAbortThatKeepsNoProcessEndsParkedRanks) {
  const auto before = Run(1);
  worker_->Order(Park(1));
  EXPECT_THAT(worker_->Await<Quiesced>().parked_ranks, ElementsAre(0, 1));
  worker_->Order(Abort{.job = kJob, .generation = 1});
  EXPECT_THAT(worker_->Await<Quiesced>().parked_ranks, IsEmpty());
  for (const std::int64_t pid : before) EXPECT_FALSE(IsAlive(pid));
}

// What an owner can put in the place of a job's guardian: it names ever more ranks until its
// connection is closed, and does not run again.
class Impostor {
 public:
  static constexpr int kMost = 20'000;

  explicit Impostor(const std::string& job_dir)
      : record_(LockedRecord::Acquire(job_dir + "/" + kGuardianRecordName).value()),
        listening_(ListenPackets(job_dir, kGuardianSocketName).value()),
        thread_([this] { Run(); }) {}
  ~Impostor() { thread_.join(); }

  int sent() const { return sent_; }
  bool closed() const { return closed_; }

 private:
  void Run() {
    Result<PacketSocket> worker = Unavailable("");
    Eventually([&] { return (worker = AcceptPackets(listening_.get())).ok(); });
    if (!worker.ok()) return;
    (void)worker->Send(Encode(GuardianEvent(GuardianHello{.job = kJob.value, .generation = 1})));
    (void)worker->Send(Encode(GuardianEvent(GuardianSynced{})));
    for (; sent_ < kMost && !closed_; ++sent_)
      closed_ = !worker
                     ->Send(Encode(GuardianEvent(
                         GuardianRankStarted{.generation = 1, .rank = sent_, .pid = 1})))
                     .ok();
    listening_.reset();
    record_->Remove();
    record_.reset();
  }

  std::optional<LockedRecord> record_;
  UniqueFd listening_;
  std::atomic<int> sent_ = 0;
  std::atomic<bool> closed_ = false;
  std::thread thread_;
};

TEST_F(AgentRunnerTest, WhatFloodsInAGuardiansPlaceIsCutOffAndAddsNoRanks) {
  const std::string job_dir = dir_ / ("jobs/" + kJob.value);
  worker_.reset();
  std::filesystem::create_directories(job_dir);
  ASSERT_TRUE(WriteJobRecord(job_dir, PrepareOf(1)).ok());
  Impostor impostor(job_dir);
  worker_ = std::make_unique<Worker>(dir_.path());
  EXPECT_TRUE(Eventually([&] { return impostor.closed() || impostor.sent() == Impostor::kMost; }));
  EXPECT_TRUE(impostor.closed()) << "after " << impostor.sent();
  EXPECT_LE(worker_->Hosted().started.size(), 2u);
}

// A guardian of another version, in whose packets this worker does not find its way.
class StrangeGuardian {
 public:
  explicit StrangeGuardian(const std::string& job_dir)
      : record_(LockedRecord::Acquire(job_dir + "/" + kGuardianRecordName).value()),
        listening_(ListenPackets(job_dir, kGuardianSocketName).value()),
        thread_([this] { Run(); }) {}
  ~StrangeGuardian() { thread_.join(); }

 private:
  void Run() {
    Result<PacketSocket> worker = Unavailable("");
    Eventually([&] { return (worker = AcceptPackets(listening_.get())).ok(); });
    if (!worker.ok()) return;
    (void)worker->Send(Encode(GuardianEvent(GuardianHello{
        .job = kJob.value, .generation = 1, .answers_pings = true, .packets = {98, 99}})));
    (void)worker->Send(
        Encode(GuardianEvent(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 1})));
    (void)worker->Send(Encode(GuardianEvent(GuardianSynced{})));
    // Until the worker has given it up.
    while (worker->Receive(Deadline::After(std::chrono::seconds(10))).ok()) continue;
    listening_.reset();
    record_->Remove();
    record_.reset();
  }

  std::optional<LockedRecord> record_;
  UniqueFd listening_;
  std::thread thread_;
};

TEST_F(AgentRunnerTest, AGuardianOfAVersionOutsideTheWindowIsNotTakenOver) {
  const std::string job_dir = dir_ / ("jobs/" + kJob.value);
  worker_.reset();
  std::filesystem::create_directories(job_dir);
  ASSERT_TRUE(WriteJobRecord(job_dir, PrepareOf(1)).ok());
  const StrangeGuardian guardian(job_dir);
  worker_ = std::make_unique<Worker>(dir_.path(), std::chrono::milliseconds(20));
  EXPECT_TRUE(Eventually([&] { return worker_->Hosted().quiesced; }));
  EXPECT_TRUE(worker_->Hosted().started.empty()) << "nothing that it said counts";
}

// Storage of other jobs that does not answer: named pipes without a writer, in which open(2) waits.
class HungStorage {
 public:
  explicit HungStorage(std::string dir) : dir_(std::move(dir)) {}
  ~HungStorage() {
    // With both ends open here, nothing waits any more.
    for (const std::string& pipe : pipes_)
      ends_.emplace_back(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
    for (const std::string& pipe : pipes_) ::unlink(pipe.c_str());
  }

  // A separate job, whose log is such a pipe.
  ReadLog LogRead(std::uint64_t request) {
    Hang("log/logs/1/rank-0.log");
    return {.request_id = request,
            .job = {"00c0ffee99"},
            .generation = 1,
            .rank = 0,
            .output_dir = dir_ + "/log"};
  }
  // A separate job, whose output directory's claim is such a pipe.
  Prepare Preparation(int index) {
    const std::string id = "00c0ffee1" + std::to_string(index);
    Hang(id + "/job.json");
    return {.job = {id},
            .job_name = "hung",
            .generation = 1,
            .spec_yaml = "name: hung\nworkdir: " + dir_ + "\ncommand: [sh]\n",
            .output_dir = dir_ + "/" + id,
            .ranks = {{0, 0}}};
  }

 private:
  void Hang(const std::string& file) {
    const std::filesystem::path path = dir_ + "/" + file;
    if (std::filesystem::exists(path)) return;
    std::filesystem::create_directories(path.parent_path());
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    pipes_.push_back(path);
  }

  const std::string dir_;
  std::vector<std::string> pipes_;
  std::vector<UniqueFd> ends_;
};

TEST_F(AgentRunnerTest, AJobGoesOnWhileTheStorageOfOthersHangs) {
  constexpr int kHungJobs = 4;
  HungStorage hung(dir_ / "hung");
  for (int i = 0; i < kHungJobs; ++i) worker_->Order(hung.Preparation(i));
  for (int i = 0; i < 1000; ++i) worker_->Order(hung.LogRead(static_cast<std::uint64_t>(i)));
  const auto before = Run(1);
  KillGuardian();
  EXPECT_THAT(worker_->Await<Quiesced>().unkillable_pids, IsEmpty());
  for (const std::int64_t pid : before) EXPECT_FALSE(IsAlive(pid));
}

// Its environment marks it as the job's. A coordinator that places the job again could launch ranks
// with the same mark, and the end of what is left would end them.
TEST_F(AgentRunnerTest, WhatIsLeftOfAJobWithoutRecordsIsGoneBeforeTheCoordinatorHears) {
  const std::string job_dir = dir_ / "jobs/00c0ffee77";
  std::filesystem::create_directories(job_dir);
  const auto left = SpawnChild(
      {.argv = {"/bin/sleep", "60"},
       .environment = {"TORCHELASTIC_ERROR_FILE=" + job_dir + "/errors/g1-rank-0.json"}});
  ASSERT_TRUE(left.ok());
  RestartWorker();
  EXPECT_FALSE(IsAlive(*left));
  EXPECT_FALSE(std::filesystem::exists(job_dir));
  ::kill(*left, SIGKILL);
  ::waitpid(*left, nullptr, 0);
}

}  // namespace
}  // namespace muster::worker
