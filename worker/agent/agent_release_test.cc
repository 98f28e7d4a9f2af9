#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/agent/testing/agent_testing.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AgentReleaseTest : public AgentTest {};

TEST_F(AgentReleaseTest, ReleaseEndsTheGuardianDropsTheJobAndReportsIt) {
  Run1();
  EXPECT_EQ(Commands<GuardianRelease>(agent_.Handle(Release{kJob})).size(), 1u);
  EXPECT_THAT(agent_.Handle(Release{kJob}), IsEmpty());
  agent_.Handle(GuardianLost{kJob, "closed"});
  const Effects proved = agent_.Handle(ProvedGone{.job = kJob, .records = {}});
  EXPECT_THAT(Sent<RankExited>(proved), IsEmpty());
  EXPECT_EQ(Of<ForgetJob>(proved).size(), 1u);
  EXPECT_THAT(Sent<Released>(agent_.Handle(Forgotten{kJob})), ElementsAre(Released{kJob}));
  EXPECT_THAT(agent_.Hosted(), IsEmpty());
}

TEST_F(AgentReleaseTest, AReleaseOfAnUnknownJobIsAnsweredAtOnce) {
  EXPECT_THAT(Sent<Released>(agent_.Handle(Release{kJob})), ElementsAre(Released{kJob}));
}

TEST_F(AgentReleaseTest, AReleaseThatWasLostWithItsConnectionIsSentAgain) {
  Run1();
  agent_.Handle(Release{kJob});
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  EXPECT_EQ(Commands<GuardianRelease>(Event(GuardianSynced{})).size(), 1u);
}

TEST_F(AgentReleaseTest, APrepareDuringAReleaseIsTakenUpAfterIt) {
  Run1();
  agent_.Handle(Release{kJob});
  EXPECT_THAT(agent_.Handle(MakePrepare(2)), IsEmpty());
  agent_.Handle(GuardianLost{kJob, "released"});
  agent_.Handle(ProvedGone{.job = kJob, .records = {}});
  const Effects over = agent_.Handle(Forgotten{kJob});
  EXPECT_THAT(Sent<Released>(over), ElementsAre(Released{kJob}));
  EXPECT_EQ(Of<StartPreflight>(over).size(), 1u);
  EXPECT_EQ(Of<StartGuardian>(over).size(), 1u);
  EXPECT_EQ(Hosted().generation, 2);
}

TEST_F(AgentReleaseTest, AnAbortDuringAReleaseIsAnsweredAfterItWithWhatIsLeft) {
  Run1();
  agent_.Handle(Release{kJob});
  agent_.Handle(MakePrepare(2));
  EXPECT_THAT(
      agent_.Handle(Abort{.job = kJob, .generation = 2, .reason = "prepare failed elsewhere"}),
      IsEmpty());
  agent_.Handle(GuardianLost{kJob, "released"});
  const Effects proved =
      agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}});
  EXPECT_THAT(Sent<Quiesced>(proved),
              ElementsAre(Quiesced{.job = kJob, .generation = 2, .unkillable_pids = {4242}}));
  EXPECT_THAT(Of<StartPreflight>(proved), IsEmpty()) << "it was called off";
}

TEST_F(AgentReleaseTest, AJobIsNotForgottenBeforeItsProcessesThatSurvivedSigkillAreGone) {
  Run1();
  agent_.Handle(Release{kJob});
  agent_.Handle(GuardianLost{kJob, "released"});
  const Effects proved =
      agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}});
  EXPECT_THAT(Sent<Quiesced>(proved),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {4242}}));
  EXPECT_THAT(Of<ForgetJob>(proved), IsEmpty());
  EXPECT_EQ(Hosted().job, kJob) << "a Hello without it gives the slot away";
  // The coordinator asks again after each Hello.
  EXPECT_THAT(Sent<Quiesced>(agent_.Handle(Release{kJob})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {4242}}));
  EXPECT_THAT(Sent<Quiesced>(agent_.Handle(Abort{.job = kJob, .generation = 1})),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {4242}}));

  ASSERT_EQ(Of<ScheduleStuckCheck>(proved).size(), 1u);
  EXPECT_EQ(Of<StartTerminationProof>(agent_.Handle(StuckDue{kJob})).size(), 1u);
  EXPECT_TRUE(agent_.AllSettled()) << "nobody waits with a Hello for what does not end";
  EXPECT_EQ(Of<ScheduleStuckCheck>(
                agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}}))
                .size(),
            1u);
  agent_.Handle(StuckDue{kJob});
  EXPECT_EQ(Of<ForgetJob>(agent_.Handle(ProvedGone{.job = kJob, .records = {}})).size(), 1u);
  EXPECT_THAT(Sent<Released>(agent_.Handle(Forgotten{kJob})), ElementsAre(Released{kJob}));
}

TEST_F(AgentReleaseTest, AJobThatComesBackBesideItsStuckProcessIsPrepared) {
  Run1();
  agent_.Handle(Release{kJob});
  agent_.Handle(GuardianLost{kJob, "released"});
  agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}});
  EXPECT_EQ(Of<StartGuardian>(agent_.Handle(MakePrepare(2))).size(), 1u);
  EXPECT_THAT(Of<StartTerminationProof>(agent_.Handle(StuckDue{kJob})), IsEmpty())
      << "it would end the new processes";
}

TEST_F(AgentReleaseTest, AJobOfAnEarlierWorkerWithAStuckProcessIsNotForgottenEither) {
  agent_.Handle(JobFound{
      .prepare = MakePrepare(1), .spec = TrainJob(), .launched = true, .guardian_alive = false});
  agent_.Handle(ProvedGone{.job = kJob, .records = {}, .unkillable_pids = {4242}});
  const Effects effects = agent_.Handle(Release{kJob});
  EXPECT_THAT(Of<ForgetJob>(effects), IsEmpty());
  EXPECT_THAT(Sent<Quiesced>(effects),
              ElementsAre(Quiesced{.job = kJob, .generation = 1, .unkillable_pids = {4242}}));
}

}  // namespace
}  // namespace muster::worker
