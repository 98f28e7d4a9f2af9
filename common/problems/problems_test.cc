#include "common/problems/problems.h"

#include <gtest/gtest.h>

#include <cmath>

namespace muster {
namespace {

using Kind = ProblemKind;
using State = JobFacts::State;

JobFacts Running() {
  JobFacts job;
  job.state = State::kRunning;
  job.id = "7f3a";
  job.name = "tiny";
  job.step = 120;
  job.loss = 2.5;
  job.step_seconds = 1;
  return job;
}

std::vector<Problem> Of(const JobFacts& job) {
  std::vector<Problem> problems;
  FindJobProblems(job, &problems);
  return problems;
}

std::string TextOf(const JobFacts& job) {
  const std::vector<Problem> problems = Of(job);
  return problems.size() == 1 ? problems[0].text : std::to_string(problems.size()) + " problems";
}

TEST(Problems, NothingIsWrongWithAJobThatTrains) { EXPECT_TRUE(Of(Running()).empty()); }

TEST(Problems, ARunningJobsReasonIsAProblem) {
  JobFacts job = Running();
  job.reason = "training goes on, but checkpoints fail: disk full";
  const auto problems = Of(job);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, Kind::kUnsaved);
  EXPECT_EQ(problems[0].text, "job tiny: training goes on, but checkpoints fail: disk full");
  EXPECT_EQ(problems[0].command, "muster describe 7f3a");
  EXPECT_EQ(problems[0].job, "7f3a");
}

TEST(Problems, AStepThatDoesNotComeIsReportedWithTheRanksBehind) {
  JobFacts job = Running();
  job.silent_seconds = 130;
  job.ranks = {{0, "n0", 120, "forward"}, {1, "n1", 119, "backward"}};
  EXPECT_EQ(TextOf(job),
            "job tiny has not finished a step for 2 min 10 s; rank 1 on n1 is at step 119, in "
            "backward");
  job.step_seconds = 60;  // ten of its usual steps are longer
  EXPECT_TRUE(Of(job).empty());
}

TEST(Problems, AnEvaluationIsNoSilence) {
  JobFacts job = Running();
  job.silent_seconds = 3600;
  job.ranks = {{0, "n0", 120, "evaluating"}, {1, "n1", 120, "evaluating"}};
  EXPECT_TRUE(Of(job).empty());
  job.ranks = {{0, "n0", 120, "exporting"}, {1, "n1", 120, "done"}};
  EXPECT_TRUE(Of(job).empty());
}

TEST(Problems, CommandsHaveNoStepsAndAreNotSilent) {
  JobFacts job = Running();
  job.step = 0;
  job.loss = 0;
  job.silent_seconds = 3600;
  EXPECT_TRUE(Of(job).empty());
}

TEST(Problems, ARecoveryIsReportedWithItsDuration) {
  JobFacts job = Running();
  job.state = State::kRecovering;
  job.reason = "rank 1 was killed";
  EXPECT_EQ(TextOf(job), "job tiny is recovering: rank 1 was killed");
  job.state_seconds = 75;
  EXPECT_EQ(TextOf(job), "job tiny is recovering for 1 min 15 s: rank 1 was killed");
}

TEST(Problems, AStartIsGivenItsTime) {
  JobFacts job = Running();
  job.state = State::kStarting;
  job.step = 0;
  job.state_seconds = 299;
  EXPECT_TRUE(Of(job).empty());
  job.state_seconds = 7300;
  EXPECT_EQ(TextOf(job), "job tiny has its slots for 2 h 1 min and no first step yet");
}

TEST(Problems, AnOldFailureIsNoNews) {
  JobFacts job = Running();
  job.state = State::kFailed;
  job.state_seconds = 480;
  job.reason = "out of memory";
  EXPECT_EQ(TextOf(job), "job tiny failed 8 min 0 s ago: out of memory");
  job.state_seconds = 3600;
  EXPECT_TRUE(Of(job).empty());
}

TEST(Problems, ASlowRankIsNamedWithItsNode) {
  JobFacts job = Running();
  job.slow = {1, "n1", 1.5, 1.2};
  job.ranks = {{0, "n0", 120, "forward"}, {1, "n1", 120, "forward"}};
  EXPECT_EQ(TextOf(job),
            "job tiny waits for rank 1 on n1, whose work takes 1.25 times that of the others");
}

TEST(Problems, CheckpointsThatNoJobCanResumeFromAreReported) {
  JobFacts job = Running();
  job.damaged_checkpoints = 2;
  job.damage = "rank 1: checksum differs";
  EXPECT_EQ(TextOf(job),
            "job tiny cannot resume from 2 of its checkpoints: rank 1: checksum differs");
  job.state = State::kOther;
  EXPECT_TRUE(Of(job).empty());
}

TEST(Problems, ANodesStateAndItsNoticeAreTwo) {
  std::vector<Problem> problems;
  FindNodeProblems({.state = NodeFacts::State::kQuarantined,
                    .state_word = "quarantined",
                    .name = "n 1",
                    .shell_name = "'n 1'",
                    .reason = "three ranks died on it",
                    .notice = "memory pressure"},
                   &problems);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].text, "node n 1 is quarantined: three ranks died on it");
  EXPECT_EQ(problems[0].command, "muster undrain 'n 1'");
  EXPECT_EQ(problems[1].text, "node n 1: memory pressure");
}

TEST(Problems, AQueueIsOneProblem) {
  std::vector<Problem> problems;
  JobFacts waits = Running();
  waits.state = State::kWaiting;
  waits.reason = "needs 4 nodes";
  for (int i = 0; i < 3; ++i) FindJobProblems(waits, &problems);
  SortProblems(&problems);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "job tiny waits: needs 4 nodes; 2 more wait");
}

// What is at stake now stands above what is over, and that above what only waits.
TEST(Problems, TheWorstComesFirst) {
  std::vector<Problem> problems;
  JobFacts waits = Running();
  waits.state = State::kWaiting;
  waits.reason = "needs 4 nodes";
  FindJobProblems(waits, &problems);
  JobFacts failed = Running();
  failed.state = State::kFailed;
  failed.state_seconds = 480;
  FindJobProblems(failed, &problems);
  FindNodeProblems({.state = NodeFacts::State::kGone, .state_word = "lost", .name = "n9"},
                   &problems);
  JobFacts recovering = Running();
  recovering.state = State::kRecovering;
  FindJobProblems(recovering, &problems);
  JobFacts unsaved = Running();
  unsaved.reason = "checkpoints fail";
  FindJobProblems(unsaved, &problems);
  JobFacts silent = Running();
  silent.silent_seconds = 60;
  FindJobProblems(silent, &problems);
  JobFacts nan = Running();
  nan.loss = std::nan("");
  FindJobProblems(nan, &problems);
  SortProblems(&problems);
  std::vector<Kind> kinds;
  for (const Problem& problem : problems) kinds.push_back(problem.kind);
  EXPECT_EQ(kinds,
            (std::vector<Kind>{Kind::kNotFinite, Kind::kNoProgress, Kind::kUnsaved,
                               Kind::kRecovering, Kind::kNodeLost, Kind::kFailed, Kind::kWaiting}));
}

}  // namespace
}  // namespace muster
