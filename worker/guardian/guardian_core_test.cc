#include "worker/guardian/guardian_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "worker/guardian/testing/fake_host.h"

namespace muster::guardian {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  void Hold(ProcessId id, Generation generation, const std::string& name) {
    const nlohmann::json hold = {{"type", "segment"}, {"name", name}, {"generation", generation}};
    host_.Say(id, hold.dump(), true);
  }
  void ReportCut(ProcessId id, Generation generation, const std::vector<std::string>& segments) {
    const nlohmann::json cut = {
        {"type", "cut"}, {"segments", segments}, {"generation", generation}};
    host_.Say(id, cut.dump());
  }
  GuardianQuiesced LastQuiesced() const {
    const auto all = host_.Told<GuardianQuiesced>();
    return all.empty() ? GuardianQuiesced{} : all.back();
  }

  FakeHost host_;
};

TEST_F(GuardianCoreTest, QuiescedIsSentOnceTheLastRankHasParkedOrEnded) {
  Run(1);
  host_.processes[1].deaf = true;
  host_.Command(ParkAll(1));
  host_.Park(2);
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_THAT(host_.Told<GuardianQuiesced>(), IsEmpty());
  host_.now += std::chrono::milliseconds(999);
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_FALSE(host_.processes[1].killed);
  host_.now += std::chrono::milliseconds(1);
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_TRUE(host_.processes[1].killed);
  // An answer that comes too late keeps no process.
  host_.Say(1, R"({"type":"parked","generation":1})");
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1, .parked_ranks = {1}}));
}

TEST_F(GuardianCoreTest, AGenerationThatWasNeverLaunchedIsQuiescedAtOnce) {
  Prepare(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1}));
}

TEST_F(GuardianCoreTest, AProcessThatHasUsedAGpuGetsNoRankOfAnother) {
  Prepare(1);
  host_.Command(Rank(1, 0, "0"));
  host_.Command(Rank(1, 1, "1"));
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_THAT(LastQuiesced().parked_ranks, ElementsAre(0, 1));
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

TEST_F(GuardianCoreTest, AStandbyThatIsReadyTakesARankBeforeOneThatStillLoads) {
  Prepare(1);
  host_.Command(GuardianStandby{.count = 2, .at_once = true, .launch = Rank(0, 0)});
  host_.Say(2, R"({"type":"standby_ready"})");
  host_.Command(Rank(1, 0));
  EXPECT_EQ(host_.Of(1, 0), 2);
  host_.Command(Rank(1, 1));
  EXPECT_EQ(host_.Of(1, 1), 1) << "it is ahead of a process that would be started now";
}

TEST_F(GuardianCoreTest, ProcessesForTheFirstRanksAreStartedBeforeTheLaunch) {
  Prepare(1);
  host_.Command(GuardianStandby{.count = 1, .first = 2, .launch = Rank(0, 0)});
  EXPECT_EQ(host_.processes.size(), 2u);
  host_.Command(Rank(1, 0));
  EXPECT_EQ(host_.processes.size(), 2u) << "what waits is for the other rank";
  host_.Command(Rank(1, 1));
  EXPECT_EQ(host_.processes.size(), 2u);
  EXPECT_EQ(host_.Of(1, 0) + host_.Of(1, 1), 3);
  for (const int rank : {0, 1}) host_.Say(host_.Of(1, rank), R"({"type":"first_step","step":1})");
  EXPECT_EQ(host_.processes.size(), 3u) << "the standby";
}

TEST_F(GuardianCoreTest, TheNextMastersPortIsBoundWhenProcessesAreKept) {
  Run(1);
  GuardianAbort abort = ParkAll(1);
  abort.next_master = MasterSocket::kListen;
  abort.next_bind_address = "10.0.0.1";
  host_.Command(abort);
  for (const ProcessId id : {1, 2}) host_.Park(id);
  host_.Settle();
  ASSERT_EQ(host_.Told<GuardianQuiesced>().size(), 1u);
  EXPECT_EQ(LastQuiesced().next_master_port, 4711);
  EXPECT_EQ(host_.binds, 1);
  host_.Command(GuardianPrepare{
      .generation = 2, .master = MasterSocket::kListen, .bind_address = "10.0.0.1"});
  EXPECT_EQ(host_.Told<GuardianPrepared>().back().master_port, 4711);
  EXPECT_EQ(host_.binds, 1) << "that port";
}

TEST_F(GuardianCoreTest, AnotherAddressIsBoundAnew) {
  Run(1);
  GuardianAbort abort = ParkAll(1);
  abort.next_master = MasterSocket::kListen;
  abort.next_bind_address = "10.0.0.1";
  host_.Command(abort);
  for (const ProcessId id : {1, 2}) host_.Park(id);
  host_.Settle();
  host_.Command(GuardianPrepare{
      .generation = 2, .master = MasterSocket::kListen, .bind_address = "10.0.0.2"});
  EXPECT_EQ(host_.binds, 2);
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
  host_.starts = 0;
  host_.Command(GuardianStandby{.count = 1, .launch = Rank(0, 0)});
  EXPECT_EQ(host_.starts, 4);
  host_.starts_fail = false;
  host_.Say(1, R"({"type":"note"})");
  EXPECT_EQ(host_.processes.size(), 2u);
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
  // It died, and the kernel has not reported it yet.
  host_.processes.erase(1);
  host_.Command(Rank(2, 0));
  const auto exits = host_.Told<GuardianRankExited>();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].end.exit.exit_code, 127);
  EXPECT_THAT(exits[0].log_tail, ElementsAre(HasSubstr("its process is gone")));
  host_.Do(host_.core.Handle(ProcessEnded{1, {.exit = {.signal = SIGKILL}}}, host_.now));
  EXPECT_EQ(host_.Told<GuardianRankExited>().size(), 1u);
}

TEST_F(GuardianCoreTest, AKillOfTheGuardiansOwnIsNotTheOutOfMemoryKillers) {
  Run(1);
  host_.Do(host_.core.Handle(ProcessEnded{1, {.exit = {.signal = SIGKILL}, .out_of_memory = true}},
                             host_.now));
  host_.processes.erase(1);
  host_.Command(GuardianAbort{.generation = 1});
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  host_.Do(host_.core.Handle(ProcessEnded{2, {.exit = {.signal = SIGKILL}, .out_of_memory = true}},
                             host_.now));
  host_.processes.erase(2);
  const auto exits = host_.Told<GuardianRankExited>();
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_TRUE(exits[0].end.out_of_memory);
  EXPECT_FALSE(exits[1].end.out_of_memory);
}

TEST_F(GuardianCoreTest, AnExitReportsWhetherAStopHadComeBefore) {
  Run(1);
  host_.Do(host_.core.Handle(ProcessEnded{1, {}}, host_.now));
  host_.processes.erase(1);
  host_.Command(GuardianStop{1, "drained"});
  host_.Do(host_.core.Handle(ProcessEnded{2, {}}, host_.now));
  host_.processes.erase(2);
  const auto exits = host_.Told<GuardianRankExited>();
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_FALSE(exits[0].end.asked_to_stop);
  EXPECT_TRUE(exits[1].end.asked_to_stop);
}

TEST_F(GuardianCoreTest, WhatCannotBeKilledIsNamedAndTheNextGenerationLivesBesideIt) {
  Run(1);
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  EXPECT_EQ(LastQuiesced(),
            (GuardianQuiesced{.generation = 1, .unkillable_pids = {1001}, .parked_ranks = {1}}));
  Prepare(2);
  EXPECT_EQ(host_.Told<GuardianPrepared>().back(), GuardianPrepared{.generation = 2});
  host_.Command(Rank(2, 0));
  host_.Command(Rank(2, 1));
  EXPECT_EQ(host_.Of(2, 1), 2) << "the parked one";
  host_.told.clear();

  // A second look while the new generation trains touches none of it.
  host_.now += kUnkillableTick;
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_THAT(host_.told, IsEmpty());
  EXPECT_FALSE(host_.processes[2].killed);
  host_.processes[1].unkillable = false;
  host_.Die(1, {.signal = SIGKILL});
  host_.now += kUnkillableTick;
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1})) << "of the generation before";
  EXPECT_THAT(host_.Told<GuardianRankExited>(), IsEmpty()) << "it is no rank of the new one";
  EXPECT_FALSE(host_.processes[2].killed);
}

TEST_F(GuardianCoreTest, WhatCannotBeKilledIsNotWaitedForAgain) {
  Run(1);
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  Prepare(2);
  host_.Command(Rank(2, 0));
  host_.Command(Rank(2, 1));
  host_.told.clear();
  const TimePoint before = host_.now;
  host_.Command(GuardianAbort{.generation = 2});
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 2, .unkillable_pids = {1001}}));
  EXPECT_LT(host_.now - before, kKillBudget);
}

class UnkillableTest : public GuardianCoreTest {
 protected:
  void SetUp() override {
    Run(1);
    for (const ProcessId id : {1, 2}) host_.processes[id].unkillable = true;
    host_.Command(GuardianAbort{.generation = 1});
    host_.Settle();
    ASSERT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1, .unkillable_pids = {1001, 1002}}));
    ASSERT_TRUE(host_.core.waits_for_unkillable());
    host_.told.clear();
  }
  void Look() {
    host_.now += kUnkillableTick;
    host_.Do(host_.core.Handle(Tick{}, host_.now));
  }
};

TEST_F(UnkillableTest, AGuardianReportsWhenProcessesThatSurvivedSigkillAreGone) {
  Look();
  EXPECT_THAT(host_.told, IsEmpty()) << "nothing is new";
  host_.processes[1].unkillable = false;
  host_.Settle();
  Look();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1, .unkillable_pids = {1002}}));
  host_.processes[2].unkillable = false;
  host_.Settle();
  Look();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1}));
  EXPECT_FALSE(host_.core.waits_for_unkillable());
  EXPECT_EQ(host_.Told<GuardianQuiesced>().size(), 2u);
}

TEST_F(UnkillableTest, AGuardianWithANewerGenerationReportsThatTheOldOneIsGoneAtLast) {
  for (auto& [id, process] : host_.processes) process.unkillable = false;
  Prepare(2);
  EXPECT_EQ(host_.Told<GuardianPrepared>().back(), GuardianPrepared{.generation = 2});
  host_.Settle();
  host_.Command(Rank(2, 0));
  Look();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1}));
  EXPECT_FALSE(host_.core.waits_for_unkillable());
}

TEST_F(GuardianCoreTest, WhoWaitsIsKeptWhileTheGuardianLooksAtWhatSurvivedSigkill) {
  Run(1);
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  ASSERT_EQ(LastQuiesced(),
            (GuardianQuiesced{.generation = 1, .unkillable_pids = {1001}, .parked_ranks = {1}}));
  host_.processes[1].unkillable = false;
  host_.now += kUnkillableTick;
  host_.Settle();
  host_.now += kUnkillableTick;
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1, .parked_ranks = {1}}));
  EXPECT_FALSE(host_.processes[2].killed);
}

TEST_F(GuardianCoreTest, APortThatCannotBeBoundIsReportedAgainAfterAReconnect) {
  host_.port_fails = true;
  host_.Command(GuardianPrepare{
      .generation = 1, .master = MasterSocket::kListen, .bind_address = "127.0.0.1"});
  host_.told.clear();
  host_.Do(host_.core.Handle(WorkerConnected{7}, host_.now));
  EXPECT_THAT(host_.Told<GuardianPrepared>(),
              ElementsAre(GuardianPrepared{.generation = 1, .error = "no port", .master_port = 0}));
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
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1}));
}

TEST_F(GuardianCoreTest, AParkOfAnotherGenerationParksNoRank) {
  Run(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  Run(2);
  host_.Say(1, R"({"type":"parked","generation":1})");
  host_.processes[1].deaf = true;
  host_.Command(ParkAll(2));
  host_.Settle();
  EXPECT_THAT(LastQuiesced().parked_ranks, ElementsAre(1));
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

// Each with segments of its own, since each is of another size.
TEST_F(GuardianCoreTest, GangsInARowThatFailToFormDoNotPushOutTheOnlyWholeState) {
  Run(1);
  for (const ProcessId id : {1, 2}) {
    ReportCut(id, 1, {});
    for (const char* name : {"own-", "kept-"}) Hold(id, 1, name + std::to_string(id));
  }
  const std::set<std::string> whole = host_.segments;
  for (Generation generation = 2; generation <= 9; ++generation) {
    host_.Command(ParkAll(generation - 1));
    host_.Settle();
    Run(generation);
    for (const ProcessId id : {1, 2}) {
      const std::string suffix = std::to_string(id) + "-g" + std::to_string(generation);
      ReportCut(id, generation, {"own-1", "kept-1", "own-2", "kept-2", "elsewhere"});
      for (const char* name : {"own-", "kept-"}) Hold(id, generation, name + suffix);
      EXPECT_TRUE(host_.segments.contains("own-" + suffix));
    }
    EXPECT_TRUE(std::ranges::includes(host_.segments, whole)) << "generation " << generation;
    EXPECT_LE(host_.segments.size(), 2 * kSegmentsPerRank);
  }
  EXPECT_EQ(host_.segments.size(), 2 * kSegmentsPerRank);
}

TEST_F(GuardianCoreTest, WhatIsNoPartOfANewerCutGoesBeforeThat) {
  Run(1);
  for (const char* name : {"a", "b", "c", "d"}) Hold(1, 1, name);
  host_.Command(ParkAll(1));
  host_.Settle();
  Run(2);
  ReportCut(1, 2, {"a", "d"});
  for (const char* name : {"e", "f", "g", "h", "i", "j", "k", "l"}) Hold(1, 2, name);
  EXPECT_THAT(host_.segments, ElementsAre("a", "d", "e", "f", "g", "h", "i", "j", "k", "l"));
  Hold(1, 2, "m");
  EXPECT_THAT(host_.segments, ElementsAre("a", "d", "f", "g", "h", "i", "j", "k", "l", "m"))
      << "who makes more than its share loses its own";
}

TEST_F(GuardianCoreTest, GarbageOfARankDoesNothing) {
  Run(1);
  host_.told.clear();
  for (const char* text : {"", "{", "[]", "7", R"("parked")"}) host_.Say(1, text, true);
  host_.Say(1, R"({"type":"segment","name":7})", true);
  host_.Say(1, R"({"type":"cut","segments":7})");
  host_.Say(1, R"({"type":"cut","segments":[7,{}]})");
  host_.Say(1, R"({"type":"note","generation":"one"})");
  EXPECT_THAT(host_.told, IsEmpty());
  EXPECT_THAT(host_.segments, IsEmpty());
}

TEST_F(GuardianCoreTest, WhatDeadRanksLeftBehindIsEndedWithoutWaitingForOthersToPark) {
  Run(1);
  host_.Command(ParkAll(1));
  host_.Park(1);
  host_.Park(2);
  host_.strays = {4242};
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_THAT(host_.strays, IsEmpty());
  EXPECT_THAT(host_.Told<GuardianQuiesced>(), IsEmpty()) << "it has only been killed";
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1, .parked_ranks = {0, 1}}));
}

TEST_F(GuardianCoreTest, AnEndIsReportedBeforeQuiescedEvenIfTheKernelForgotTheProcessFirst) {
  Run(1);
  host_.Command(GuardianAbort{.generation = 1});
  host_.processes.clear();
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_THAT(host_.Told<GuardianQuiesced>(), IsEmpty());
  for (const ProcessId id : {1, 2})
    host_.Do(host_.core.Handle(ProcessEnded{id, {.exit = {.signal = SIGKILL}}}, host_.now));
  host_.Settle();
  EXPECT_EQ(host_.Told<GuardianRankExited>().size(), 2u);
  EXPECT_EQ(host_.Told<GuardianQuiesced>().size(), 1u);
}

TEST_F(GuardianCoreTest, ALaterAbortCanOnlyShortenTheGrace) {
  Run(1);
  host_.Command(GuardianAbort{.generation = 1, .grace_seconds = 10});
  host_.Command(GuardianAbort{.generation = 1, .grace_seconds = 60});
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_FALSE(host_.processes[1].killed);
  host_.Command(GuardianAbort{.generation = 1, .grace_seconds = 0.1});
  host_.now += std::chrono::milliseconds(100);
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_TRUE(host_.processes[1].killed);
}

TEST_F(GuardianCoreTest, AParkedProcessThatCannotBeKilledIsNotOneThatIsKept) {
  Run(1);
  host_.Command(ParkAll(1));
  host_.Settle();
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  EXPECT_EQ(LastQuiesced(),
            (GuardianQuiesced{.generation = 1, .unkillable_pids = {1001}, .parked_ranks = {1}}));
}

TEST_F(GuardianCoreTest, StandbysThatAreLeftAreCounted) {
  Prepare(1);
  host_.Command(GuardianStandby{.count = 2, .at_once = true, .launch = Rank(0, 0)});
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1, .standbys = 2}));
  host_.Command(GuardianAbort{.generation = 1});
  host_.Settle();
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 1}));
}

TEST_F(GuardianCoreTest, AnAbortThatKeepsNoProcessCancelsTheRequestForStandbys) {
  Prepare(1);
  host_.Command(GuardianStandby{.count = 1, .at_once = true, .launch = Rank(0, 0)});
  EXPECT_EQ(host_.processes.size(), 1u);
  host_.Command(GuardianAbort{.generation = 1});
  host_.Settle();
  Prepare(2);
  EXPECT_THAT(host_.processes, IsEmpty());
}

TEST_F(GuardianCoreTest, EveryGenerationHasItsLimitOfMemoryBeforeItIsPrepared) {
  host_.Command(GuardianPrepare{.generation = 1, .memory_limit_bytes = 4096});
  EXPECT_EQ(host_.memory_limit, 4096u);
  Prepare(2);
  EXPECT_EQ(host_.memory_limit, 0u);
}

class LocksTest : public GuardianCoreTest {
 protected:
  void Prepare(Generation generation, std::vector<std::string> devices, bool spare = false) {
    host_.Command(
        GuardianPrepare{.generation = generation, .spare = spare, .devices = std::move(devices)});
    host_.Settle();
  }
  std::string Error() const { return host_.Told<GuardianPrepared>().back().error; }
};

TEST_F(LocksTest, DevicesAreLockedBeforeAGenerationIsPreparedAndUntilNothingIsLeft) {
  Prepare(1, {"a", "b"});
  EXPECT_EQ(Error(), "");
  EXPECT_THAT(host_.locked, ElementsAre("a", "b"));
  for (const int rank : {0, 1}) host_.Command(RankOn(1, rank, rank == 0 ? "a" : "b"));
  EXPECT_THAT(host_.processes[2].devices, ElementsAre("b"));
  host_.Command(GuardianAbort{.generation = 1, .grace_seconds = 1});
  EXPECT_THAT(host_.locked, ElementsAre("a", "b")) << "they have not ended";
  host_.Settle();
  EXPECT_THAT(host_.locked, IsEmpty());
  EXPECT_EQ(std::get<GuardianQuiesced>(host_.told.at(host_.told_before_unlock)),
            (GuardianQuiesced{.generation = 1}))
      << "another job may get them as soon as that is known";
}

TEST_F(LocksTest, ADeviceOfAnotherJobFailsThePreparationAndNothingCanBeLaunched) {
  host_.foreign = {"b"};
  host_.Command(GuardianPrepare{.generation = 1,
                                .master = MasterSocket::kListen,
                                .bind_address = "127.0.0.1",
                                .devices = {"a", "b"}});
  EXPECT_EQ(Error(), "device b is still held");
  EXPECT_EQ(host_.binds, 0);
  EXPECT_THAT(host_.locked, IsEmpty());
  host_.Command(RankOn(1, 0, "a"));
  EXPECT_EQ(host_.Told<GuardianRefused>().size(), 1u);
  host_.foreign.clear();
  Prepare(2, {"a", "b"});
  EXPECT_EQ(Error(), "");
  EXPECT_THAT(host_.locked, ElementsAre("a", "b"));
}

TEST_F(LocksTest, ARankOfADeviceThatWasNotPreparedIsRefused) {
  Prepare(1, {"a"});
  host_.Command(RankOn(1, 0, "b"));
  EXPECT_EQ(host_.Told<GuardianRefused>().size(), 1u);
  EXPECT_THAT(host_.processes, IsEmpty());
}

TEST_F(LocksTest, ParkedProcessesKeepThemAndOneWhoseDeviceIsGivenUpIsEnded) {
  Prepare(1, {"a", "b"});
  host_.Command(RankOn(1, 0, "a"));
  host_.Command(RankOn(1, 1, "b"));
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_THAT(LastQuiesced().parked_ranks, ElementsAre(0, 1));
  EXPECT_THAT(host_.locked, ElementsAre("a", "b"));
  Prepare(2, {"a", "c"});
  EXPECT_THAT(host_.locked, ElementsAre("a", "c"));
  EXPECT_FALSE(host_.processes.contains(2));
  host_.Command(RankOn(2, 0, "a"));
  EXPECT_EQ(host_.Of(2, 0), 1);
  host_.Command(RankOn(2, 1, "c"));
  EXPECT_THAT(host_.processes[host_.Of(2, 1)].devices, ElementsAre("c"));
}

TEST_F(LocksTest, TheyAreGivenUpWithTheLastParkedProcess) {
  Prepare(1, {"a"});
  host_.Command(RankOn(1, 0, "a"));
  host_.Command(ParkAll(1));
  host_.Settle();
  EXPECT_THAT(host_.locked, ElementsAre("a"));
  host_.Die(1, {.signal = SIGSEGV});
  EXPECT_THAT(host_.locked, IsEmpty());
}

TEST_F(LocksTest, ASpareHasThemWithoutAProcessAndAStandbyGetsThemWithItsRank) {
  Prepare(1, {"a"}, true);
  host_.Command(GuardianStandby{.count = 1, .at_once = true, .launch = Rank(0, 0)});
  EXPECT_THAT(host_.locked, ElementsAre("a"));
  EXPECT_THAT(host_.processes[1].devices, IsEmpty());
  Prepare(2, {"a"});
  host_.Command(RankOn(2, 0, "a"));
  EXPECT_EQ(host_.Of(2, 0), 1);
  EXPECT_THAT(host_.processes[1].devices, ElementsAre("a"));
}

TEST_F(LocksTest, WhatSurvivedSigkillKeepsItsDeviceFromTheNextGeneration) {
  Prepare(1, {"a", "b"});
  host_.Command(RankOn(1, 0, "a"));
  host_.Command(RankOn(1, 1, "b"));
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  Prepare(2, {"a", "b"});
  EXPECT_EQ(Error(), "device a is still held");
  EXPECT_THAT(host_.locked, ElementsAre("b")) << "of the process that waits";
  Prepare(3, {"b"});
  EXPECT_EQ(Error(), "");
  host_.processes[1].unkillable = false;
  host_.Die(1, {.signal = SIGKILL});
  host_.now += kUnkillableTick;
  host_.Settle();
  Prepare(4, {"a", "b"});
  EXPECT_EQ(Error(), "");
}

TEST_F(LocksTest, WhatSurvivedSigkillKeepsNoOtherDeviceThanItsOwnFromOtherJobs) {
  Prepare(1, {"a", "b"});
  host_.Command(RankOn(1, 0, "a"));
  host_.Command(RankOn(1, 1, "b"));
  host_.processes[1].unkillable = true;
  host_.Command(ParkAll(1, {0}));
  host_.Settle();
  EXPECT_THAT(host_.locked, ElementsAre("a", "b")) << "a process waits";
  host_.Command(GuardianAbort{.generation = 1});
  host_.Settle();
  EXPECT_THAT(LastQuiesced().unkillable_pids, ElementsAre(1001));
  EXPECT_THAT(host_.locked, IsEmpty()) << "process 1 has the lock of a itself";
  Prepare(2, {"a", "b"});
  EXPECT_EQ(Error(), "device a is still held");
}

class DevicesThatChangeTest : public LocksTest {
 protected:
  // Processes 1 and 2 are parked, the second on b and c.
  void SetUp() override {
    Prepare(1, {"a", "b", "c"});
    host_.Command(RankOn(1, 0, "a"));
    GuardianLaunch launch = RankOn(1, 1, "b");
    launch.devices = {"b", "c"};
    host_.Command(launch);
    GuardianAbort abort = ParkAll(1);
    abort.next_master = MasterSocket::kListen;
    host_.Command(abort);
    host_.Settle();
    ASSERT_THAT(LastQuiesced().parked_ranks, ElementsAre(0, 1));
    host_.told.clear();
  }
  static GuardianPrepare Next(std::vector<std::string> devices) {
    return {
        .generation = 2, .master = MasterSocket::kListen, .bind_address = "", .devices = devices};
  }
};

TEST_F(DevicesThatChangeTest, APreparationIsNotAnsweredBeforeWhatHasOthersIsGone) {
  host_.Command(Next({"a", "b"}));
  EXPECT_TRUE(host_.processes[2].killed);
  EXPECT_THAT(host_.Told<GuardianPrepared>(), IsEmpty());
  EXPECT_THAT(host_.locked, ElementsAre("a", "b", "c"));
  host_.Do(host_.core.Handle(Tick{}, host_.now));
  EXPECT_THAT(host_.Told<GuardianPrepared>(), IsEmpty());
  host_.Settle();
  EXPECT_FALSE(host_.processes.contains(2));
  EXPECT_THAT(host_.Told<GuardianPrepared>(),
              ElementsAre(GuardianPrepared{.generation = 2, .master_port = 4711}));
  EXPECT_EQ(host_.binds, 1) << "the port that was bound ahead";
  EXPECT_THAT(host_.Told<GuardianQuiesced>(), IsEmpty());
  EXPECT_THAT(host_.locked, ElementsAre("a", "b"));
  EXPECT_FALSE(host_.processes[1].killed);
}

TEST_F(DevicesThatChangeTest, ASpareIsNotPreparedBeforeItsParkedProcessesAreGone) {
  host_.Command(GuardianPrepare{.generation = 2, .spare = true, .devices = {"a", "b", "c"}});
  EXPECT_THAT(host_.Told<GuardianPrepared>(), IsEmpty());
  host_.Settle();
  EXPECT_THAT(host_.processes, IsEmpty());
  EXPECT_THAT(host_.Told<GuardianPrepared>(), ElementsAre(GuardianPrepared{.generation = 2}));
}

TEST_F(DevicesThatChangeTest, WhatResistsIsNamedBeforeTheAnswerAndLookedFor) {
  host_.processes[2].unkillable = true;
  host_.Command(Next({"a"}));
  host_.Settle();
  ASSERT_EQ(host_.told.size(), 2u);
  EXPECT_THAT(std::get<GuardianQuiesced>(host_.told[0]).unkillable_pids, ElementsAre(1002));
  EXPECT_EQ(std::get<GuardianPrepared>(host_.told[1]).error, "");
  EXPECT_TRUE(host_.core.waits_for_unkillable());
}

TEST_F(DevicesThatChangeTest, NothingIsWaitedForWhereNothingHasToBeEnded) {
  host_.Command(Next({"a", "b", "c"}));
  EXPECT_THAT(host_.Told<GuardianPrepared>(),
              ElementsAre(GuardianPrepared{.generation = 2, .master_port = 4711}));
  EXPECT_FALSE(host_.core.ending());
}

TEST_F(DevicesThatChangeTest, AnAbortWhileTheyEndCancelsThePreparation) {
  host_.Command(Next({"a"}));
  host_.Command(ParkAll(2));
  host_.Settle();
  EXPECT_THAT(host_.Told<GuardianPrepared>(), IsEmpty());
  EXPECT_EQ(LastQuiesced(), (GuardianQuiesced{.generation = 2, .parked_ranks = {0}}));
}

}  // namespace
}  // namespace muster::guardian
