// Processes that serve several generations: keeping, assigning, standbys and segments, with real
// processes (testing/rank.cc).

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/process/cpu_affinity.h"
#include "worker/guardian/testing/guardian_testing.h"

namespace muster {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class AssignmentTest : public GuardianTest {
 protected:
  GuardianLaunch Rank(Generation generation, int rank, const std::string& on_assign = "",
                      std::vector<int> node_ranks = {0, 1}) const {
    return {.generation = generation,
            .rank = rank,
            .argv = {MUSTER_RANK_FOR_TEST},
            .environment = {"MUSTER_ASSIGN=1", "MUSTER_CONTROL_FD=3",
                            "RANK=" + std::to_string(rank), "ON_ASSIGN=" + on_assign},
            .working_directory = dir_.path(),
            .log_path = Log(generation, rank),
            .control = true,
            .node_ranks = std::move(node_ranks)};
  }

  std::string Log(Generation generation, int rank) const {
    return dir_ / ("g" + std::to_string(generation) + "-" + std::to_string(rank) + ".log");
  }

  GuardianStandby Standby(int count, bool at_once) const {
    GuardianLaunch launch = Rank(0, 0);
    launch.log_path = dir_ / "standby.log";
    return {.count = count, .at_once = at_once, .launch = launch};
  }

  // Starts a rank and waits until it has taken its assignment; its pid.
  pid_t Run(const GuardianLaunch& launch) {
    Send(launch);
    const auto started = Expect<GuardianRankStarted>();
    EXPECT_EQ(started.generation, launch.generation);
    EXPECT_EQ(started.rank, launch.rank);
    AwaitReport(launch.rank, "formed");
    return static_cast<pid_t>(started.pid);
  }

  void AwaitReport(int rank, const std::string& type) {
    for (;;) {
      const auto report = Expect<GuardianReport>();
      if (report.json.empty()) return;
      if (report.rank == rank && nlohmann::json::parse(report.json)["type"] == type) return;
    }
  }

  GuardianQuiesced Park(Generation generation, std::vector<int> kill_ranks = {},
                        double seconds = 10) {
    Send(GuardianAbort{.generation = generation,
                       .reason = "a peer is gone",
                       .park_seconds = seconds,
                       .kill_ranks = std::move(kill_ranks)});
    return Expect<GuardianQuiesced>();
  }

  // "Cpus_allowed_list" of a process, as the kernel has it.
  static std::string ProcessorsOf(pid_t pid) {
    const std::string status = Text("/proc/" + std::to_string(pid) + "/status");
    const std::string key = "Cpus_allowed_list:\t";
    const std::size_t at = status.find(key);
    if (at == std::string::npos) return "";
    return status.substr(at + key.size(), status.find('\n', at) - at - key.size());
  }

  static std::string Text(const std::string& path) {
    const auto text = ReadFile(path);
    return text.ok() ? *text : std::string();
  }
  std::string LogText(Generation generation, int rank) const { return Text(Log(generation, rank)); }

  // The processes below the guardian.
  std::vector<pid_t> Living() const {
    std::vector<pid_t> pids;
    for (const ProcessId& id : LivingDescendants(ReadProcessTable(), guardian_pid_))
      pids.push_back(id.pid);
    return pids;
  }

  // A standby that has not reported so yet is skipped.
  bool AllAreReady() const {
    const std::vector<pid_t> living = Living();
    return std::all_of(living.begin(), living.end(), [](pid_t pid) {
      const Result<std::string> name = ReadFile("/proc/" + std::to_string(pid) + "/comm");
      return name.ok() && *name == "told-ready\n";
    });
  }

  template <typename T>
  std::vector<T> Others() const {
    std::vector<T> found;
    for (const GuardianEvent& event : others_)
      if (const T* one = std::get_if<T>(&event)) found.push_back(*one);
    return found;
  }
};

TEST_F(AssignmentTest, ANewProcessGetsItsRankByAssignment) {
  Send(GuardianPrepare{
      .generation = 1, .master = MasterSocket::kListen, .bind_address = "127.0.0.1"});
  Expect<GuardianPrepared>();
  GuardianLaunch launch = Rank(1, 0);
  launch.listen = true;
  launch.rendezvous_token = "aabb";
  Run(launch);
  EXPECT_EQ(LogText(1, 0), "assigned g1 rank 0 listening token aabb\n");
}

TEST_F(AssignmentTest, ASurvivorKeepsItsProcessAndServesTheNextGeneration) {
  Prepare(1);
  const pid_t dead = Run(Rank(1, 0));
  const pid_t survivor = Run(Rank(1, 1));
  ::kill(dead, SIGKILL);
  EXPECT_EQ(Expect<GuardianRankExited>().rank, 0);
  const auto quiesced = Park(1);
  EXPECT_THAT(quiesced.parked_ranks, ElementsAre(1));
  EXPECT_THAT(quiesced.unkillable_pids, IsEmpty());
  EXPECT_THAT(LogText(1, 1), HasSubstr("told to park: a peer is gone"));
  Prepare(2);
  EXPECT_TRUE(IsAlive(survivor));
  const pid_t fresh = Run(Rank(2, 0));
  EXPECT_NE(fresh, survivor) << "rank 1 is left to the process that had it";
  EXPECT_EQ(Run(Rank(2, 1)), survivor);
  EXPECT_EQ(LogText(2, 1), "assigned g2 rank 1\n");
}

TEST_F(AssignmentTest, ASurvivorIsKeptToTheProcessorsOfItsAssignmentAndThenToAllAgain) {
  const int cpu = AllowedCpus().front();
  Prepare(1);
  GuardianLaunch launch = Rank(1, 0, "", {0});
  launch.cpus = {cpu};
  const pid_t pid = Run(launch);
  EXPECT_EQ(ProcessorsOf(pid), std::to_string(cpu)) << "from its start";
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0));
  Prepare(2);
  EXPECT_EQ(Run(Rank(2, 0, "", {0})), pid);
  EXPECT_EQ(ProcessorsOf(pid), ProcessorsOf(::getpid())) << "without a word it may use all";
  EXPECT_THAT(Park(2).parked_ranks, ElementsAre(0));
  Prepare(3);
  launch = Rank(3, 0, "", {0});
  launch.cpus = {cpu};
  EXPECT_EQ(Run(launch), pid);
  EXPECT_EQ(ProcessorsOf(pid), std::to_string(cpu));
}

TEST_F(AssignmentTest, AParkedProcessTakesAnotherRankWhereItsOwnIsNotLaunched) {
  Prepare(1);
  const pid_t process = Run(Rank(1, 1));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(1));
  Prepare(2);
  EXPECT_EQ(Run(Rank(2, 0, "", {0})), process);
}

TEST_F(AssignmentTest, WhatTheLaunchesLeaveOverIsEnded) {
  Prepare(1);
  const pid_t zero = Run(Rank(1, 0));
  const pid_t one = Run(Rank(1, 1));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0, 1));
  Prepare(2);
  EXPECT_EQ(Run(Rank(2, 0, "", {0})), zero);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(one); }));
  Send(GuardianAbort{.generation = 2});
  Expect<GuardianQuiesced>();
  EXPECT_THAT(Others<GuardianRankExited>(),
              ElementsAre(testing::Field(&GuardianRankExited::rank, 0)))
      << "it was no rank of any generation";
}

TEST_F(AssignmentTest, AStoppedRankIsKilledAndNotKept) {
  Prepare(1);
  const pid_t stopped = Run(Rank(1, 0));
  Run(Rank(1, 1));
  ::kill(stopped, SIGSTOP);
  EXPECT_THAT(Park(1, {}, 0.2).parked_ranks, ElementsAre(1));
  EXPECT_FALSE(IsAlive(stopped));
  const auto exits = Others<GuardianRankExited>();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].rank, 0);
  EXPECT_TRUE(exits[0].end.ended);
}

TEST_F(AssignmentTest, ANamedRankIsKilledAtOnceEvenIfItIsStopped) {
  Prepare(1);
  const pid_t hung = Run(Rank(1, 0));
  Run(Rank(1, 1));
  ::kill(hung, SIGSTOP);
  EXPECT_THAT(Park(1, {0}).parked_ranks, ElementsAre(1));
  EXPECT_FALSE(IsAlive(hung));
}

TEST_F(AssignmentTest, ARankThatParkedByItselfIsKept) {
  Prepare(1);
  const pid_t process = Run(Rank(1, 0, "park deaf", {0}));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0)) << "nothing had to be asked";
  Prepare(2);
  EXPECT_EQ(Run(Rank(2, 0, "", {0})), process);
}

TEST_F(AssignmentTest, WhatADeadRankLeftBehindIsEndedWhileSurvivorsStay) {
  Prepare(1);
  const pid_t dead = Run(Rank(1, 0, "child"));
  const pid_t survivor = Run(Rank(1, 1, "child"));
  const auto child_of = [&](int rank) {
    const std::string text = LogText(1, rank);
    return static_cast<pid_t>(std::stoi(text.substr(text.find("child ") + 6)));
  };
  ::kill(dead, SIGKILL);
  Expect<GuardianRankExited>();
  EXPECT_TRUE(IsAlive(child_of(0)));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(1));
  EXPECT_FALSE(IsAlive(child_of(0)));
  EXPECT_TRUE(IsAlive(child_of(1))) << "it belongs to a process that stays";
  EXPECT_TRUE(IsAlive(survivor));
  Send(GuardianAbort{.generation = 1});
  EXPECT_THAT(Expect<GuardianQuiesced>().parked_ranks, IsEmpty());
  EXPECT_THAT(Living(), IsEmpty());
}

TEST_F(AssignmentTest, ASecondAbortWhileOthersParkKeepsNoProcess) {
  Prepare(1);
  Run(Rank(1, 0, "deaf"));
  const pid_t parked = Run(Rank(1, 1));
  Send(GuardianAbort{.generation = 1, .reason = "first", .park_seconds = 60});
  AwaitReport(1, "parked");
  EXPECT_TRUE(IsAlive(parked));
  Send(GuardianAbort{.generation = 1, .reason = "second"});
  const auto quiesced = Expect<GuardianQuiesced>();
  EXPECT_THAT(quiesced.parked_ranks, IsEmpty());
  EXPECT_THAT(Living(), IsEmpty());
}

TEST_F(AssignmentTest, ASecondAbortWhileOthersParkNamesTheRankThatIsNotWaitedFor) {
  Prepare(1);
  const pid_t deaf = Run(Rank(1, 0, "deaf"));
  Run(Rank(1, 1));
  Send(GuardianAbort{.generation = 1, .reason = "first", .park_seconds = 60});
  AwaitReport(1, "parked");
  EXPECT_THAT(Park(1, {0}, 60).parked_ranks, ElementsAre(1));
  EXPECT_FALSE(IsAlive(deaf));
}

TEST_F(AssignmentTest, AnAbortWithoutKeepEndsWhoWaits) {
  Prepare(1);
  Run(Rank(1, 0, "first_step", {0}));
  Send(Standby(1, false));
  EXPECT_TRUE(Eventually([&] { return Living().size() == 2; }));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0));
  Send(GuardianAbort{.generation = 1});
  EXPECT_THAT(Expect<GuardianQuiesced>().parked_ranks, IsEmpty());
  EXPECT_THAT(Living(), IsEmpty());
}

TEST_F(AssignmentTest, AParkedProcessThatDiesIsNoRanksEnd) {
  Prepare(1);
  const pid_t parked = Run(Rank(1, 0, "", {0}));
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0));
  ::kill(parked, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Living().empty(); }));
  Prepare(2);
  EXPECT_NE(Run(Rank(2, 0, "", {0})), parked);
  EXPECT_THAT(Others<GuardianRankExited>(), IsEmpty());
}

TEST_F(AssignmentTest, ReportsOfAnotherGenerationAreDropped) {
  Prepare(1);
  Run(Rank(1, 0, "park", {0}));
  Park(1);
  Prepare(2);
  others_.clear();
  Run(Rank(2, 0, "stale:1 stale:3 first_step", {0}));
  Send(GuardianAbort{.generation = 2});
  Expect<GuardianQuiesced>();
  for (const GuardianReport& report : Others<GuardianReport>())
    EXPECT_THAT(report.json, Not(HasSubstr("stale")));
}

TEST_F(AssignmentTest, AStandbyStartsAfterTheFirstStepAndReplacesADeadRank) {
  Prepare(1);
  Send(Standby(1, false));
  const pid_t zero = Run(Rank(1, 0, "first_step"));
  EXPECT_EQ(Living().size(), 1u) << "it would slow down the start of the others";
  Run(Rank(1, 1, "first_step"));
  EXPECT_TRUE(Eventually([&] { return Living().size() == 3 && AllAreReady(); }));
  const std::vector<pid_t> before = Living();
  ::kill(zero, SIGKILL);
  Expect<GuardianRankExited>();
  Park(1);
  Prepare(2);
  EXPECT_THAT(before, Contains(Run(Rank(2, 0, "first_step"))));
  EXPECT_EQ(LogText(2, 0), "assigned g2 rank 0\n");
  EXPECT_EQ(Living().size(), 2u);
  EXPECT_THAT(before, Contains(Run(Rank(2, 1, "first_step"))));
  EXPECT_TRUE(Eventually([&] { return Living().size() == 3; })) << "used, so replaced";
}

TEST_F(AssignmentTest, AStandbyThatDiesIsTriedAgainAFewTimesAndThenNoMore) {
  Send(GuardianPrepare{.generation = 1, .spare = true});
  Expect<GuardianPrepared>();
  GuardianStandby standby = Standby(1, true);
  standby.launch.argv = {"/bin/sh", "-c", "echo x >> count; exit 1"};
  Send(standby);
  EXPECT_TRUE(Eventually([&] { return Text(dir_ / "count").size() >= 8; }));
  Send(GuardianAbort{.generation = 1});
  Expect<GuardianQuiesced>();
  EXPECT_EQ(Text(dir_ / "count"), "x\nx\nx\nx\n");
}

TEST_F(AssignmentTest, SegmentsOutliveTheirRankAndComeBeforeTheNextAssignment) {
  Prepare(1);
  const pid_t dead = Run(Rank(1, 0, "segment:a"));
  Run(Rank(1, 1, "segment:b segment:c drop:c"));
  ::kill(dead, SIGKILL);
  Expect<GuardianRankExited>();
  Park(1);
  Prepare(2);
  Run(Rank(2, 0));
  EXPECT_EQ(LogText(2, 0), "assigned g2 rank 0 a=of-a b=of-b\n");
  Run(Rank(2, 1));
  EXPECT_EQ(LogText(2, 1), "assigned g2 rank 1 a=of-a\n") << "b is its own";
  EXPECT_THAT(Others<GuardianSegment>(),
              ElementsAre(GuardianSegment{"a"}, GuardianSegment{"b"}, GuardianSegment{"c"},
                          GuardianSegment{"c", true}));
}

TEST_F(AssignmentTest, ARankCannotMakeTheGuardianHoldMoreThanItsShare) {
  Prepare(1);
  Run(Rank(1, 0, "segment:a segment:b segment:c segment:d segment:e segment:f", {0}));
  link_.Close();
  others_.clear();
  Reconnect();
  Expect<GuardianSynced>();
  EXPECT_THAT(Others<GuardianSegment>(),
              ElementsAre(GuardianSegment{"b"}, GuardianSegment{"c"}, GuardianSegment{"d"},
                          GuardianSegment{"e"}, GuardianSegment{"f"}));
}

TEST_F(AssignmentTest, AnotherWorkerLearnsOfParkedRanksAndSegments) {
  Prepare(1);
  const pid_t process = Run(Rank(1, 0, "segment:a", {0}));
  Park(1);
  link_.Close();
  others_.clear();
  Reconnect();
  Expect<GuardianSegment>();
  char text[16] = {};
  EXPECT_EQ(::pread(descriptor_.get(), text, sizeof text, 0), 4);
  EXPECT_STREQ(text, "of-a");
  EXPECT_THAT(Expect<GuardianQuiesced>().parked_ranks, ElementsAre(0));
  Expect<GuardianSynced>();
  Prepare(2);
  EXPECT_EQ(Run(Rank(2, 0, "", {0})), process);
}

TEST_F(AssignmentTest, AWorkerThatComesBackWhileRanksParkGetsTheAnswer) {
  Prepare(1);
  Run(Rank(1, 0, "deaf"));
  Run(Rank(1, 1));
  Send(GuardianAbort{.generation = 1, .reason = "test", .park_seconds = 0.3});
  AwaitReport(1, "parked");
  link_.Close();
  Reconnect();
  EXPECT_THAT(Expect<GuardianQuiesced>().parked_ranks, ElementsAre(1));
}

TEST_F(AssignmentTest, AKilledGuardianTakesParkedProcessesAndStandbysAlong) {
  Prepare(1);
  Send(Standby(1, false));
  Run(Rank(1, 0, "first_step", {0}));
  EXPECT_TRUE(Eventually([&] { return Living().size() == 2; }));
  const std::vector<pid_t> all = Living();
  EXPECT_THAT(Park(1).parked_ranks, ElementsAre(0));
  ::kill(guardian_pid_, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return std::ranges::none_of(all, IsAlive); }));
}

TEST_F(AssignmentTest, ANewGuardianHandsOnTheSegmentsOfTheOld) {
  UniqueFd file(::memfd_create("old", MFD_CLOEXEC));
  ASSERT_EQ(::write(file.get(), "kept", 4), 4);
  ASSERT_TRUE(link_
                  .Send(Encode(GuardianCommand(GuardianHold{"old"})), {file.get()},
                        Deadline::After(std::chrono::seconds(5)))
                  .ok());
  Prepare(2);
  Run(Rank(2, 0, "", {0}));
  EXPECT_EQ(LogText(2, 0), "assigned g2 rank 0 old=kept\n");
}

TEST_F(AssignmentTest, AStopGoesToEveryRank) {
  Prepare(1);
  Run(Rank(1, 0));
  Send(Shell(1, 1, "trap 'exit 42' TERM; echo $$ > ready; while :; do sleep 0.01; done"));
  AwaitPid("ready");
  Send(GuardianStop{1, "drained"});
  EXPECT_EQ(Expect<GuardianRankExited>().end.exit.exit_code, 42);
  EXPECT_TRUE(Eventually(
      [&] { return LogText(1, 0).ends_with("got {\"reason\":\"drained\",\"type\":\"stop\"}\n"); }));
}

TEST_F(AssignmentTest, FaultsAreCausedBySignalOrByTheRankItself) {
  Prepare(1);
  const pid_t process = Run(Rank(1, 0, "", {0}));
  Send(GuardianFault{.generation = 1, .rank = 0, .kind = "stop", .argument = ""});
  const auto state = [&] {
    const auto info = ReadProcess(process);
    return info.ok() ? info->state : 'X';
  };
  EXPECT_TRUE(Eventually([&] { return state() == 'T'; }));
  Send(GuardianFault{.generation = 1, .rank = 0, .kind = "cont", .argument = ""});
  EXPECT_TRUE(Eventually([&] { return state() != 'T'; }));
  Send(GuardianFault{.generation = 1, .rank = 0, .kind = "slow", .argument = "0.3"});
  EXPECT_TRUE(Eventually([&] {
    return LogText(1, 0).ends_with(
        "got {\"argument\":\"0.3\",\"kind\":\"slow\",\"type\":\"fault\"}\n");
  }));
  Send(GuardianFault{.generation = 1, .rank = 0, .kind = "kill", .argument = ""});
  const auto exited = Expect<GuardianRankExited>();
  EXPECT_EQ(exited.end.exit.signal, SIGKILL);
  EXPECT_FALSE(exited.end.ended);
  Send(GuardianFault{.generation = 1, .rank = 0, .kind = "kill", .argument = ""});
  EXPECT_EQ(Expect<GuardianRefused>().generation, 1);
}

}  // namespace
}  // namespace muster
