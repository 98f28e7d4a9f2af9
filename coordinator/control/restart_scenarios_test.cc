// Scenarios of a coordinator that is killed and started again, in each phase of a job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/checkpoint_format/shard_name.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

struct Cluster : ControlHarness {
  Cluster() {
    Join("n1");
    Join("n2");
    id = Submit(TrainYaml());
  }
  void JoinHosting(AttemptState as) {
    for (const char* node : {"n1", "n2"}) Join(node, {.hosted = {Hosted(node, id, as)}});
  }
  JobId id;
};

TEST(RestartTest, NothingStoredMeansNothingSent) {
  ControlHarness h;
  EXPECT_TRUE(h.controller().Events().empty());
  EXPECT_FALSE(h.controller().NextDeadline().has_value());
}

TEST(RestartTest, AQueuedJobIsPlacedOnceItsNodesAreBack) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  h.Restart();
  EXPECT_EQ(h.State(id), JobState::kQueued);
  h.Join("n1");
  h.Join("n2");
  EXPECT_EQ(h.State(id), JobState::kStarting);
}

// For a gang that was lost with the coordinator, one step was reported as lost, however many it had
// trained.
TEST(RestartTest, StepsThatAreLostWithTheCoordinatorAreCounted) {
  Cluster h;
  h.StartAll(h.id);
  h.TrainFrom(h.id, 0);
  h.Advance(seconds(16));
  h.StepTo(h.id, 40);
  h.Restart();
  h.Join("n1");
  h.Join("n2");
  h.Advance(seconds(11));
  h.StartAll(h.id);
  ASSERT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
  h.TrainFrom(h.id, 30);
  EXPECT_EQ(h.Job(h.id).attempts->at(0).lost_steps, 10) << h.Timeline();
}

TEST(RestartTest, WhilePreparing) {
  Cluster h;
  h.PreparedOn("n1", h.id);
  h.Restart();
  HostedGeneration prepared = h.Hosted("n1", h.id, AttemptState::kLaunching);
  h.Join("n1", {.hosted = {prepared}});
  EXPECT_TRUE(h.Take<Prepare>("n1").empty());
  h.Join("n2");  // the Prepare never reached it
  ASSERT_EQ(h.Take<Prepare>("n2").size(), 1u);
  h.PreparedOn("n2", h.id);
  EXPECT_EQ(h.Take<Launch>("n1").at(0).master_port, 4001);
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kLaunching);
}

TEST(RestartTest, WhileLaunchingTheMissingLaunchIsSentAgain) {
  Cluster h;
  h.PrepareAll(h.id);
  const std::string token = h.Take<Launch>("n1").at(0).rendezvous_token;
  EXPECT_FALSE(token.empty());
  h.Restart();
  h.Join("n1", {.hosted = {h.Hosted("n1", h.id, AttemptState::kRunning)}});
  h.Join("n2", {.hosted = {h.Hosted("n2", h.id, AttemptState::kLaunching)}});
  EXPECT_TRUE(h.Take<Launch>("n1").empty());
  const Launch launch = h.Take<Launch>("n2").at(0);
  EXPECT_EQ(launch.master_port, 4001);
  EXPECT_EQ(launch.generation, 1);
  // Ranks of n1 run with it already.
  EXPECT_EQ(launch.rendezvous_token, token);
  EXPECT_EQ(h.Attempt(h.id).rendezvous_token, token);
  h.Started(h.id, 1);
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kRunning);
  EXPECT_EQ(h.Attempt(h.id).rendezvous_token, "") << "it is kept for longer than a restart needs";
  EXPECT_EQ(h.Timeline().find(token), std::string::npos) << h.Timeline();
}

// It showed fewer steps than its own checkpoint has.
TEST(RestartTest, AJobHasAtLeastTheStepsOfItsCheckpoint) {
  Cluster h;
  h.RunTo(h.id, 12);
  h.Checkpoint(h.id, 40);
  h.Restart();
  EXPECT_EQ(h.Job(h.id).record->step, 40);
}

TEST(RestartTest, WhileRunningNothingChanges) {
  Cluster h;
  h.RunTo(h.id, 12);
  h.Restart();
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.JoinHosting(AttemptState::kRunning);
  h.Forget();
  for (int i = 0; i < 10; ++i) {
    h.Advance(seconds(3));
    h.StepTo(h.id, 20 + i);
    h.Deliver("n2", Heartbeat{});
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_EQ(h.Job(h.id).record->restarts, 0);
  EXPECT_TRUE(h.sends().empty());
  EXPECT_EQ(h.Attempt(h.id).ranks[1].pid, 1001);
  EXPECT_EQ(h.Job(h.id).record->step, 29);
  h.FinishAll(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded);
}

TEST(RestartTest, SinceWhenNoStepWasFinishedIsKnownUntilTheNextOneIs) {
  Cluster h;
  h.RunTo(h.id, 12);
  const auto progress_at = [&] { return h.Job(h.id).record->progress_unix_ms; };
  const std::int64_t step_at = progress_at();
  EXPECT_EQ(step_at, h.now().unix_ms);
  h.Advance(milliseconds(100));
  h.Exited(h.id, 1, {0, 9}, 0.01);
  h.Ended(h.id, 0);
  h.QuiesceAll(h.id);
  h.StartAll(h.id);
  h.ReportAll(h.id, Formed{});
  h.Restart();
  h.JoinHosting(AttemptState::kRunning);
  h.Advance(milliseconds(200));
  h.ReportAll(h.id, Resumed{.step = 10});
  EXPECT_EQ(progress_at(), step_at) << "step 10 was finished before";
  h.Advance(milliseconds(100));
  h.Report(h.id, 1, FirstStep{11});
  EXPECT_EQ(progress_at(), h.now().unix_ms) << h.Timeline();
}

TEST(RestartTest, ReportsOfTheHelloBringTheJobUpToDate) {
  Cluster h;
  h.StartAll(h.id);
  h.Restart();
  for (int rank : {0, 1}) {
    const std::string node = rank == 0 ? "n1" : "n2";
    HostedGeneration hosted = h.Hosted(node, h.id, AttemptState::kRunning);
    hosted.reports.push_back({{}, 0, rank, Formed{}});
    hosted.reports.push_back({{}, 0, rank, Resumed{.step = 0}});
    hosted.reports.push_back({{}, 0, rank, FirstStep{1}});
    hosted.reports.push_back(
        {{},
         0,
         rank,
         ShardWritten{
             .step = 10, .directory = "step-10", .shard = {rank, ShardFileName(rank), 5, "x"}}});
    h.Join(node, {.hosted = {hosted}});
  }
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  EXPECT_EQ(h.Job(h.id).record->committed_step, 10);
  EXPECT_LT(h.Attempt(h.id).seconds.load, 0) << "a time that nobody measured is not told";
}

TEST(RestartTest, ANodeThatDoesNotComeBackIsLostOneLeaseLater) {
  Cluster h;
  h.RunTo(h.id, 12);
  h.Restart();
  h.Join("n1", {.hosted = {h.Hosted("n1", h.id, AttemptState::kRunning)}});
  h.Advance(seconds(9));
  h.Deliver("n1", Heartbeat{});
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
  h.Advance(seconds(2));
  EXPECT_THAT(h.Attempt(h.id).cause, HasSubstr("node n2 was lost"));
}

TEST(RestartTest, RanksThatEndedWhileItWasDownAreFound) {
  Cluster h;
  h.RunTo(h.id, 12);
  h.Restart();
  for (const char* node : {"n1", "n2"}) {
    HostedGeneration hosted = h.Hosted(node, h.id, AttemptState::kRunning);
    hosted.exited.push_back({{}, 0, hosted.started[0].rank, {0, 0}, 3, {}});
    hosted.quiesced = true;
    h.Join(node, {.hosted = {hosted}});
  }
  EXPECT_EQ(h.State(h.id), JobState::kSucceeded) << h.Timeline();
}

TEST(RestartTest, TakingTheClusterDownAgainAndAgainFailsNoJob) {
  Cluster h;
  for (int round = 1; round <= 5; ++round) {
    h.StartAll(h.id);
    HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
    HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
    // Rank 1 saw the end of rank 0 before its own guardian received the order to end.
    n1.exited.push_back({.rank = 0, .end = {.exit = {0, 9}, .node_stopped = true}});
    n2.exited.push_back({.rank = 1, .end = {.exit = {1, 0}}});
    n1.quiesced = n2.quiesced = true;
    h.Restart();
    h.Join("n2", {.hosted = {n2}});
    h.Join("n1", {.hosted = {n1}});
    ASSERT_EQ(h.Job(h.id).attempts->at(round - 1).cause, "node n1 was taken down") << h.Timeline();
    ASSERT_EQ(h.Job(h.id).record->generation, round + 1) << h.Timeline();
  }
  EXPECT_EQ(h.Job(h.id).record->attempts_without_progress, 0);
}

TEST(RestartTest, WhileAbortingTheCauseIsKept) {
  Cluster h;
  h.RunTo(h.id, 12);
  h.Exited(h.id, 1, {0, 11});
  h.Restart();
  h.Advance(milliseconds(100));
  HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  n2.exited.push_back({{}, 0, 1, {0, 11}, 0.2, {}});
  n2.quiesced = true;
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  ASSERT_EQ(h.Take<Abort>("n1").size(), 1u);
  EXPECT_TRUE(h.Take<Abort>("n2").empty());
  h.Exited(h.id, 0, {0, 9});
  h.QuiescedOn("n1", h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause, "rank 1 on n2 was killed by SIGSEGV");
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
  EXPECT_LT(h.Attempt(h.id).seconds.detect, 0);
}

TEST(RestartTest, WhileRecoveringItWaitsForItsNodesAgain) {
  Cluster h;
  h.RunTo(h.id, 12);
  h.Leave("n2");
  h.Exited(h.id, 0, {1, 0});
  h.QuiescedOn("n1", h.id);
  h.Advance(seconds(9));
  h.Deliver("n1", Heartbeat{});
  h.Advance(seconds(2));
  ASSERT_EQ(h.State(h.id), JobState::kRecovering);
  ASSERT_EQ(h.Attempt(h.id).state, AttemptState::kEnded);
  h.Restart();
  h.Join("n1");
  h.Join("n2");
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
}

TEST(RestartTest, SequenceNumbersAndGenerationsGoOn) {
  Cluster h;
  h.RunTo(h.id, 12);
  const std::uint64_t seq = h.controller().Events().back().seq;
  h.Restart();
  EXPECT_GT(h.controller().Events().back().seq, seq);
  EXPECT_EQ(h.controller().Events().back().kind, "coordinator_restarted");
  h.Join("n1");
  h.Join("n2");
  EXPECT_EQ(h.Job(h.id).record->generation, 2) << "every rank was missing";
}

// Their guardians refused every order for the older generation, and took the next one of that
// number for a repetition: the ranks of the lost generation were adopted into another gang.
TEST(RestartTest, AGenerationThatARestoredStoreDoesNotKnowEndsBeforeTheJobGoesOn) {
  Cluster h;
  h.RunTo(h.id, 12);
  const MemoryStore hour_ago = h.store();
  h.Exited(h.id, 1, {0, 9});
  h.QuiesceAll(h.id);
  h.Advance(seconds(1));
  h.RunTo(h.id, 20);
  ASSERT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
  const HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.RestartFrom(hour_ago);
  h.Forget();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  for (const char* node : {"n1", "n2"}) {
    EXPECT_EQ(h.Take<Release>(node).size(), 1u) << node;
    EXPECT_TRUE(h.Take<Prepare>(node).empty()) << node;
  }
  h.Deliver("n1", Released{h.id});
  EXPECT_TRUE(h.Take<Prepare>("n1").empty()) << "ranks of it still run on n2";
  h.Deliver("n2", Released{h.id});
  h.Advance(seconds(1));
  ASSERT_EQ(h.Take<Prepare>("n1").at(0).generation, 3) << h.Timeline();
  h.StartAll(h.id);
  h.TrainFrom(h.id, 0);
  EXPECT_EQ(h.State(h.id), JobState::kRunning);
}

TEST(RestartTest, AJobThatARestoredStoreHasNotYetPlacedSkipsTheGenerationThatItHad) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  const MemoryStore hour_ago = h.store();
  h.Join("n1");
  h.Join("n2");
  h.RunTo(id, 12);
  const HostedGeneration n1 = h.Hosted("n1", id, AttemptState::kRunning);
  const HostedGeneration n2 = h.Hosted("n2", id, AttemptState::kRunning);
  h.RestartFrom(hour_ago);
  h.Forget();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.State(id), JobState::kQueued);
  h.Deliver("n1", Released{id});
  h.Deliver("n2", Released{id});
  ASSERT_EQ(h.Take<Prepare>("n1").at(0).generation, 2) << h.Timeline();
  EXPECT_EQ(h.Job(id).record->restarts, 0);
  h.StartAll(id);
  h.TrainFrom(id, 0);
  EXPECT_EQ(h.State(id), JobState::kRunning);
}

TEST(RestartTest, ATimeLimitCountsTheTimeThatItWasDown) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(
      "name: tiny\nresources: {nodes: 2, ranks_per_node: 1, time_limit: 60s}\nworkdir: /jobs\n"
      "command: [./hello]\n");
  h.StartAll(id);
  h.Advance(seconds(9));
  HostedGeneration n1 = h.Hosted("n1", id, AttemptState::kRunning);
  HostedGeneration n2 = h.Hosted("n2", id, AttemptState::kRunning);
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  h.Join("n2", {.hosted = {n2}});
  for (int i = 0; i < 6; ++i) {
    h.Advance(seconds(9));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n2", Heartbeat{});
  }
  EXPECT_EQ(h.State(id), JobState::kStopping);
}

// A job on a flapping node makes thousands of attempts in a month.
TEST(RestartTest, OldAttemptsAreKeptWithoutWhatTakesRoom) {
  ControlHarness h;
  h.Join("n1");
  h.Join("n2");
  const JobId id = h.Submit(TrainYaml());
  for (Step step = 1; step <= 60; ++step) {
    h.RunTo(id, step * 10);
    h.Exited(id, 1, {0, 9});
    h.QuiesceAll(id);
    h.Advance(std::chrono::seconds(1));
  }
  const std::vector<AttemptRecord>& attempts = *h.Job(id).attempts;
  ASSERT_GT(attempts.size(), 50u);
  EXPECT_TRUE(attempts.front().ranks.empty());
  EXPECT_FALSE(attempts.front().cause.empty()) << "the timeline is told to the end";
  EXPECT_EQ(attempts[attempts.size() - 20].ranks.size(), 2u);
  EXPECT_EQ(h.controller().LocateLog(h.Job(id), 0, 1).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(h.stored().attempts.size(), attempts.size());
  EXPECT_EQ(h.stored().attempts.front().ranks.size(), 2u);
}

}  // namespace
}  // namespace muster
