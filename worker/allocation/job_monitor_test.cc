#include "worker/allocation/job_monitor.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class JobMonitorTest : public testing::Test {
 protected:
  void Use(JobMonitorOptions options) { monitor_.emplace(options); }
  void Job(JobPhase phase, const std::string& reason = "", double checkpoint_seconds = 0) {
    monitor_->OnJob({.phase = phase, .reason = reason, .checkpoint_seconds = checkpoint_seconds});
  }
  // Ticks for so long and returns all effects.
  std::vector<JobMonitorEffect> Pass(Duration duration,
                                     const std::vector<std::string>& missing = {},
                                     const std::vector<std::string>& unready = {}) {
    const NodesSeen nodes{missing, unready, some_ready_};
    std::vector<JobMonitorEffect> effects;
    for (const TimePoint end = now_ + duration; now_ <= end; now_ += milliseconds(100)) {
      monitor_->Tick(nodes, now_);
      for (JobMonitorEffect& effect : monitor_->TakeEffects()) effects.push_back(std::move(effect));
    }
    return effects;
  }
  static Ending EndOf(const std::vector<JobMonitorEffect>& effects) {
    EXPECT_EQ(effects.size(), 1u);
    if (effects.empty() || !std::holds_alternative<Ending>(effects.back())) {
      ADD_FAILURE() << "no ending";
      return {};
    }
    return std::get<Ending>(effects.back());
  }

  TimePoint now_{std::chrono::hours(5)};
  bool some_ready_ = true;
  std::optional<JobMonitor> monitor_{JobMonitor(JobMonitorOptions{})};
};

TEST_F(JobMonitorTest, TheJobsEndIsTheAllocations) {
  const struct {
    JobPhase phase;
    int exit_code;
  } rows[] = {{JobPhase::kSucceeded, 0}, {JobPhase::kFailed, 10}, {JobPhase::kCancelled, 11}};
  for (const auto& row : rows) {
    Use({});
    Job(JobPhase::kActive);
    EXPECT_TRUE(Pass(seconds(300)).empty());
    Job(row.phase, "because");
    const Ending ending = EndOf(monitor_->TakeEffects());
    EXPECT_EQ(ending.exit_code, row.exit_code);
    EXPECT_EQ(ending.action, EndAction::kLeave);
    EXPECT_TRUE(monitor_->ended());
    Job(JobPhase::kSucceeded);
    EXPECT_TRUE(Pass(seconds(1)).empty()) << "ended once";
  }
}

TEST_F(JobMonitorTest, ARefusedJobIsNotRetried) {
  monitor_->OnRefused(InvalidArgument("line 3: no such key"));
  const Ending ending = EndOf(monitor_->TakeEffects());
  EXPECT_EQ(ending.exit_code, 65);
  EXPECT_EQ(ending.action, EndAction::kLeave);
  EXPECT_NE(ending.reason.find("line 3"), std::string::npos);
}

TEST_F(JobMonitorTest, BeforeTheEndOfTheTimeTheJobIsSuspended) {
  monitor_->SetEndTime(now_ + seconds(600), now_);
  Job(JobPhase::kActive, "", 20.0);
  EXPECT_TRUE(Pass(seconds(499)).empty());
  const auto effects = Pass(seconds(2));
  ASSERT_EQ(effects.size(), 1u);
  const auto& suspend = std::get<SuspendJob>(effects[0]);
  EXPECT_NEAR(suspend.by_seconds, 97, 1.5);
  EXPECT_EQ(MarkedRun(suspend.reason), 0);
  Job(JobPhase::kSuspended, "suspended: " + suspend.reason);
  const Ending ending = EndOf(monitor_->TakeEffects());
  EXPECT_EQ(ending.reason, "the job is saved and suspended: " + suspend.reason);
  EXPECT_EQ(ending.exit_code, kExitRequeue);
  EXPECT_EQ(ending.action, EndAction::kRequeue);
}

TEST_F(JobMonitorTest, AShortAllocationTrainsForHalfOfItsTime) {
  monitor_->SetEndTime(now_ + seconds(60), now_);
  Job(JobPhase::kActive, "", 20.0);
  EXPECT_TRUE(Pass(seconds(29)).empty());
  EXPECT_EQ(Pass(seconds(2)).size(), 1u);
}

TEST_F(JobMonitorTest, ASignalThatTheEndIsNearLeavesTheTimeThatThereIs) {
  monitor_->SetEndTime(now_ + seconds(180), now_ - seconds(3600));
  Job(JobPhase::kActive);
  monitor_->OnEndIsNear("SIGUSR2", seconds(25), now_);
  EXPECT_NEAR(std::get<SuspendJob>(Pass(seconds(1)).at(0)).by_seconds, 177, 1);
  Use({});
  Job(JobPhase::kActive);
  monitor_->OnEndIsNear("SIGUSR2", seconds(25), now_);
  EXPECT_NEAR(std::get<SuspendJob>(Pass(seconds(1)).at(0)).by_seconds, 22, 1);
}

TEST_F(JobMonitorTest, AnEndThatHasComeNearerIsThatOfAStopThatIsUnderWay) {
  monitor_->SetEndTime(now_ + seconds(86400), now_);
  Job(JobPhase::kActive);
  monitor_->OnEndIsNear("SIGUSR2", seconds(25), now_);
  monitor_->SetEndTime(now_ + seconds(40), now_);
  EXPECT_EQ(*monitor_->stop_by(), now_ + seconds(40));
  monitor_->SetEndTime(now_ + seconds(90), now_);
  EXPECT_EQ(*monitor_->stop_by(), now_ + seconds(40)) << "a later end changes nothing";
}

TEST_F(JobMonitorTest, ASignalAsksAtOnceAndIsRepeatedUntilItIsAnswered) {
  Job(JobPhase::kActive);
  monitor_->OnStopNotice(now_ + seconds(30), "SIGTERM");
  const auto effects = Pass(seconds(5));
  ASSERT_EQ(effects.size(), 3u);
  EXPECT_NEAR(std::get<SuspendJob>(effects[0]).by_seconds, 27, 0.5);
  EXPECT_LT(std::get<SuspendJob>(effects[2]).by_seconds, 24);
}

TEST_F(JobMonitorTest, TheEarliestNoticeCounts) {
  monitor_->OnStopNotice(now_ + seconds(30), "first");
  monitor_->OnStopNotice(now_ + seconds(90), "later");
  EXPECT_EQ(monitor_->stop_reason(), "first");
  monitor_->OnStopNotice(now_ + seconds(10), "sooner");
  EXPECT_EQ(*monitor_->stop_by(), now_ + seconds(10));
}

TEST_F(JobMonitorTest, ASoonerNoticeIsOrderedAtOnce) {
  Job(JobPhase::kActive);
  monitor_->OnStopNotice(now_ + seconds(25), "SIGTERM on a follower");
  ASSERT_EQ(Pass(milliseconds(100)).size(), 1u);
  monitor_->OnStopNotice(now_ + seconds(6), "SIGTERM");
  const auto effects = Pass(milliseconds(100));
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_NEAR(std::get<SuspendJob>(effects[0]).by_seconds, 3, 0.5);
}

TEST_F(JobMonitorTest, AJobThatCannotBeSavedInTimeIsRequeuedAllTheSame) {
  Job(JobPhase::kActive);
  monitor_->OnStopNotice(now_ + seconds(10), "SIGTERM");
  const auto effects = Pass(seconds(10));
  const auto& ending = std::get<Ending>(effects.back());
  EXPECT_EQ(ending.exit_code, kExitRequeue);
  EXPECT_NE(ending.reason.find("last checkpoint"), std::string::npos);
}

TEST_F(JobMonitorTest, TheNextRunResumesWhatTheLastOneSuspended) {
  Use({.run = 2});
  Job(JobPhase::kSuspended, "SIGTERM" + RunMark(1));
  const auto effects = Pass(seconds(1));
  ASSERT_EQ(effects.size(), 1u) << "not again at once";
  EXPECT_TRUE(std::holds_alternative<ResumeJob>(effects[0]));
  EXPECT_EQ(Pass(seconds(2)).size(), 1u) << "again where it was not heard";
}

TEST_F(JobMonitorTest, AResumeWaitsForTheNodesButNotForEver) {
  Use({.run = 1});
  Job(JobPhase::kSuspended, "SIGTERM" + RunMark(0));
  EXPECT_TRUE(Pass(seconds(14), {"n2"}).empty());
  EXPECT_EQ(Pass(seconds(1), {"n2"}).size(), 1u);
}

TEST_F(JobMonitorTest, AResumeWaitsForWorkersThatAreReadyNotForSupervisors) {
  Use({.run = 1});
  Job(JobPhase::kSuspended, "SIGTERM" + RunMark(0));
  some_ready_ = false;
  EXPECT_TRUE(Pass(seconds(2)).empty()) << "no worker is there yet";
  some_ready_ = true;
  EXPECT_TRUE(Pass(seconds(2), {}, {"n2"}).empty()) << "one is not ready";
  EXPECT_EQ(Pass(seconds(1)).size(), 1u);
}

// Its nodes would do nothing until the end of the time, and it would be requeued then.
TEST_F(JobMonitorTest, AJobThatItsUserSuspendsEndsTheAllocationAtOnce) {
  Use({.run = 1});
  monitor_->OnRunBegins();
  Job(JobPhase::kActive);
  Job(JobPhase::kSuspended, "suspended: I need the nodes");
  const Ending ending = EndOf(Pass(seconds(1)));
  EXPECT_EQ(ending.exit_code, kExitSuspended);
  EXPECT_EQ(ending.action, EndAction::kLeave);
  EXPECT_EQ(ending.reason, "by its user: I need the nodes; requeue the Slurm job to resume it");
}

TEST_F(JobMonitorTest, ALeaderThatTookOverKnowsThatTheUserSuspendedInThisRun) {
  Use({.run = 1});
  Job(JobPhase::kSuspended, "I need the nodes");
  EXPECT_EQ(EndOf(Pass(seconds(1))).exit_code, kExitSuspended);
}

TEST_F(JobMonitorTest, ARequeueResumesWhatTheUserHadSuspended) {
  Use({.run = 1});
  monitor_->OnRunBegins();
  Job(JobPhase::kSuspended, "I need the nodes");
  const auto effects = Pass(seconds(1));
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ResumeJob>(effects[0]));
}

TEST_F(JobMonitorTest, NodesThatTheCoordinatorDoesNotUseAreExcludedFromTheNextRun) {
  Job(JobPhase::kActive);
  EXPECT_TRUE(Pass(seconds(1)).empty());
  Job(JobPhase::kWaiting, "needs 2 nodes");
  EXPECT_TRUE(Pass(seconds(59), {}, {"n1"}).empty());
  const Ending ending = EndOf(Pass(seconds(2), {}, {"n1"}));
  EXPECT_EQ(ending.exit_code, kExitRequeue);
  EXPECT_EQ(ending.exclude, std::vector<std::string>{"n1"});
  EXPECT_NE(ending.reason.find("does not use: n1"), std::string::npos);
}

TEST_F(JobMonitorTest, WhereNoNodeWasEverReadyTheNextRunsWouldNotBeEither) {
  some_ready_ = false;
  Job(JobPhase::kWaiting, "needs 2 nodes");
  EXPECT_EQ(EndOf(Pass(seconds(62), {}, {"n0", "n1"})).exit_code, kExitConfig);
}

TEST_F(JobMonitorTest, ASuspendedJobOfTheLastRunIsRequeuedWhenThisOneEndsToo) {
  Use({.run = 1});
  monitor_->OnStopNotice(now_ + seconds(30), "SIGTERM");
  Job(JobPhase::kSuspended, "SIGTERM" + RunMark(0));
  EXPECT_EQ(EndOf(monitor_->TakeEffects()).exit_code, kExitRequeue);
}

TEST_F(JobMonitorTest, LostNodesThatAJobWaitsForAreExcludedFromTheNextRun) {
  Job(JobPhase::kActive);
  EXPECT_TRUE(Pass(seconds(300), {"n2"}).empty()) << "it goes on without it";
  Job(JobPhase::kWaiting, "needs 3 nodes");
  EXPECT_TRUE(Pass(seconds(59), {"n2"}).empty());
  const Ending ending = EndOf(Pass(seconds(2), {"n2"}));
  EXPECT_EQ(ending.exit_code, kExitRequeue);
  EXPECT_EQ(ending.exclude, std::vector<std::string>{"n2"});
}

TEST_F(JobMonitorTest, AJobThatFitsNoNodeOfAWholeAllocationIsAFaultOfItsConfiguration) {
  Job(JobPhase::kWaiting, "needs 8 nodes, 2 are there");
  const Ending ending = EndOf(Pass(seconds(62)));
  EXPECT_EQ(ending.exit_code, 78);
  EXPECT_NE(ending.reason.find("needs 8 nodes"), std::string::npos);
}

TEST_F(JobMonitorTest, RequeuesComeToAnEnd) {
  Use({.run = 3, .max_requeues = 3});
  monitor_->OnStopNotice(now_ + seconds(30), "SIGTERM");
  Job(JobPhase::kSuspended, "SIGTERM" + RunMark(3));
  const Ending ending = EndOf(monitor_->TakeEffects());
  EXPECT_EQ(ending.exit_code, 69);
  EXPECT_EQ(ending.action, EndAction::kLeave);
  EXPECT_NE(ending.reason.find("--max-requeues"), std::string::npos);
}

// A run of the chain: what it begins with, how far it comes, and how it ends.
class RunsInVain : public JobMonitorTest {
 protected:
  // The time is over.
  Ending EndOfRun(std::int64_t step, std::int64_t checkpoint) {
    Begin(step, checkpoint);
    monitor_->SetEndTime(now_ + seconds(600), now_);
    return Note(std::get<Ending>(Pass(seconds(600)).back()));
  }
  void Begin(std::int64_t step, std::int64_t checkpoint) {
    Use({.run = before_.run + 1, .max_in_vain = 3, .before = before_});
    monitor_->OnJob({.phase = JobPhase::kActive, .step = step, .checkpoint = checkpoint});
  }
  Ending Note(const Ending& ending) {
    before_ = monitor_->ProgressAfter(ending);
    return ending;
  }

  RunProgress before_;
};

TEST_F(RunsInVain, ThreeInARowEndTheRequeues) {
  EXPECT_EQ(EndOfRun(55, 50).exit_code, kExitRequeue);
  EXPECT_EQ(EndOfRun(55, 50).exit_code, kExitRequeue);
  EXPECT_EQ(EndOfRun(52, 50).exit_code, kExitRequeue);
  const Ending ending = EndOfRun(55, 0);
  EXPECT_EQ(ending.exit_code, kExitUnavailable);
  EXPECT_EQ(ending.action, EndAction::kLeave);
  EXPECT_NE(ending.reason.find("3 runs in a row came no further than step 55"), std::string::npos)
      << ending.reason;
  EXPECT_EQ(before_, (RunProgress{3, 55, 50, 0})) << "whoever requeues it then has a new count";
}

TEST_F(RunsInVain, AFurtherStepOrANewerCheckpointBeginsTheCountAnew) {
  EndOfRun(55, 40);
  EndOfRun(55, 40);
  EndOfRun(55, 40);
  EXPECT_EQ(before_.in_vain, 2);
  EndOfRun(56, 40);
  EXPECT_EQ(before_, (RunProgress{3, 56, 40, 0}));
  EndOfRun(50, 40);
  EXPECT_EQ(before_.in_vain, 1);
  EndOfRun(45, 42);
  EXPECT_EQ(before_, (RunProgress{5, 56, 42, 0}));
}

TEST_F(RunsInVain, AJobThatNeverBeginsIsNotRequeuedForEver) {
  for (const int code : {kExitRequeue, kExitRequeue, kExitUnavailable}) {
    Begin(0, 0);
    Job(JobPhase::kWaiting, "needs 2 nodes");
    EXPECT_EQ(Note(EndOf(Pass(seconds(61), {"n2"}))).exit_code, code);
  }
}

TEST_F(RunsInVain, WhatOthersCutShortDoesNotCount) {
  before_ = {.run = 4, .step = 9, .checkpoint = 0, .in_vain = 2};
  const auto stopped = [&](std::optional<Duration> left, Duration trained) {
    Begin(9, 0);
    if (left) monitor_->SetEndTime(now_ + *left, now_);
    Pass(trained);
    monitor_->OnStopNotice(now_ + seconds(30), "SIGTERM");
    return std::get<Ending>(Pass(seconds(31)).back());
  };
  Ending ending = stopped(seconds(3600), seconds(600));
  EXPECT_EQ(ending.exit_code, kExitRequeue) << "preempted in its first half";
  EXPECT_EQ(monitor_->ProgressAfter(ending).in_vain, 2);
  EXPECT_EQ(stopped(std::nullopt, seconds(600)).exit_code, kExitRequeue);
  EXPECT_EQ(stopped(seconds(3600), seconds(2400)).exit_code, kExitUnavailable);
}

TEST_F(RunsInVain, AUsersOrderNeitherCountsNorForgets) {
  before_ = {.run = 4, .step = 9, .checkpoint = 0, .in_vain = 2};
  Begin(9, 0);
  Job(JobPhase::kSuspended, "I need the nodes");
  const Ending ending = EndOf(monitor_->TakeEffects());
  EXPECT_EQ(ending.exit_code, kExitSuspended);
  EXPECT_EQ(monitor_->ProgressAfter(ending), (RunProgress{5, 9, 0, 2}));
}

TEST_F(JobMonitorTest, AJobThatReportsNoStepsMayBeRequeued) {
  Use({.run = 7, .before = {.run = 6, .step = 0, .checkpoint = 0, .in_vain = 6}});
  Job(JobPhase::kWaiting, "needs 2 nodes");
  EXPECT_EQ(EndOf(Pass(seconds(61), {"n2"})).exit_code, kExitRequeue);
}

TEST_F(JobMonitorTest, WaitingIsCountedAnewAfterItRan) {
  Job(JobPhase::kWaiting);
  EXPECT_TRUE(Pass(seconds(50)).empty());
  Job(JobPhase::kActive);
  Job(JobPhase::kWaiting);
  EXPECT_TRUE(Pass(seconds(50)).empty());
}

TEST(RunMark, IsReadOnlyWhereItIsOne) {
  EXPECT_EQ(MarkedRun("x" + RunMark(17)), 17);
  EXPECT_EQ(MarkedRun("x (run 3); it will go on at step 34"), 3);
  EXPECT_EQ(MarkedRun("x (run 3"), -1);
  EXPECT_EQ(MarkedRun("x (run -3)"), -1);
  EXPECT_EQ(MarkedRun("x (run )"), -1);
  EXPECT_EQ(MarkedRun("x (run 3x)"), -1);
  EXPECT_EQ(MarkedRun(""), -1);
}

}  // namespace
}  // namespace muster::worker
