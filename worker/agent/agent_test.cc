#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>

#include "worker/agent/testing/agent_testing.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(AgentTest, PreparingStartsAGuardianBesideThePreflight) {
  const Effects effects = agent_.Handle(MakePrepare(1));
  EXPECT_EQ(Of<StartPreflight>(effects).size(), 1u);
  EXPECT_EQ(Of<StartGuardian>(effects).size(), 1u);
}

TEST_F(AgentTest, PreparedIsSentOnceBothAreDone) {
  agent_.Handle(MakePrepare(1));
  EXPECT_THAT(Commands<GuardianPrepare>(GuardianUp()), IsEmpty());
  const Effects asked =
      agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}});
  EXPECT_THAT(Commands<GuardianPrepare>(asked),
              ElementsAre(GuardianPrepare{
                  .generation = 1, .master = MasterSocket::kListen, .bind_address = "127.0.0.1"}));
  EXPECT_THAT(Sent<Prepared>(asked), IsEmpty());
  const Effects done = Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  EXPECT_THAT(Sent<Prepared>(done),
              ElementsAre(Prepared{.job = kJob, .generation = 1, .master_port = 4711}));
  EXPECT_TRUE(Hosted().prepared);
  EXPECT_EQ(Hosted().master_port, 4711);
}

TEST_F(AgentTest, TheJobsDevicesAreItsGuardiansUntilNothingIsLeftOfIt) {
  Prepare prepare = MakePrepare(1);
  prepare.devices = {"GPU-0", "GPU-1"};
  agent_.Handle(prepare);
  agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}});
  const auto asked = Commands<GuardianPrepare>(GuardianUp());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].devices, prepare.devices);
  Event(GuardianPrepared{.generation = 1});
  EXPECT_EQ(Hosted().devices, prepare.devices);
  agent_.Handle(Abort{.job = kJob, .generation = 1, .park_seconds = 1});
  Event(GuardianQuiesced{.generation = 1, .parked_ranks = {0}});
  EXPECT_EQ(Hosted().devices, prepare.devices) << "of the process that waits";
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  Event(GuardianQuiesced{.generation = 1});
  EXPECT_THAT(Hosted().devices, IsEmpty());
}

TEST_F(AgentTest, RanksAndSparesHaveTheMemoryOfTheRanksOfANode) {
  for (const bool spare : {false, true}) {
    Agent agent({}, "/jobs");
    Prepare prepare = MakePrepare(1);
    prepare.spare = spare;
    if (spare) prepare.ranks.clear();
    agent.Handle(prepare);
    JobSpec spec = TrainJob();
    spec.resources.ranks_per_node = 2;
    spec.resources.memory_per_rank = 1000;
    agent.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = spec}});
    agent.Handle(GuardianReported{kJob, GuardianHello{.pid = 7, .job = kJob.value}});
    const auto asked =
        Commands<GuardianPrepare>(agent.Handle(GuardianReported{kJob, GuardianSynced{}}));
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].memory_limit_bytes, 2000u);
  }
}

TEST_F(AgentTest, CommandsForAGuardianThatIsNotUpYetWait) {
  agent_.Handle(MakePrepare(1));
  const Effects early =
      agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}});
  EXPECT_THAT(Commands<GuardianPrepare>(early), IsEmpty());
  EXPECT_EQ(Commands<GuardianPrepare>(GuardianUp()).size(), 1u);
}

TEST_F(AgentTest, AKnownJobIsPreparedWithoutWaitingForPreflight) {
  Run1();
  const Effects effects = agent_.Handle(MakePrepare(2));
  EXPECT_EQ(Commands<GuardianPrepare>(effects).size(), 1u);
  EXPECT_THAT(Of<StartGuardian>(effects), IsEmpty());
  EXPECT_THAT(Sent<Prepared>(Event(GuardianPrepared{.generation = 2})), IsEmpty());
  EXPECT_EQ(Sent<Prepared>(agent_.Handle(PreflightDone{
                               .job = kJob, .generation = 2, .result = {.spec = TrainJob()}}))
                .size(),
            1u);
}

TEST_F(AgentTest, AFailedPreflightReportsWhyAndWhetherToTryAgain) {
  agent_.Handle(MakePrepare(1));
  const Effects effects =
      agent_.Handle(PreflightDone{.job = kJob,
                                  .generation = 1,
                                  .result = {.status = NotFound("no model"), .retryable = false}});
  EXPECT_THAT(Sent<Prepared>(effects),
              ElementsAre(Prepared{.job = kJob, .generation = 1, .error = "no model"}));
  EXPECT_FALSE(Hosted().prepared);
}

TEST_F(AgentTest, APortThatCannotBeBoundIsWorthAnotherAttempt) {
  agent_.Handle(MakePrepare(1));
  GuardianUp();
  agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}});
  const Effects effects = Event(GuardianPrepared{.generation = 1, .error = "no port"});
  EXPECT_THAT(
      Sent<Prepared>(effects),
      ElementsAre(Prepared{.job = kJob, .generation = 1, .error = "no port", .retryable = true}));
}

TEST_F(AgentTest, ARepeatedPrepareIsAnsweredAgainAndDoesNothing) {
  Prepare1();
  const Effects effects = agent_.Handle(MakePrepare(1));
  EXPECT_EQ(effects.size(), 1u);
  EXPECT_EQ(Sent<Prepared>(effects).size(), 1u);
}

TEST_F(AgentTest, MessagesOfAnOlderGenerationDoNothing) {
  Run1();
  agent_.Handle(MakePrepare(5));
  EXPECT_THAT(agent_.Handle(MakePrepare(4)), IsEmpty());
  EXPECT_THAT(agent_.Handle(Abort{.job = kJob, .generation = 4}), IsEmpty());
  EXPECT_THAT(Of<StageLaunch>(agent_.Handle(MakeLaunch(4))), IsEmpty());
  EXPECT_THAT(Event(GuardianRankExited{.generation = 1, .rank = 0}), IsEmpty());
  EXPECT_THAT(Event(GuardianReport{.generation = 1, .rank = 0, .json = "{}"}), IsEmpty());
  EXPECT_THAT(
      agent_.Handle(PreflightDone{.job = kJob, .generation = 4, .result = {.spec = TrainJob()}}),
      IsEmpty());
}

TEST_F(AgentTest, WhatGuardiansSayGoesOnAndIsMirrored) {
  Run1();
  EXPECT_THAT(
      Sent<TrainerReport>(
          Event(GuardianReport{.generation = 1, .rank = 0, .json = R"({"type":"formed"})"})),
      ElementsAre(TrainerReport{.job = kJob, .generation = 1, .rank = 0, .body = Formed{}}));
  const auto exits = Sent<RankExited>(Event(GuardianRankExited{.generation = 1,
                                                               .rank = 1,
                                                               .end = {{.signal = SIGSEGV}},
                                                               .age_seconds = 0.5,
                                                               .log_tail = {"last line"}}));
  EXPECT_THAT(exits, ElementsAre(RankExited{.job = kJob,
                                            .generation = 1,
                                            .rank = 1,
                                            .end = {{.signal = SIGSEGV}},
                                            .age_seconds = 0.5,
                                            .log_tail = {"last line"}}));
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1}));
  const HostedGeneration hosted = Hosted();
  EXPECT_EQ(hosted.generation, 1);
  EXPECT_EQ(hosted.started.size(), 2u);
  EXPECT_EQ(hosted.exited.size(), 1u);
  EXPECT_EQ(hosted.reports.size(), 1u);
  EXPECT_TRUE(hosted.quiesced);
}

TEST_F(AgentTest, WhatCannotBeKilledIsNotQuiesced) {
  Run1();
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1, .unkillable_pids = {100}})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {100}}));
  EXPECT_FALSE(Hosted().quiesced);
}

TEST_F(AgentTest, AnAbortForAnUnknownJobIsQuiescedAtOnce) {
  EXPECT_THAT(Sent<Quiesced>(agent_.Handle(Abort{.job = kJob, .generation = 3})),
              ElementsAre(Quiesced{.job = kJob, .generation = 3}));
}

TEST_F(AgentTest, AnAbortOfAGenerationThatNeverCameEndsTheOldOneAndFencesIt) {
  Run1();
  EXPECT_EQ(Commands<GuardianAbort>(agent_.Handle(Abort{.job = kJob, .generation = 2})).size(), 1u);
  EXPECT_EQ(Hosted().generation, 2);
  EXPECT_THAT(agent_.Handle(MakePrepare(1)), IsEmpty());
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 2})),
              ElementsAre(Quiesced{.job = kJob, .generation = 2}));
}

TEST_F(AgentTest, AnAbortWhilePreparingLeavesNothingToAnswer) {
  agent_.Handle(MakePrepare(1));
  GuardianUp();
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  EXPECT_THAT(
      agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}}),
      IsEmpty());
}

TEST_F(AgentTest, ALostGuardiansRanksAreReportedFromItsRecords) {
  Run1();
  EXPECT_EQ(Of<StartTerminationProof>(agent_.Handle(GuardianLost{kJob, "gone"})).size(), 1u);
  const Effects effects = agent_.Handle(
      ProvedGone{.job = kJob,
                 .records = {RankExited{
                     .job = kJob, .generation = 1, .rank = 1, .end = {.exit = {.exit_code = 3}}}},
                 .unkillable_pids = {}});
  const auto exits = Sent<RankExited>(effects);
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].end.exit, (ProcessExit{.signal = SIGKILL}));
  EXPECT_THAT(exits[0].log_tail, ElementsAre(HasSubstr("guardian")));
  EXPECT_EQ(exits[1].end.exit, (ProcessExit{.exit_code = 3}));
  EXPECT_THAT(Sent<Quiesced>(effects), ElementsAre(Quiesced{.job = kJob, .generation = 1}));
  EXPECT_TRUE(Hosted().quiesced);
}

TEST_F(AgentTest, AnExitThatWasReportedIsNotReportedAgainWhenTheGuardianIsLost) {
  Run1();
  Event(GuardianRankExited{.generation = 1, .rank = 0, .end = {.exit = {.exit_code = 1}}});
  agent_.Handle(GuardianLost{kJob, "gone"});
  const auto exits = Sent<RankExited>(agent_.Handle(ProvedGone{.job = kJob, .records = {}}));
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].rank, 1);
}

TEST_F(AgentTest, AGuardianLostWhilePreparingIsWorthAnotherAttempt) {
  agent_.Handle(MakePrepare(1));
  const auto prepared = Sent<Prepared>(agent_.Handle(GuardianLost{kJob, "no such file"}));
  ASSERT_EQ(prepared.size(), 1u);
  EXPECT_TRUE(prepared[0].retryable);
  EXPECT_THAT(prepared[0].error, HasSubstr("no such file"));
}

TEST_F(AgentTest, APrepareThatComesDuringTheProofGetsANewGuardianAfterIt) {
  Run1();
  agent_.Handle(GuardianLost{kJob, "gone"});
  EXPECT_THAT(Of<StartGuardian>(agent_.Handle(MakePrepare(2))), IsEmpty());
  EXPECT_EQ(Of<StartGuardian>(agent_.Handle(ProvedGone{.job = kJob, .records = {}})).size(), 1u);
  EXPECT_EQ(Commands<GuardianPrepare>(GuardianUp()).size(), 1u);
}

TEST_F(AgentTest, AReportThatCannotBeParsedIsLoggedAndNotSent) {
  Run1();
  const Effects effects =
      Event(GuardianReport{.generation = 1, .rank = 0, .json = R"({"type":"dance"})"});
  EXPECT_THAT(Sent<TrainerReport>(effects), IsEmpty());
  ASSERT_EQ(Of<LogNote>(effects).size(), 1u);
  EXPECT_THAT(Of<LogNote>(effects)[0].text, HasSubstr("'dance'"));
  EXPECT_THAT(Hosted().reports, IsEmpty());
}

TEST_F(AgentTest, AReconnectedGuardianAddsOnlyWhatIsNew) {
  Run1();
  const std::string known = R"({"type":"first_step","step":1})";
  Event(GuardianReport{.generation = 1, .rank = 0, .json = known});
  Event(GuardianHello{.pid = 7, .generation = 1});
  Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  Event(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100});
  Event(GuardianRankStarted{.generation = 1, .rank = 1, .pid = 101});
  Event(GuardianReport{.generation = 1, .rank = 0, .json = known});
  Event(GuardianReport{.generation = 1, .rank = 0, .json = R"({"type":"formed"})"});
  Event(GuardianRankExited{.generation = 1, .rank = 1, .end = {.exit = {.exit_code = 4}}});
  const Effects effects = Event(GuardianSynced{});
  EXPECT_THAT(Sent<RankStarted>(effects), IsEmpty());
  EXPECT_THAT(
      Sent<TrainerReport>(effects),
      ElementsAre(TrainerReport{.job = kJob, .generation = 1, .rank = 0, .body = Formed{}}));
  EXPECT_EQ(Sent<RankExited>(effects).size(), 1u);
  EXPECT_EQ(Hosted().reports.size(), 2u);
}

TEST_F(AgentTest, ALaunchThatWasLostWithItsConnectionIsSentAgain) {
  Prepare1();
  agent_.Handle(MakeLaunch(1));
  agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()});
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  Event(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100});
  const auto again = Commands<GuardianLaunch>(Event(GuardianSynced{}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].rank, 1);
  EXPECT_TRUE(Hosted().launched);
}

TEST_F(AgentTest, AnAbortThatWasLostWithItsConnectionIsSentAgainUntilItIsAnswered) {
  Run1();
  agent_.Handle(
      Abort{.job = kJob, .generation = 1, .reason = "a peer failed", .grace_seconds = 0.5});
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  const Effects again = Event(GuardianSynced{});
  EXPECT_THAT(
      Commands<GuardianAbort>(again),
      ElementsAre(GuardianAbort{.generation = 1, .grace_seconds = 0.5, .reason = "a peer failed"}));
  EXPECT_THAT(Commands<GuardianLaunch>(again), IsEmpty());
  Event(GuardianQuiesced{.generation = 1});
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  Event(GuardianQuiesced{.generation = 1});
  EXPECT_THAT(Commands<GuardianAbort>(Event(GuardianSynced{})), IsEmpty());
}

TEST_F(AgentTest, WhatOutlivesADeadGuardianIsReportedByItsSuccessorToo) {
  Run1();
  agent_.Handle(GuardianLost{kJob, "killed"});
  EXPECT_THAT(Sent<Quiesced>(agent_.Handle(
                  ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}}))[0]
                  .unkillable_pids,
              ElementsAre(4242));
  agent_.Handle(MakePrepare(2));
  Event(GuardianHello{.pid = 8, .job = kJob.value, .generation = 2});
  Event(GuardianSynced{});
  agent_.Handle(Abort{.job = kJob, .generation = 2});
  const auto quiesced = Sent<Quiesced>(Event(GuardianQuiesced{.generation = 2}));
  ASSERT_EQ(quiesced.size(), 1u);
  EXPECT_THAT(quiesced[0].unkillable_pids, ElementsAre(4242)) << "or its slot would be given away";
}

TEST_F(AgentTest, AHelloNamesWhatSurvivedSigkillBesideANewerGeneration) {
  Run1();
  agent_.Handle(GuardianLost{kJob, "killed"});
  agent_.Handle(MakePrepare(2));
  agent_.Handle(
      ProvedGone{.job = kJob,
                 .records = {},
                 .unkillable_pids = {4242}});  // what is sent of it is lost with the stream
  Event(GuardianHello{.pid = 8, .job = kJob.value, .generation = 2});
  Event(GuardianSynced{});
  EXPECT_EQ(Hosted().generation, 2);
  EXPECT_THAT(Hosted().unkillable_pids, ElementsAre(4242)) << "or its slot would be given away";
  agent_.Handle(StuckSeen{kJob, {4242}});
  EXPECT_THAT(Hosted().unkillable_pids, IsEmpty());
}

TEST_F(AgentTest, WhatOutlivesADeadGuardianIsReportedBeforeItsSuccessorIsPrepared) {
  Run1();
  agent_.Handle(GuardianLost{kJob, "killed"});
  agent_.Handle(MakePrepare(2));
  const Effects effects =
      agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}});
  EXPECT_THAT(Sent<Quiesced>(effects),
              ElementsAre(Quiesced{.job = kJob, .generation = 2, .unkillable_pids = {4242}}));
  const auto tells = [](const Effect& e) { return std::holds_alternative<SendToCoordinator>(e); };
  const auto starts = [](const Effect& e) { return std::holds_alternative<StartGuardian>(e); };
  EXPECT_LT(std::ranges::find_if(effects, tells), std::ranges::find_if(effects, starts));
  EXPECT_EQ(Of<StartGuardian>(effects).size(), 1u) << "there may be room beside it";
}

TEST_F(AgentTest, TheEndOfProcessesThatSurvivedSigkillIsNotLostWhereItCrossesAPreparation) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  Event(GuardianQuiesced{.generation = 1, .unkillable_pids = {100}});
  agent_.Handle(MakePrepare(2));
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1}));
}

TEST_F(AgentTest, WhatOutlivedADeadGuardianIsLookedAtAgainBesideItsSuccessor) {
  Run1();
  agent_.Handle(GuardianLost{kJob, "killed"});
  EXPECT_EQ(
      Of<ScheduleStuckCheck>(
          agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242, 4343}}))
          .size(),
      1u);
  agent_.Handle(MakePrepare(2));
  GuardianUp();
  const Effects due = agent_.Handle(StuckDue{kJob});
  EXPECT_THAT(Of<StartTerminationProof>(due), IsEmpty()) << "it would end the successor's ranks";
  ASSERT_EQ(Of<CheckStuck>(due).size(), 1u);
  EXPECT_THAT(Of<CheckStuck>(due)[0].pids, ElementsAre(4242, 4343));

  const Effects same = agent_.Handle(StuckSeen{kJob, {}});
  EXPECT_THAT(Sent<Quiesced>(same), IsEmpty());
  EXPECT_EQ(Of<ScheduleStuckCheck>(same).size(), 1u);
  // It belongs to an older generation: this one runs.
  EXPECT_THAT(Sent<Quiesced>(agent_.Handle(StuckSeen{kJob, {4242}})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {4343}}));
  agent_.Handle(Abort{.job = kJob, .generation = 2});
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 2})),
              ElementsAre(Quiesced{.job = kJob, .generation = 2, .unkillable_pids = {4343}}));
  EXPECT_FALSE(Hosted().quiesced);

  const Effects gone = agent_.Handle(StuckSeen{kJob, {4343}});
  EXPECT_THAT(Sent<Quiesced>(gone), ElementsAre(Quiesced{.job = kJob, .generation = 2}));
  EXPECT_TRUE(Hosted().quiesced);
  EXPECT_THAT(Of<ScheduleStuckCheck>(gone), IsEmpty());
  EXPECT_THAT(agent_.Handle(StuckDue{kJob}), IsEmpty());
}

TEST_F(AgentTest, AnAbortThatKeepsRanksGoesOnWholeAndItsAnswerIsMirrored) {
  Run1();
  const Effects effects = agent_.Handle(Abort{.job = kJob,
                                              .generation = 1,
                                              .reason = "rank 0 exited",
                                              .park_seconds = 1,
                                              .kill_ranks = {0}});
  EXPECT_THAT(Commands<GuardianAbort>(effects), ElementsAre(GuardianAbort{.generation = 1,
                                                                          .grace_seconds = 0,
                                                                          .reason = "rank 0 exited",
                                                                          .park_seconds = 1,
                                                                          .kill_ranks = {0}}));
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1, .parked_ranks = {1}})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .parked_ranks = {1}}));
  EXPECT_THAT(Hosted().parked_ranks, ElementsAre(1));
  EXPECT_TRUE(Hosted().quiesced);
}

TEST_F(AgentTest, AnOlderAbortsAnswerIsNotTakenForThatOfOneThatKeepsNoProcess) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1, .park_seconds = 1});
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  EXPECT_FALSE(Hosted().quiesced);
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1, .parked_ranks = {0, 1}})),
              IsEmpty());
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1, .standbys = 1})), IsEmpty());
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1}));
}

TEST_F(AgentTest, AnAbortOfParkedRanksThatWasLostIsSentAgain) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1, .park_seconds = 1});
  Event(GuardianQuiesced{.generation = 1, .parked_ranks = {0, 1}});
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  // The guardian has not received the second one when it sends its state.
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  Event(GuardianQuiesced{.generation = 1, .parked_ranks = {0, 1}});
  const Effects effects = Event(GuardianSynced{});
  EXPECT_THAT(Sent<Quiesced>(effects), IsEmpty());
  EXPECT_THAT(Commands<GuardianAbort>(effects),
              ElementsAre(GuardianAbort{.generation = 1, .grace_seconds = 0, .reason = ""}));
}

TEST_F(AgentTest, AReplayContainsParkedRanks) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1, .park_seconds = 1});
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  Event(GuardianQuiesced{.generation = 1, .parked_ranks = {1}, .standbys = 2});
  EXPECT_THAT(
      Sent<Quiesced>(Event(GuardianSynced{})),
      ElementsAre(Quiesced{.job = kJob, .generation = 1, .parked_ranks = {1}, .standbys = 2}));
  EXPECT_THAT(Hosted().parked_ranks, ElementsAre(1));
  EXPECT_EQ(Hosted().standbys, 2);
}

TEST_F(AgentTest, ALostGuardianKeepsNoProcess) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1, .park_seconds = 1});
  Event(GuardianQuiesced{.generation = 1, .parked_ranks = {0, 1}});
  agent_.Handle(GuardianLost{kJob, "killed"});
  agent_.Handle(ProvedGone{.job = kJob, .records = {}});
  EXPECT_THAT(Hosted().parked_ranks, IsEmpty());
}

TEST_F(AgentTest, StandbysAreAskedForWithEveryPreparationOfATrainJob) {
  Run1();
  Prepare prepare = MakePrepare(2);
  prepare.ranks.clear();
  prepare.spare = true;
  prepare.standbys = 2;
  const Effects effects = agent_.Handle(prepare);
  const auto prepares = Commands<GuardianPrepare>(effects);
  ASSERT_EQ(prepares.size(), 1u);
  EXPECT_TRUE(prepares[0].spare);
  const auto standbys = Commands<GuardianStandby>(effects);
  ASSERT_EQ(standbys.size(), 1u);
  EXPECT_EQ(standbys[0].count, 2);
  EXPECT_TRUE(standbys[0].at_once);
}

TEST_F(AgentTest, StandbysAreRequestedAgainAfterALostConnectionUnlessNoProcessIsKept) {
  Run1();
  const auto reconnect = [&] {
    Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
    Event(GuardianPrepared{.generation = 1, .master_port = 4711});
    return Event(GuardianSynced{});
  };
  EXPECT_EQ(Commands<GuardianStandby>(reconnect()).size(), 1u);
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  EXPECT_THAT(Commands<GuardianStandby>(reconnect()), IsEmpty());
}

TEST_F(AgentTest, AStopGoesOnUntilTheRanksEnd) {
  Run1();
  EXPECT_THAT(Commands<GuardianStop>(
                  agent_.Handle(Stop{.job = kJob, .generation = 1, .reason = "drained"})),
              ElementsAre(GuardianStop{1, "drained"}));
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  EXPECT_EQ(Commands<GuardianStop>(Event(GuardianSynced{})).size(), 1u) << "it may have been lost";
  EXPECT_THAT(agent_.Handle(Stop{.job = kJob, .generation = 2, .reason = "drained"}), IsEmpty());
  EXPECT_THAT(agent_.Handle(Stop{.job = {"0123456789"}, .generation = 1, .reason = "drained"}),
              IsEmpty());
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  EXPECT_THAT(agent_.Handle(Stop{.job = kJob, .generation = 1, .reason = "drained"}), IsEmpty());
}

TEST_F(AgentTest, AFaultIsCausedWhereItsRankRuns) {
  Run1();
  const Effects effects = agent_.Handle(InjectFault{
      .request_id = 9, .job = kJob, .generation = 1, .rank = 1, .kind = "slow", .argument = "0.3"});
  EXPECT_THAT(
      Commands<GuardianFault>(effects),
      ElementsAre(GuardianFault{.generation = 1, .rank = 1, .kind = "slow", .argument = "0.3"}));
  EXPECT_THAT(Sent<FaultDone>(effects), ElementsAre(FaultDone{9, ""}));
  Event(GuardianRankExited{.generation = 1, .rank = 1});
  for (const InjectFault& fault : {InjectFault{.request_id = 10,
                                  .job = kJob,
                                  .generation = 2,
                                  .rank = 0,
                                  .kind = "kill",
                                  .argument = ""},
                                   InjectFault{.request_id = 11,
                                   .job = kJob,
                                   .generation = 1,
                                   .rank = 1,
                                   .kind = "kill",
                                   .argument = ""},
                                   InjectFault{.request_id = 12,
                                   .job = kJob,
                                   .generation = 1,
                                   .rank = 7,
                                   .kind = "kill",
                                   .argument = ""},
                                   InjectFault{.request_id = 13,
                                   .job = {"0123456789"},
                                   .generation = 1,
                                   .rank = 0,
                                   .kind = "kill",
                                   .argument = ""}}) {
    const Effects refused = agent_.Handle(fault);
    EXPECT_THAT(Commands<GuardianFault>(refused), IsEmpty());
    ASSERT_EQ(Sent<FaultDone>(refused).size(), 1u);
    EXPECT_EQ(Sent<FaultDone>(refused)[0].request_id, fault.request_id);
    EXPECT_THAT(Sent<FaultDone>(refused)[0].error, HasSubstr("this node"));
  }
}

TEST_F(AgentTest, AnAdoptedJobIsMirroredFromItsGuardianAndGoesOn) {
  EXPECT_THAT(
      agent_.Handle(JobFound{
          .prepare = MakePrepare(1), .spec = TrainJob(), .launched = true, .guardian_alive = true}),
      IsEmpty());
  EXPECT_FALSE(agent_.AllSettled());
  Event(GuardianHello{.pid = 7, .generation = 1});
  Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  Event(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100});
  Event(GuardianRankStarted{.generation = 1, .rank = 1, .pid = 101});
  Event(GuardianSynced{});
  EXPECT_TRUE(agent_.AllSettled());
  EXPECT_TRUE(Hosted().prepared);
  EXPECT_TRUE(Hosted().launched);
  EXPECT_EQ(Sent<RankExited>(Event(GuardianRankExited{.generation = 1, .rank = 0})).size(), 1u);
}

TEST_F(AgentTest, AJobThatWasPreparedByAnEarlierWorkerCanBeLaunched) {
  agent_.Handle(JobFound{
      .prepare = MakePrepare(1), .spec = TrainJob(), .launched = false, .guardian_alive = true});
  Event(GuardianHello{.pid = 7, .generation = 1});
  Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  Event(GuardianSynced{});
  agent_.Handle(MakeLaunch(1));
  EXPECT_EQ(Commands<GuardianLaunch>(agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()})).size(),
            2u);
}

TEST_F(AgentTest, AfterAWorkersDeathBetweenTwoLaunchesTheRestIsAskedForAgain) {
  agent_.Handle(JobFound{
      .prepare = MakePrepare(1), .spec = TrainJob(), .launched = true, .guardian_alive = true});
  Event(GuardianHello{.pid = 7, .generation = 1});
  Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  Event(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100});
  Event(GuardianSynced{});
  EXPECT_TRUE(Hosted().prepared);
  EXPECT_FALSE(Hosted().launched);
  agent_.Handle(MakeLaunch(1));
  // The guardian passes over the rank that it has.
  EXPECT_EQ(Commands<GuardianLaunch>(agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()})).size(),
            2u);
}

TEST_F(AgentTest, AProcessThatEndsBesideANewerGenerationGivesItsSlotBack) {
  Run1();
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 0})),
              ElementsAre(Quiesced{.job = kJob, .generation = 0}));
  EXPECT_FALSE(Hosted().quiesced) << "what runs is of a newer generation";
}

TEST_F(AgentTest, AJobThatWasStoppedBeforeItsLaunchIsReportedAsStopped) {
  agent_.Handle(JobFound{.prepare = MakePrepare(1),
                         .spec = TrainJob(),
                         .launched = /*launched=*/false,
                         .guardian_alive = /*guardian_alive=*/false});
  const RankExited stopped{
      .job = kJob, .generation = 1, .end = {.exit = {.signal = SIGKILL}, .node_stopped = true}};
  RankExited other = stopped;
  other.rank = 1;
  agent_.Handle(ProvedGone{.job = kJob, .records = {stopped, other}});
  ASSERT_EQ(Hosted().exited.size(), 2u);
  EXPECT_TRUE(Hosted().exited[0].end.node_stopped);
  EXPECT_TRUE(Hosted().launched) << "so that the coordinator hears of the exits";
  // The coordinator may not have reached the launch: then it is prepared again.
  EXPECT_EQ(Of<StartPreflight>(agent_.Handle(MakePrepare(1))).size(), 1u);
  EXPECT_THAT(Hosted().exited, IsEmpty());
}

TEST_F(AgentTest, AnAdoptedJobWithoutAGuardianIsProvedGone) {
  const Effects effects = agent_.Handle(JobFound{
      .prepare = MakePrepare(1), .spec = TrainJob(), .launched = true, .guardian_alive = false});
  EXPECT_EQ(Of<StartTerminationProof>(effects).size(), 1u);
  EXPECT_FALSE(agent_.AllSettled());
  agent_.Handle(ProvedGone{.job = kJob, .records = {}});
  EXPECT_TRUE(agent_.AllSettled());
  EXPECT_TRUE(Hosted().quiesced);
  EXPECT_EQ(Hosted().exited.size(), 2u);
}

// Whatever comes in whatever state: no crash, and never a second guardian or an older generation.
TEST_F(AgentTest, EveryEventIsSafeInEveryState) {
  const auto guardian = [](GuardianEvent event) -> worker::Event {
    return GuardianReported{kJob, std::move(event)};
  };
  const std::vector<worker::Event> events = {
      MakePrepare(1),
      MakePrepare(2),
      PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}},
      PreflightDone{.job = kJob, .generation = 1, .result = {.status = NotFound("x")}},
      MakeLaunch(1),
      LaunchStaged{MakeLaunch(1), OkStatus()},
      Abort{.job = kJob, .generation = 1},
      Abort{.job = kJob, .generation = 3},
      Abort{.job = kJob, .generation = 1, .park_seconds = 1},
      Stop{.job = kJob, .generation = 1, .reason = "drained"},
      InjectFault{
          .request_id = 1, .job = kJob, .generation = 1, .rank = 0, .kind = "kill", .argument = ""},
      Release{kJob},
      GuardianLost{kJob, "gone"},
      ProvedGone{.job = kJob, .records = {}},
      ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}},
      StuckDue{kJob},
      StuckSeen{kJob, {4242}},
      Forgotten{kJob},
      guardian(GuardianHello{.pid = 7, .generation = 1}),
      guardian(GuardianSynced{}),
      guardian(GuardianPrepared{.generation = 1, .master_port = 1}),
      guardian(GuardianPrepared{.generation = 1, .error = "no port"}),
      guardian(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100}),
      guardian(GuardianRankExited{.generation = 1, .rank = 0}),
      guardian(GuardianReport{.generation = 1, .rank = 0, .json = "{}"}),
      guardian(GuardianQuiesced{.generation = 1}),
      guardian(GuardianQuiesced{.generation = 1, .parked_ranks = {0}}),
      guardian(GuardianRefused{.generation = 1, .newest = 2, .message = "newer"}),
  };
  const std::size_t n = events.size();
  for (std::size_t i = 0; i < n * n * n; ++i) {
    Agent agent(LaunchContext{.trainer_path = "/opt/muster-trainer"}, "/jobs");
    int guardians = 0;
    Generation newest = 0;
    const auto run = [&](const worker::Event& event) {
      for (const Effect& effect : agent.Handle(event)) {
        if (std::holds_alternative<StartGuardian>(effect)) ++guardians;
        if (std::holds_alternative<StartTerminationProof>(effect)) guardians = 0;
      }
      EXPECT_LE(guardians, 1);
      for (const HostedGeneration& hosted : agent.Hosted()) {
        EXPECT_GE(hosted.generation, newest);
        newest = hosted.generation;
      }
      if (agent.Hosted().empty()) newest = guardians = 0;
    };
    run(events[0]);
    for (const std::size_t index : {i % n, i / n % n, i / n / n}) run(events[index]);
    ASSERT_FALSE(HasFailure()) << "case " << i;
  }
}

TEST_F(AgentTest, TheEndOfProcessesThatSurvivedSigkillIsPassedOn) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  Event(GuardianQuiesced{.generation = 1, .unkillable_pids = {100, 101}});
  EXPECT_FALSE(Hosted().quiesced);
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1, .unkillable_pids = {101}})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {101}}));
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 1})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1}));
  EXPECT_TRUE(Hosted().quiesced);
}

TEST_F(AgentTest, AReportOfOlderProcessesDuringAPreparationDoesNotEndTheNewGeneration) {
  Run1();
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  Event(GuardianQuiesced{.generation = 1, .unkillable_pids = {100}});
  agent_.Handle(MakePrepare(2));
  EXPECT_THAT(Sent<Quiesced>(Event(GuardianQuiesced{.generation = 2})),
              ElementsAre(Quiesced{.job = kJob, .generation = 2}));
  agent_.Handle(PreflightDone{.job = kJob, .generation = 2, .result = {.spec = TrainJob()}});
  Event(GuardianPrepared{.generation = 2, .master_port = 4711});
  EXPECT_EQ(Of<StageLaunch>(agent_.Handle(MakeLaunch(2))).size(), 1u);
}

}  // namespace
}  // namespace muster::worker
