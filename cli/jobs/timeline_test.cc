#include "cli/jobs/timeline.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <ctime>

#include "cli/jobs/testing/canned_job.h"

namespace muster {
namespace {

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

TEST_F(TimelineTest, ShowsTheRecoveryOfARunningJob) {
  EXPECT_EQ(FormatTimeline(CannedJob(), "--dir /cluster", 1'700'000'091'000),
            R"(Job 7f3a9c1e2b  llama-chat  running
  submitted  2023-11-14 22:13:20, priority 50
  running    1m 30s, 1 restart

Progress
  step 120 of 200, loss 5.500 -> 2.500, 1234 tokens/s, 1m 05s remaining

Placement (generation 2)
  rank 0  node-1  pid 100  running, forward at step 120
  rank 1  node-2  pid 101  running, forward at step 120

History
  Attempt 1  22:13:21 to 22:14:01  2 ranks on node-1, node-2
    Started at step 0.
    Ended after step 87: rank 1 on node-2 was killed by SIGKILL, after finished step 87 in phase backward, micro-batch 3; last collective world: 812 enqueued, 811 completed. Known: its node had 40 MiB free. Look into the kernel log of node-2. The surviving ranks kept their processes, and the gang re-formed in place, training again 0.71 s after the fault: detected in 0.01 s, ranks stopped in 0.03 s, re-formed in 0.31 s, state loaded in 0.20 s, first new step in 0.16 s. It resumed from the checkpoint of step 80, and 7 finished steps were repeated.
    Last lines of its log:
      | step 87 loss 3.1
  Attempt 2  22:14:01 to now  2 ranks on node-1, node-2
    Resumed from the checkpoint of step 80.
    Note: checkpoint step-00000085-g1 refused: rank 1: checksum differs
    Still running.

Checkpoints
  step 80  step-00000080-g1  committed 22:13:59

Files
  output   /jobs/out
  logs     /jobs/out/logs/2/rank-N.log
  metrics  /jobs/out/metrics.jsonl

Next
  muster attach 7f3a9c1e2b --dir /cluster
  muster logs 7f3a9c1e2b --dir /cluster
  muster cancel 7f3a9c1e2b --dir /cluster
)");
}

TEST_F(TimelineTest, ShowsWhatTheTimeWentTo) {
  v1::Job job = CannedJob();
  const auto add = [&job](const char* state, double seconds) {
    v1::TimeShare& share = *job.mutable_goodput()->add_states();
    share.set_state(state);
    share.set_seconds(seconds);
  };
  job.mutable_goodput()->set_ratio(-1);
  add("queue", 100);
  EXPECT_EQ(FormatTimeline(job, "--dir /cluster", 1'700'000'091'000).find("goodput"),
            std::string::npos);
  job.mutable_goodput()->set_ratio(0.9);
  add("step", 90);
  add("recovery", 10);
  EXPECT_NE(FormatTimeline(job, "--dir /cluster", 1'700'000'091'000)
                .find("1 restart\n  goodput    90.0 %; lost to recovery 0:00:10 (10.0 %)\n"),
            std::string::npos);
}

// It named a model, which such a job does not leave.
TEST_F(TimelineTest, NamesTheAdapterOfASuccess) {
  v1::Job job = CannedJob();
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_spec_yaml(
      "name: a\ntrain:\n  model: {path: m}\n  data: {train: r.jsonl}\n  optimizer: {lr: 1.0e-3}\n"
      "  schedule: {max_steps: 2}\n  batch: {per_rank: 1}\n  output: {dir: o}\n  lora: {}\n");
  const std::string timeline = FormatTimeline(job, "--dir /cluster", 0);
  EXPECT_NE(timeline.find("  adapter  /jobs/out/adapter\n"), std::string::npos) << timeline;
  EXPECT_EQ(timeline.find("/jobs/out/model"), std::string::npos);
}

TEST_F(TimelineTest, NamesTheModelOfASuccess) {
  v1::Job job = CannedJob();
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_ended_unix_ms(1'700'000'061'000);
  job.mutable_attempts(1)->set_ended_unix_ms(1'700'000'061'000);
  const std::string timeline = FormatTimeline(job, "--dir /cluster", 0);
  EXPECT_NE(timeline.find("Ended after step 120 with success."), std::string::npos);
  EXPECT_NE(timeline.find("  model    /jobs/out/model\n"), std::string::npos);
  EXPECT_NE(timeline.find("  ran        1m 00s, 1 restart\n"), std::string::npos);
  EXPECT_EQ(timeline.find("muster cancel"), std::string::npos);
}

TEST_F(TimelineTest, ShowsTheLossOfAnEvaluatedCheckpoint) {
  v1::Job job = CannedJob();
  job.mutable_checkpoints(0)->set_eval_loss(1.875);
  const std::string timeline = FormatTimeline(job, "--dir /cluster", 0);
  EXPECT_NE(timeline.find("  committed 22:13:59  evaluation loss 1.8750\n"), std::string::npos)
      << timeline;
}

TEST_F(TimelineTest, ShowsTheContainerOfTheRanks) {
  v1::Job job = CannedJob();
  job.set_spec_yaml(
      "name: j\ncommand: [a]\ncontainer: {image: a:1, mounts: [/d, '/e:/f:ro', '/g:ro']}\n");
  EXPECT_NE(FormatTimeline(job, "--dir /c", 0)
                .find("  container  a:1, with /d, /e at /f (read-only), /g (read-only)\n"),
            std::string::npos);
}

TEST_F(TimelineTest, ACommandJobDoesNotTrain) {
  v1::Job job = CannedJob();
  job.set_spec_yaml("name: j\ncommand: [a]\n");
  job.mutable_attempts(0)->set_resumed_step(-1);
  job.mutable_attempts(1)->set_resumed_step(-1);
  const std::string timeline = FormatTimeline(job, "--dir /c", 0);
  EXPECT_NE(timeline.find("    Ran the command.\n"), std::string::npos) << timeline;
  EXPECT_NE(timeline.find("    Ran the command again.\n"), std::string::npos) << timeline;
}

TEST_F(TimelineTest, ShowsASnapshotAndThatNothingWasDoneAgain) {
  v1::Job job = CannedJob();
  job.mutable_attempts(0)->set_lost_steps(0);
  job.mutable_attempts(1)->set_resumed_step(87);
  job.mutable_attempts(1)->set_resumed_from("snapshot");
  const std::string timeline = FormatTimeline(job, "--dir /c", 0);
  EXPECT_NE(timeline.find("It resumed from the snapshot of step 87, and no finished step was "
                          "repeated."),
            std::string::npos)
      << timeline;
  EXPECT_NE(timeline.find("    Resumed from the snapshot of step 87.\n"), std::string::npos);
}

TEST_F(TimelineTest, EveryTierHasItsWords) {
  const std::pair<const char*, const char*> cases[] = {
      {"in_place", "kept their processes"},
      {"respawn", "restarted on the same nodes"},
      {"spare", "A spare node replaced the lost one"},
      {"shrink", "with fewer ranks"},
      {"grow", "with more ranks"},
      {"requeue", "in the queue"},
      {"", "Every rank was stopped"}};
  for (const auto& [tier, words] : cases) {
    v1::Job job = CannedJob();
    job.mutable_attempts(1)->set_tier(tier);
    EXPECT_NE(FormatTimeline(job, "--dir /c", 0).find(words), std::string::npos) << tier;
  }
}

TEST_F(TimelineTest, AFailedJobShowsThatItWasNotTriedAgain) {
  v1::Job job = CannedJob();
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_attempts()->RemoveLast();
  const std::string timeline = FormatTimeline(job, "--dir /c", 0);
  EXPECT_NE(timeline.find("Look into the kernel log of node-2. It was not retried.\n"),
            std::string::npos)
      << timeline;
}

TEST_F(TimelineTest, ACauseThatDoesNotNameTheExitGetsIt) {
  v1::Job job = CannedJob();
  job.mutable_attempts(0)->set_cause("the gang stands still");
  job.mutable_attempts(0)->mutable_card()->set_what("no progress for 3.1 s");
  EXPECT_NE(FormatTimeline(job, "--dir /c", 0)
                .find("the gang stands still (rank 1) (on node-2) (no progress for 3.1 s)"),
            std::string::npos);
}

TEST_F(TimelineTest, ATerminalCommandInTheCauseIsDefused) {
  v1::Job job = CannedJob();
  job.set_reason("\x1b[2Jgone");
  job.mutable_attempts(0)->set_log_tail(0, "\x1b]0;x\x07");
  job.mutable_attempts(0)->mutable_card()->set_advice("\x1b[2J");
  job.mutable_attempts(0)->mutable_card()->set_facts(0, "\x1b[2J");
  EXPECT_EQ(FormatTimeline(job, "--dir /c", 0).find('\x1b'), std::string::npos);
}

TEST_F(TimelineTest, AnAttemptOnALentSpareSaysSo) {
  v1::Job job = CannedJob();
  job.mutable_attempts(1)->add_lent("node-2");
  const std::string text = FormatTimeline(job, "--dir /cluster", 1'700'000'091'000);
  EXPECT_NE(text.find("Node node-2 is a spare of other jobs, and lent"), std::string::npos) << text;
}

TEST_F(TimelineTest, AQueuedJobHasAReasonAndNoTimeline) {
  v1::Job job;
  job.set_id("a");
  job.set_name("b");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_reason("needs 2 nodes with 1 free slot each; 1 ready node has room");
  const std::string timeline = FormatTimeline(job, "--dir /c", 0);
  EXPECT_NE(timeline.find("needs 2 nodes"), std::string::npos);
  EXPECT_EQ(timeline.find("History"), std::string::npos);
  EXPECT_EQ(timeline.find("Progress"), std::string::npos);
}

TEST(FormatStages, AnUnfinishedRecoveryShowsOnlyWhatIsDone) {
  v1::StageSeconds seconds;
  seconds.set_detect(0.01);
  seconds.set_abort(0.02);
  seconds.set_reform(-1);
  seconds.set_load(-1);
  seconds.set_first_step(-1);
  EXPECT_EQ(FormatStages(seconds), "detected in 0.01 s, ranks stopped in 0.02 s");
  seconds.set_detect(-1);
  seconds.set_abort(-1);
  EXPECT_EQ(FormatStages(seconds), "");
}

}  // namespace
}  // namespace muster
