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
  EXPECT_EQ(Commands<GuardianRelease>(agent_.OnRelease({kJob})).size(), 1u);
  EXPECT_THAT(agent_.OnRelease({kJob}), IsEmpty());
  agent_.OnGuardianLost(kJob, "closed");
  const Effects proved = agent_.OnProvedGone(kJob, {}, {});
  EXPECT_THAT(Sent<RankExited>(proved), IsEmpty());
  EXPECT_EQ(Of<ForgetJob>(proved).size(), 1u);
  EXPECT_THAT(Sent<Released>(agent_.OnForgotten(kJob)), ElementsAre(Released{kJob}));
  EXPECT_THAT(agent_.Hosted(), IsEmpty());
}

TEST_F(AgentReleaseTest, AReleaseOfAnUnknownJobIsAnsweredAtOnce) {
  EXPECT_THAT(Sent<Released>(agent_.OnRelease({kJob})), ElementsAre(Released{kJob}));
}

TEST_F(AgentReleaseTest, AReleaseThatWasLostWithItsConnectionIsSentAgain) {
  Run1();
  agent_.OnRelease({kJob});
  Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = 1});
  EXPECT_EQ(Commands<GuardianRelease>(Event(GuardianSynced{})).size(), 1u);
}

TEST_F(AgentReleaseTest, APrepareDuringAReleaseIsTakenUpAfterIt) {
  Run1();
  agent_.OnRelease({kJob});
  EXPECT_THAT(agent_.OnPrepare(MakePrepare(2)), IsEmpty());
  agent_.OnGuardianLost(kJob, "released");
  agent_.OnProvedGone(kJob, {}, {});
  const Effects over = agent_.OnForgotten(kJob);
  EXPECT_THAT(Sent<Released>(over), ElementsAre(Released{kJob}));
  EXPECT_EQ(Of<StartPreflight>(over).size(), 1u);
  EXPECT_EQ(Of<StartGuardian>(over).size(), 1u);
  EXPECT_EQ(Hosted().generation, 2);
}

TEST_F(AgentReleaseTest, AnAbortDuringAReleaseIsAnsweredAfterItWithWhatIsLeft) {
  Run1();
  agent_.OnRelease({kJob});
  agent_.OnPrepare(MakePrepare(2));
  EXPECT_THAT(agent_.OnAbort({kJob, 2, "prepare failed elsewhere"}), IsEmpty());
  agent_.OnGuardianLost(kJob, "released");
  const Effects proved = agent_.OnProvedGone(kJob, {}, {4242});
  EXPECT_THAT(Sent<Quiesced>(proved), ElementsAre(Quiesced{kJob, 2, {4242}}));
  EXPECT_THAT(Of<StartPreflight>(proved), IsEmpty()) << "it was called off";
}

TEST_F(AgentReleaseTest, AJobIsNotForgottenBeforeItsProcessesThatSurvivedSigkillAreGone) {
  Run1();
  agent_.OnRelease({kJob});
  agent_.OnGuardianLost(kJob, "released");
  const Effects proved = agent_.OnProvedGone(kJob, {}, {4242});
  EXPECT_THAT(Sent<Quiesced>(proved), ElementsAre(Quiesced{kJob, 1, {4242}}));
  EXPECT_THAT(Of<ForgetJob>(proved), IsEmpty());
  EXPECT_EQ(Hosted().job, kJob) << "a Hello without it gives the slot away";
  // The coordinator asks again after each Hello.
  EXPECT_THAT(Sent<Quiesced>(agent_.OnRelease({kJob})), ElementsAre(Quiesced{kJob, 1, {4242}}));
  EXPECT_THAT(Sent<Quiesced>(agent_.OnAbort({.job = kJob, .generation = 1})),
              ElementsAre(Quiesced{kJob, 1, {4242}}));

  ASSERT_EQ(Of<ScheduleStuckCheck>(proved).size(), 1u);
  EXPECT_EQ(Of<StartTerminationProof>(agent_.OnStuckDue(kJob)).size(), 1u);
  EXPECT_TRUE(agent_.AllSettled()) << "nobody waits with a Hello for what does not end";
  EXPECT_EQ(Of<ScheduleStuckCheck>(agent_.OnProvedGone(kJob, {}, {4242})).size(), 1u);
  agent_.OnStuckDue(kJob);
  EXPECT_EQ(Of<ForgetJob>(agent_.OnProvedGone(kJob, {}, {})).size(), 1u);
  EXPECT_THAT(Sent<Released>(agent_.OnForgotten(kJob)), ElementsAre(Released{kJob}));
}

TEST_F(AgentReleaseTest, AJobThatComesBackBesideItsStuckProcessIsPrepared) {
  Run1();
  agent_.OnRelease({kJob});
  agent_.OnGuardianLost(kJob, "released");
  agent_.OnProvedGone(kJob, {}, {4242});
  EXPECT_EQ(Of<StartGuardian>(agent_.OnPrepare(MakePrepare(2))).size(), 1u);
  EXPECT_THAT(Of<StartTerminationProof>(agent_.OnStuckDue(kJob)), IsEmpty())
      << "it would end the new processes";
}

TEST_F(AgentReleaseTest, AJobOfAnEarlierWorkerWithAStuckProcessIsNotForgottenEither) {
  agent_.Adopt(MakePrepare(1), TrainJob(), true, false);
  agent_.OnProvedGone(kJob, {}, {4242});
  const Effects effects = agent_.OnRelease({kJob});
  EXPECT_THAT(Of<ForgetJob>(effects), IsEmpty());
  EXPECT_THAT(Sent<Quiesced>(effects), ElementsAre(Quiesced{kJob, 1, {4242}}));
}

}  // namespace
}  // namespace muster::worker
