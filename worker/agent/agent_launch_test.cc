// How the agent starts a generation's ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "worker/agent/agent.h"
#include "worker/agent/testing/agent_testing.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(AgentTest, LaunchStagesFilesThenStartsEveryRank) {
  Prepare1();
  EXPECT_EQ(Of<StageLaunch>(agent_.Handle(MakeLaunch(1))).size(), 1u);
  const auto launches =
      Commands<GuardianLaunch>(agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()}));
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].rank, 0);
  EXPECT_EQ(launches[1].rank, 1);
  EXPECT_TRUE(Hosted().launched);
}

TEST_F(AgentTest, TheNodeOfRankZeroReportsWhichProcessorsItsRanksGot) {
  const auto launch = [](bool hosts_master) {
    Agent agent({.cpus = {{{{0}, 0}, {{1}, 1}}}, .slots = 2}, "/jobs");
    Prepare prepare = MakePrepare(1);
    prepare.hosts_master = hosts_master;
    agent.Handle(prepare);
    agent.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}});
    for (const GuardianEvent& event :
         {GuardianEvent(GuardianHello{.pid = 7, .job = kJob.value}),
          GuardianEvent(GuardianSynced{}), GuardianEvent(GuardianPrepared{.generation = 1})})
      agent.Handle(GuardianReported{kJob, event});
    agent.Handle(MakeLaunch(1));
    return agent.Handle(LaunchStaged{MakeLaunch(1), OkStatus()});
  };
  const std::string sentence =
      "ranks are kept to an even share of their node's processors each: 0 | 1";
  Effects effects = launch(true);
  EXPECT_THAT(
      Sent<TrainerReport>(effects),
      ElementsAre(TrainerReport{.job = kJob,
                                .generation = 1,
                                .rank = 0,
                                .body = TrainerNote{.severity = "info", .message = sentence}}));
  effects = launch(false);
  EXPECT_THAT(Sent<TrainerReport>(effects), IsEmpty()) << "one node tells it";
  ASSERT_EQ(Of<LogNote>(effects).size(), 1u);
  EXPECT_THAT(Of<LogNote>(effects)[0].text, HasSubstr(sentence));
}

class AgentWithGpusTest : public AgentTest {
 protected:
  static Prepare OnGpus(Generation generation) {
    Prepare prepare = MakePrepare(generation);
    prepare.devices = {"GPU-b", "GPU-a"};
    return prepare;
  }
  static JobSpec GpuJob() {
    JobSpec spec = TrainJob();
    spec.resources.device = "cuda";
    spec.resources.gpus.per_rank = 1;
    return spec;
  }
  void RunOnGpus() {
    agent_.Handle(OnGpus(1));
    GuardianUp();
    agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = GpuJob()}});
    Event(GuardianPrepared{.generation = 1, .master_port = 4711});
    agent_.Handle(MakeLaunch(1));
    agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()});
  }
};

TEST_F(AgentWithGpusTest, DevicesAreInUseWhileTheirRankRuns) {
  RunOnGpus();
  EXPECT_THAT(agent_.GpusInUse(), IsEmpty());
  Event(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100});
  EXPECT_THAT(agent_.GpusInUse(), ElementsAre(GpuUse{kJob, "GPU-b"}));
  Event(GuardianRankStarted{.generation = 1, .rank = 1, .pid = 101});
  EXPECT_THAT(agent_.GpusInUse(), ElementsAre(GpuUse{kJob, "GPU-a"}, GpuUse{kJob, "GPU-b"}));
  Event(GuardianRankExited{.generation = 1, .rank = 0});
  EXPECT_THAT(agent_.GpusInUse(), ElementsAre(GpuUse{kJob, "GPU-a"}));
}

TEST_F(AgentWithGpusTest, DevicesAreTheJobsWhileAnythingOfItMayBeLeft) {
  RunOnGpus();
  EXPECT_THAT(Hosted().devices, ElementsAre("GPU-b", "GPU-a"));
  agent_.Handle(GuardianLost{kJob, "killed"});
  EXPECT_THAT(Hosted().devices, ElementsAre("GPU-b", "GPU-a")) << "it is being proved";
  agent_.Handle(ProvedGone{.job = kJob, .unkillable_pids = {100}});
  EXPECT_THAT(Hosted().devices, ElementsAre("GPU-b", "GPU-a"));
  agent_.Handle(StuckSeen{kJob, {100}});
  EXPECT_THAT(Hosted().devices, IsEmpty());
}

TEST_F(AgentWithGpusTest, ARestartedWorkerKnowsTheDevicesOfWhatItFinds) {
  agent_.Handle(
      JobFound{.prepare = OnGpus(1), .spec = GpuJob(), .launched = true, .guardian_alive = true});
  EXPECT_THAT(Hosted().devices, ElementsAre("GPU-b", "GPU-a"));
}

TEST_F(AgentTest, ARepeatedLaunchDoesNothing) {
  Run1();
  EXPECT_THAT(Of<StageLaunch>(agent_.Handle(MakeLaunch(1))), IsEmpty());
}

TEST_F(AgentTest, AnAbortOvertakesALaunchWhoseFilesAreBeingWritten) {
  Prepare1();
  agent_.Handle(MakeLaunch(1));
  agent_.Handle(Abort{.job = kJob, .generation = 1});
  EXPECT_THAT(agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()}), IsEmpty());
}

TEST_F(AgentTest, FilesThatCannotBeWrittenEndEveryRank) {
  Prepare1();
  agent_.Handle(MakeLaunch(1));
  const auto exits =
      Sent<RankExited>(agent_.Handle(LaunchStaged{MakeLaunch(1), ErrnoStatus(ENOSPC, "write")}));
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].end.exit.exit_code, 127);
  EXPECT_THAT(exits[0].log_tail, ElementsAre(HasSubstr("write: No space left")));
}

// In place, both come at once.
TEST_F(AgentTest, ALaunchThatComesWithItsPrepareFollowsIt) {
  Prepare1();
  agent_.Handle(MakePrepare(2));
  EXPECT_THAT(agent_.Handle(MakeLaunch(2)), IsEmpty());
  agent_.Handle(PreflightDone{.job = kJob, .generation = 2, .result = {.spec = TrainJob()}});
  const Effects effects = agent_.Handle(GuardianReported{
      kJob, GuardianPrepared{.generation = 2, .master_port = MakeLaunch(2).master_port}});
  EXPECT_EQ(Sent<Prepared>(effects).size(), 1u);
  ASSERT_EQ(Of<StageLaunch>(effects).size(), 1u);
  EXPECT_EQ(Of<StageLaunch>(effects)[0].launch.generation, 2);
}

TEST_F(AgentTest, ALaunchWhosePortIsGoneIsNotCarriedOut) {
  Prepare1();
  agent_.Handle(MakePrepare(2));
  agent_.Handle(MakeLaunch(2));
  agent_.Handle(PreflightDone{.job = kJob, .generation = 2, .result = {.spec = TrainJob()}});
  const Effects effects = agent_.Handle(GuardianReported{
      kJob, GuardianPrepared{.generation = 2, .master_port = MakeLaunch(2).master_port + 1}});
  EXPECT_EQ(Sent<Prepared>(effects).size(), 1u);
  EXPECT_THAT(Of<StageLaunch>(effects), IsEmpty());
}

TEST_F(AgentTest, AnAbortDropsALaunchThatWaitsForItsPrepare) {
  Prepare1();
  agent_.Handle(MakePrepare(2));
  agent_.Handle(MakeLaunch(2));
  agent_.Handle(Abort{.job = kJob, .generation = 2});
  agent_.Handle(PreflightDone{.job = kJob, .generation = 2, .result = {.spec = TrainJob()}});
  EXPECT_THAT(
      Of<StageLaunch>(agent_.Handle(GuardianReported{
          kJob, GuardianPrepared{.generation = 2, .master_port = MakeLaunch(2).master_port}})),
      IsEmpty());
}

TEST_F(AgentTest, RanksThatNoProcessWaitsForAreStartedWhileTheNodePrepares) {
  agent_.Handle(MakePrepare(1));
  agent_.Handle(GuardianReported{kJob, GuardianHello{.pid = 7, .job = kJob.value}});
  agent_.Handle(GuardianReported{kJob, GuardianSynced{}});
  const auto standbys = Commands<GuardianStandby>(
      agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}}));
  ASSERT_EQ(standbys.size(), 1u);
  EXPECT_EQ(standbys[0].first, static_cast<int>(MakePrepare(1).ranks.size()));
}

}  // namespace
}  // namespace muster::worker
