#include "worker/guardian/guardian_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

namespace muster::guardian {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Processes as the core asks for them. They die of SIGKILL, and park when told unless they are
// deaf.
class FakeHost {
 public:
  struct Process {
    bool deaf = false;
    bool unkillable = false;
    bool killed = false;  // its end is not yet told
    Generation generation = 0;
    int rank = 0;
    bool parked = false;
  };

  void Do(const Effects& effects) {
    for (const Effect& effect : effects) std::visit([this](const auto& e) { Do(e); }, effect);
  }
  void Command(const GuardianCommand& command) { Do(core.OnCommand(command, now)); }
  void Say(ProcessId id, const std::string& json, bool descriptor = false) {
    Do(core.OnMessage(id, json, descriptor));
  }
  void Die(ProcessId id, ProcessExit exit) {
    processes.erase(id);
    Do(core.OnExited(id, {.exit = exit}, now));
  }

  // Everything that is under way happens: deaths, answers, ticks.
  void Settle() {
    for (int round = 0; round < 5000; ++round) {
      for (const auto& [id, process] : std::map(processes))
        if (process.killed && !process.unkillable) Die(id, {.signal = SIGKILL});
      for (const ProcessId id : std::exchange(parking_, {})) Park(id);
      Do(core.OnTick(now));
      if (!core.ending()) return;
      now += kEndingTick;
    }
    FAIL() << "it never comes to an end";
  }
  void Park(ProcessId id) {
    const auto it = processes.find(id);
    if (it == processes.end() || it->second.killed) return;
    it->second.parked = true;
    Say(id,
        R"({"type":"parked","step":1,"generation":)" + std::to_string(it->second.generation) + "}");
  }

  // Runs, and takes part in a generation.
  std::vector<ProcessId> Working() const {
    std::vector<ProcessId> ids;
    for (const auto& [id, process] : processes)
      if (process.generation > 0 && !process.parked) ids.push_back(id);
    return ids;
  }
  ProcessId Of(Generation generation, int rank) const {
    for (const auto& [id, process] : processes)
      if (process.generation == generation && process.rank == rank) return id;
    return 0;
  }
  template <typename T>
  std::vector<T> Told() const {
    std::vector<T> found;
    for (const GuardianEvent& event : told)
      if (const T* one = std::get_if<T>(&event)) found.push_back(*one);
    return found;
  }

  GuardianCore core{"0123456789", 0};
  TimePoint now;
  std::map<ProcessId, Process> processes;
  std::vector<GuardianEvent> told;
  std::vector<std::string> sent;  // to processes: "3 park"
  std::set<std::string> segments;
  bool starts_fail = false;
  bool port_fails = false;
  bool left = false;
  int records = 0;

 private:
  void Do(const SendToWorker& e) { told.push_back(e.event); }
  void Do(const StartProcess& e) {
    if (starts_fail) return Do(core.OnStartFailed(e.process, "no such program", now));
    Process& process = processes[e.process];
    process.generation = e.launch.generation;
    process.rank = e.launch.rank;
    Do(core.OnStarted(e.process, 1000 + e.process));
  }
  void Do(const AssignProcess& e) {
    const auto json = nlohmann::json::parse(e.message);
    sent.push_back(std::to_string(e.process) + " assign");
    const auto it = processes.find(e.process);
    if (it == processes.end()) return Do(core.OnStartFailed(e.process, "its process is gone", now));
    it->second.generation = json["generation"];
    it->second.rank = std::stoi(json["environment"].back().get<std::string>().substr(5));
    it->second.parked = false;
  }
  void Do(const SendToProcess& e) {
    const auto json = nlohmann::json::parse(e.message);
    sent.push_back(std::to_string(e.process) + " " + json["type"].get<std::string>() +
                   (e.segment.empty() ? "" : " " + e.segment));
    if (json["type"] == "park" && !processes[e.process].deaf) parking_.push_back(e.process);
  }
  void Do(const SignalProcess& e) {
    const auto it = processes.find(e.process);
    if (it != processes.end() && e.signal == SIGKILL) it->second.killed = true;
  }
  void Do(const BindMaster&) {
    Do(core.OnMasterBound(port_fails ? Result<int>(Unavailable("no port")) : Result<int>(4711)));
  }
  void Do(const Sweep& e) {
    SweepResult result;
    for (auto& [id, process] : processes) {
      if (std::ranges::find(e.keep, id) != e.keep.end()) continue;
      result.left.push_back(1000 + id);
      process.killed |= e.kill;
    }
    result.none_left = result.left.empty();
    Do(core.OnSwept(result, now));
  }
  void Do(const HoldSegment& e) { segments.insert(e.name); }
  void Do(const LetSegmentGo& e) { segments.erase(e.name); }
  void Do(const WriteExitRecord&) { ++records; }
  void Do(const Leave&) { left = true; }
  void Do(const ForgetProcess&) {}
  void Do(const CloseMaster&) {}
  void Do(const WriteRecord&) {}
  void Do(const WriteStoppedRecord&) {}
  void Do(const LogNote&) {}

  std::vector<ProcessId> parking_;
};

GuardianLaunch Rank(Generation generation, int rank, const std::string& gpu = "") {
  return {.generation = generation,
          .rank = rank,
          .argv = {"trainer"},
          .environment = {"CUDA_VISIBLE_DEVICES=" + gpu, "MUSTER_ASSIGN=1",
                          "RANK=" + std::to_string(rank)},
          .control = true,
          .node_ranks = {0, 1}};
}

GuardianLaunch Program(Generation generation, int rank) {
  return {.generation = generation, .rank = rank, .argv = {"program"}, .node_ranks = {0, 1}};
}

GuardianAbort ParkAll(Generation generation, std::vector<int> kill_ranks = {}) {
  return {.generation = generation,
          .reason = "test",
          .park_seconds = 1,
          .kill_ranks = std::move(kill_ranks)};
}

class GuardianCoreTest : public testing::Test {
 protected:
  void Prepare(Generation generation) {
    host_.Command(GuardianPrepare{.generation = generation});
    host_.Settle();
  }
  void Run(Generation generation, bool steps = false) {
    Prepare(generation);
    for (const int rank : {0, 1}) host_.Command(Rank(generation, rank));
    for (const int rank : {0, 1})
      if (steps) host_.Say(host_.Of(generation, rank), R"({"type":"first_step","step":1})");
  }
  GuardianQuiesced LastQuiesced() const {
    const auto all = host_.Told<GuardianQuiesced>();
    return all.empty() ? GuardianQuiesced{} : all.back();
  }

  FakeHost host_;
};

TEST_F(GuardianCoreTest, QuiescedIsSaidOnceTheLastRankHasParkedOrEnded) {
  Run(1);
  host_.processes[1].deaf = true;
  host_.Command(ParkAll(1));
  host_.Park(2);
  host_.Do(host_.core.OnTick(host_.now));
  EXPECT_THAT(host_.Told<GuardianQuiesced>(), IsEmpty());
  host_.now += std::chrono::milliseconds(999);
  host_.Do(host_.core.OnTick(host_.now));
  EXPECT_FALSE(host_.processes[1].killed);
  host_.now += std::chrono::milliseconds(1);
  host_.Do(host_.core.OnTick(host_.now));
  EXPECT_TRUE(host_.processes[1].killed);
  // An answer that comes too late keeps nobody.
  host_.Say(1, R"({"type":"parked","generation":1})");
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{1, {}, {1}}));
}

TEST_F(GuardianCoreTest, AGenerationThatWasNeverLaunchedIsQuiescedAtOnce) {
  Prepare(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{1, {}, {}}));
}

TEST_F(GuardianCoreTest, AProcessThatHasUsedAGpuGetsNoRankOfAnother) {
  Prepare(1);
  host_.Command(Rank(1, 0, "0"));
  host_.Command(Rank(1, 1, "1"));
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_THAT(LastQuiesced().kept_ranks, ElementsAre(0, 1));
  Prepare(2);
  GuardianLaunch launch = Rank(2, 5, "1");
  launch.node_ranks = {5, 6};
  host_.Command(launch);
  EXPECT_EQ(host_.Of(2, 5), 2);
  launch = Rank(2, 6, "7");
  launch.node_ranks = {5, 6};
  host_.Command(launch);
  EXPECT_EQ(host_.Of(2, 6), 3) << "a new one";
  host_.Settle();
  EXPECT_FALSE(host_.processes.contains(1)) << "left over";
}

TEST_F(GuardianCoreTest, ASpareNodeHoldsNoParkedProcesses) {
  Run(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  host_.Command(GuardianPrepare{.generation = 2, .spare = true});
  host_.Command(GuardianStandby{.count = 1, .at_once = true, .launch = Rank(0, 0)});
  host_.Settle();
  EXPECT_EQ(host_.processes.size(), 1u);
  EXPECT_EQ(host_.processes.begin()->second.generation, 0);
}

TEST_F(GuardianCoreTest, OnlyAStandbyThatIsReadyTakesARank) {
  Prepare(1);
  host_.Command(GuardianStandby{.count = 2, .at_once = true, .launch = Rank(0, 0)});
  host_.Say(2, R"({"type":"standby_ready"})");
  host_.Command(Rank(1, 0));
  EXPECT_EQ(host_.Of(1, 0), 2);
  host_.Command(Rank(1, 1));
  EXPECT_GT(host_.Of(1, 1), 2);
}

TEST_F(GuardianCoreTest, StandbysWaitForEveryFirstStepAndAreReplacedAfterTheNext) {
  Run(1);
  host_.Command(GuardianStandby{.count = 1, .launch = Rank(0, 0)});
  host_.Say(1, R"({"type":"first_step","step":1})");
  EXPECT_EQ(host_.processes.size(), 2u);
  host_.Say(2, R"({"type":"first_step","step":1})");
  EXPECT_EQ(host_.processes.size(), 3u);
  host_.Say(3, R"({"type":"standby_ready"})");
  host_.Die(1, {.signal = SIGSEGV});
  host_.Command(ParkAll(1));
  host_.Settle();
  Prepare(2);
  host_.Command(Rank(2, 0));
  host_.Command(Rank(2, 1));
  EXPECT_EQ(host_.Of(2, 0), 3);
  EXPECT_EQ(host_.processes.size(), 2u);
  host_.Say(2, R"({"type":"first_step","step":2,"generation":2})");
  host_.Say(3, R"({"type":"first_step","step":2,"generation":2})");
  EXPECT_EQ(host_.processes.size(), 3u);
}

TEST_F(GuardianCoreTest, StandbysThatCannotLiveAreGivenUpUntilTheNextGeneration) {
  Run(1, true);
  host_.starts_fail = true;
  host_.Command(GuardianStandby{.count = 1, .launch = Rank(0, 0)});
  host_.starts_fail = false;
  host_.Say(1, R"({"type":"note"})");
  EXPECT_EQ(host_.processes.size(), 2u) << "four have failed";
  host_.Command(ParkAll(1));
  host_.Settle();
  Run(2, true);
  EXPECT_EQ(host_.processes.size(), 3u);
}

TEST_F(GuardianCoreTest, FewerStandbysAreHeldWhenFewerAreAskedFor) {
  Run(1, true);
  host_.Command(GuardianStandby{.count = 2, .launch = Rank(0, 0)});
  EXPECT_EQ(host_.processes.size(), 4u);
  host_.Command(GuardianStandby{.count = 0, .launch = Rank(0, 0)});
  host_.Settle();
  EXPECT_EQ(host_.processes.size(), 2u);
  EXPECT_THAT(host_.Told<GuardianRankExited>(), IsEmpty());
}

TEST_F(GuardianCoreTest, AProcessThatCannotTakeItsAssignmentCountsAsNotStarted) {
  Run(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  Prepare(2);
  // It died, and the kernel has not told yet.
  host_.processes.erase(1);
  host_.Command(Rank(2, 0));
  const auto exits = host_.Told<GuardianRankExited>();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].exit.exit_code, 127);
  EXPECT_THAT(exits[0].log_tail, ElementsAre(HasSubstr("its process is gone")));
  host_.Do(host_.core.OnExited(1, {.exit = {.signal = SIGKILL}}, host_.now));
  EXPECT_EQ(host_.Told<GuardianRankExited>().size(), 1u);
}

TEST_F(GuardianCoreTest, AKillOfTheGuardiansOwnIsNotTheOutOfMemoryKillers) {
  Run(1);
  host_.Do(host_.core.OnExited(1, {.exit = {.signal = SIGKILL}, .out_of_memory = true}, host_.now));
  host_.processes.erase(1);
  host_.Command(GuardianAbort{.generation = 1});
  host_.Do(host_.core.OnTick(host_.now));
  host_.Do(host_.core.OnExited(2, {.exit = {.signal = SIGKILL}, .out_of_memory = true}, host_.now));
  host_.processes.erase(2);
  const auto exits = host_.Told<GuardianRankExited>();
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_TRUE(exits[0].out_of_memory);
  EXPECT_FALSE(exits[1].out_of_memory);
}

TEST_F(GuardianCoreTest, WhatCannotBeKilledIsNamedAndHoldsUpTheNextPreparation) {
  Run(1);
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{1, {1001}, {1}}));
  Prepare(2);
  EXPECT_THAT(host_.Told<GuardianPrepared>().back().error, HasSubstr("process 1001"));
  host_.processes[1].unkillable = false;
  Prepare(3);
  EXPECT_EQ(host_.Told<GuardianPrepared>().back(), GuardianPrepared{.generation = 3});
}

TEST_F(GuardianCoreTest, APortThatCannotBeBoundIsToldAgainAfterAReconnect) {
  host_.port_fails = true;
  host_.Command(GuardianPrepare{1, MasterSocket::kListen, "127.0.0.1"});
  host_.told.clear();
  host_.Do(host_.core.OnWorkerConnected(7, host_.now));
  EXPECT_THAT(host_.Told<GuardianPrepared>(), ElementsAre(GuardianPrepared{1, "no port", 0}));
}

TEST_F(GuardianCoreTest, APrepareWaitsForThoseThatArePark) {
  Run(1);
  host_.processes[1].deaf = true;
  host_.Command(ParkAll(1));
  host_.Command(GuardianPrepare{.generation = 2});
  host_.Park(2);
  EXPECT_EQ(host_.Told<GuardianPrepared>().size(), 1u);
  host_.Settle();
  EXPECT_EQ(host_.Told<GuardianPrepared>().back(), GuardianPrepared{.generation = 2});
  EXPECT_TRUE(host_.processes.contains(2));
}

TEST_F(GuardianCoreTest, APrepareOverARunningGenerationEndsItsRanksAndKeepsStandbys) {
  Run(1, true);
  host_.Command(GuardianStandby{.count = 1, .launch = Rank(0, 0)});
  Prepare(2);
  EXPECT_EQ(host_.Told<GuardianPrepared>().back(), GuardianPrepared{.generation = 2});
  EXPECT_THAT(host_.Working(), IsEmpty());
  EXPECT_EQ(host_.processes.size(), 1u);
}

TEST_F(GuardianCoreTest, RanksWithoutAControlSocketAreNotWaitedFor) {
  Prepare(1);
  host_.Command(Program(1, 0));
  host_.Command(ParkAll(1));
  EXPECT_TRUE(host_.processes[1].killed);
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{1, {}, {}}));
}

TEST_F(GuardianCoreTest, AParkOfAnotherGenerationParksNobody) {
  Run(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  Run(2);
  host_.Say(1, R"({"type":"parked","generation":1})");
  host_.processes[1].deaf = true;
  host_.Command(ParkAll(2));
  host_.Settle();
  EXPECT_THAT(LastQuiesced().kept_ranks, ElementsAre(1));
}

TEST_F(GuardianCoreTest, SegmentsOfAnotherGenerationAreNeitherHeldNorLetGo) {
  Run(1);
  host_.Say(1, R"({"type":"segment","name":"a","generation":1})", true);
  host_.Say(1, R"({"type":"segment","name":"b","generation":1})", false);
  host_.Command(ParkAll(1));
  host_.Settle();
  Prepare(2);
  host_.Say(1, R"({"type":"drop_segment","name":"a","generation":1})");
  host_.Say(1, R"({"type":"segment","name":"c","generation":1})", true);
  EXPECT_THAT(host_.segments, ElementsAre("a"));
  host_.Command(Rank(2, 0));
  host_.Command(Rank(2, 1));
  EXPECT_THAT(host_.sent, testing::Contains("2 segment a"));
  EXPECT_THAT(host_.sent, testing::Not(testing::Contains("1 segment a"))) << "its own";
  host_.Say(2, R"({"type":"drop_segment","name":"a","generation":2})");
  EXPECT_THAT(host_.segments, IsEmpty());
}

TEST_F(GuardianCoreTest, GarbageOfARankDoesNothing) {
  Run(1);
  host_.told.clear();
  for (const char* text : {"", "{", "[]", "7", R"("parked")"}) host_.Say(1, text, true);
  host_.Say(1, R"({"type":"segment","name":7})", true);
  host_.Say(1, R"({"type":"note","generation":"one"})");
  EXPECT_THAT(host_.told, IsEmpty());
  EXPECT_THAT(host_.segments, IsEmpty());
}

// --- every command in every state ---

enum State { kNew, kPrepared, kRunning, kParking, kKept, kGrace, kGone, kLeaving, kStates };

void Enter(State state, FakeHost* host) {
  if (state == kNew) return;
  host->Command(GuardianPrepare{.generation = 2});
  if (state == kPrepared) return;
  for (const int rank : {0, 1}) host->Command(Rank(2, rank));
  if (state == kParking) {
    host->processes[1].deaf = true;
    host->Command(ParkAll(2));
  } else if (state == kKept) {
    host->Command(ParkAll(2));
    host->Settle();
  } else if (state == kGrace) {
    host->Command(GuardianAbort{.generation = 2, .grace_seconds = 1});
  } else if (state == kGone) {
    host->Command(GuardianAbort{.generation = 2});
    host->Settle();
  } else if (state == kLeaving) {
    host->Command(GuardianRelease{});
  }
}

// What the worker hears last of the answers to commands, once everything has settled.
std::string Answer(const FakeHost& host) {
  std::string answer;
  for (const GuardianEvent& event : host.told) {
    if (const auto* prepared = std::get_if<GuardianPrepared>(&event))
      answer = "prepared " + std::to_string(prepared->generation);
    if (const auto* quiesced = std::get_if<GuardianQuiesced>(&event))
      answer = "quiesced " + std::to_string(quiesced->generation) + " kept " +
               std::to_string(quiesced->kept_ranks.size());
    if (std::holds_alternative<GuardianRefused>(event)) answer = "refused";
    if (const auto* started = std::get_if<GuardianRankStarted>(&event))
      answer = "started " + std::to_string(started->rank);
  }
  return host.left ? "left" : answer;
}

TEST(GuardianCoreTable, EveryCommandInEveryState) {
  struct Row {
    GuardianCommand command;
    // new, prepared, running, parking, kept, grace, gone, leaving
    const char* answers[kStates];
  };
  const Row rows[] = {
      {GuardianPrepare{.generation = 1},
       {"prepared 1", "refused", "refused", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0",
        "refused", "left"}},
      {GuardianPrepare{.generation = 2},
       {"prepared 2", "prepared 2", "prepared 2", "quiesced 2 kept 1", "refused",
        "quiesced 2 kept 0", "refused", "left"}},
      {GuardianPrepare{.generation = 3},
       {"prepared 3", "prepared 3", "prepared 3", "prepared 3", "prepared 3", "prepared 3",
        "prepared 3", "left"}},
      {Rank(1, 5),
       {"refused", "refused", "refused", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0",
        "refused", "left"}},
      {Rank(2, 5),
       {"refused", "started 5", "started 5", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0",
        "refused", "left"}},
      {Rank(3, 5),
       {"refused", "refused", "refused", "quiesced 3 kept 1", "refused", "quiesced 3 kept 0",
        "refused", "left"}},
      {ParkAll(1),
       {"quiesced 1 kept 0", "refused", "refused", "quiesced 2 kept 1", "refused",
        "quiesced 2 kept 0", "refused", "left"}},
      {ParkAll(2),
       {"quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 2", "quiesced 2 kept 1",
        "quiesced 2 kept 2", "quiesced 2 kept 0", "quiesced 2 kept 0", "left"}},
      {ParkAll(3),
       {"quiesced 3 kept 0", "quiesced 3 kept 0", "quiesced 3 kept 2", "quiesced 3 kept 1",
        "quiesced 3 kept 2", "quiesced 3 kept 0", "quiesced 3 kept 0", "left"}},
      {GuardianAbort{.generation = 2},
       {"quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0",
        "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "left"}},
      {GuardianAbort{.generation = 2, .grace_seconds = 0.5},
       {"quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0",
        "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "left"}},
      {GuardianRelease{}, {"left", "left", "left", "left", "left", "left", "left", "left"}},
      {GuardianStandby{.count = 1, .at_once = true, .launch = Rank(0, 0)},
       {"", "", "", "quiesced 2 kept 1", "", "quiesced 2 kept 0", "", "left"}},
      {GuardianStop{2, "drained"},
       {"refused", "", "", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0", "refused", "left"}},
      {GuardianFault{2, 0, "kill", ""},
       {"refused", "refused", "", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0", "refused",
        "left"}},
      {GuardianHold{"old"}, {"", "", "", "quiesced 2 kept 1", "", "quiesced 2 kept 0", "", "left"}},
  };
  for (std::size_t row = 0; row < std::size(rows); ++row) {
    for (int state = 0; state < kStates; ++state) {
      FakeHost host;
      Enter(static_cast<State>(state), &host);
      host.told.clear();
      host.Command(rows[row].command);
      host.Settle();
      EXPECT_EQ(Answer(host), rows[row].answers[state]) << "row " << row << ", state " << state;
    }
  }
}

// --- any order of events ---

class Walk {
 public:
  explicit Walk(std::uint32_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < 120 && !host_.left; ++i) {
      Step();
      Check();
      if (testing::Test::HasFailure()) return;
    }
    host_.Settle();
    Check();
  }

 private:
  int Any(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  ProcessId AnyProcess() {
    if (host_.processes.empty()) return 0;
    return std::next(host_.processes.begin(), Any(static_cast<int>(host_.processes.size())))->first;
  }

  void Step() {
    const Generation generation = std::max<Generation>(1, host_.core.newest() - 1 + Any(3));
    switch (Any(14)) {
      case 0: return host_.Command(GuardianPrepare{.generation = generation});
      case 1: return host_.Command(ParkAll(generation));
      case 2: return host_.Command(ParkAll(generation, {Any(2)}));
      case 3: return host_.Command(GuardianAbort{generation, Any(2) * 0.01, "test"});
      case 4:
        return host_.Command(
            GuardianStandby{.count = Any(3), .at_once = Any(2) == 0, .launch = Rank(0, 0)});
      case 5: return host_.Do(host_.core.OnWorkerConnected(7, host_.now));
      case 6:
        if (const ProcessId id = AnyProcess()) host_.Die(id, {.signal = SIGSEGV});
        return;
      case 7:
        if (const ProcessId id = AnyProcess()) host_.processes[id].deaf = true;
        return;
      case 8:
        if (const ProcessId id = AnyProcess()) host_.Park(id);
        return;
      case 9:
        if (const ProcessId id = AnyProcess())
          host_.Say(id, R"({"type":"segment","name":"s)" + std::to_string(Any(9)) + R"("})", true);
        return;
      case 10:
        if (const ProcessId id = AnyProcess()) host_.Say(id, R"({"type":"first_step","step":1})");
        return;
      case 11: return host_.Settle();
      default: return host_.Command(Rank(generation, Any(2)));
    }
  }

  void Check() {
    std::set<std::pair<Generation, int>> ranks;
    for (const ProcessId id : host_.Working()) {
      const FakeHost::Process& process = host_.processes[id];
      if (process.killed) continue;
      EXPECT_TRUE(ranks.insert({process.generation, process.rank}).second) << "two of one rank";
    }
    for (; seen_ < host_.told.size(); ++seen_) CheckTold(host_.told[seen_]);
    EXPECT_LE(host_.segments.size(), 2 * kSegmentsPerRank);
  }

  void CheckTold(const GuardianEvent& event) {
    if (const auto* prepared = std::get_if<GuardianPrepared>(&event)) {
      EXPECT_GE(prepared->generation, newest_);
      newest_ = prepared->generation;
    } else if (const auto* exited = std::get_if<GuardianRankExited>(&event)) {
      EXPECT_GE(exited->generation, newest_);
    } else if (const auto* report = std::get_if<GuardianReport>(&event)) {
      EXPECT_GE(report->generation, newest_);
    }
    // What was told last is still true when it is checked: nothing has happened since.
    const bool last = seen_ + 1 == host_.told.size();
    if (const auto* quiesced = std::get_if<GuardianQuiesced>(&event); quiesced && last) {
      EXPECT_THAT(host_.Working(), IsEmpty());
      EXPECT_LE(quiesced->kept_ranks.size(), host_.processes.size());
    }
    if (const auto* prepared = std::get_if<GuardianPrepared>(&event); prepared && last) {
      for (const ProcessId id : host_.Working())
        EXPECT_EQ(host_.processes[id].generation, prepared->generation);
    }
  }

  std::mt19937 random_;
  FakeHost host_;
  std::size_t seen_ = 0;
  Generation newest_ = 0;
};

TEST(GuardianCoreWalk, WhateverComesNoTwoGenerationsRunAtOnce) {
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    Walk(seed).Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::guardian
