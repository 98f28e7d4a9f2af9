// Scenarios of recovery in living processes: which are parked, for how long, and what holds the
// slots.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A cluster of two nodes with a job that has trained to step 12.
struct Training : RunningJob {
  explicit Training(const std::string& more = "") : RunningJob(TrainYaml("tiny", more)) {}
  // Rank 1 is killed and its node has reported it; the abort is out.
  void KillRank1() { Exited(id, 1, {0, 9}); }
  int restarts() { return Job(id).record->restarts; }
};

TEST(InPlaceTest, SurvivorsAreParkedAndTheSameNodesGoOn) {
  Training h;
  h.KillRank1();
  const Abort abort = h.Take<Abort>("n1").at(0);
  EXPECT_DOUBLE_EQ(abort.park_seconds, 1);
  EXPECT_DOUBLE_EQ(abort.grace_seconds, 0);
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).ranks[0].state, RankState::kParked);
  h.ParkedOn("n2", h.id);
  EXPECT_EQ(h.Job(h.id).record->generation, 2);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kInPlace);
  EXPECT_EQ(h.Take<Prepare>("n1").at(0).standbys, 1);
  EXPECT_TRUE(h.Take<Abort>("n2").size() == 1) << "only the first one";
  EXPECT_EQ(h.Node("n1").slots_used, 1) << "parked processes and their successors share a slot";
  h.StartAll(h.id);
  h.ReportAll(h.id, Formed{});
  h.ReportAll(h.id, Resumed{.step = 12, .from = "snapshot"});
  h.ReportAll(h.id, FirstStep{13});
  EXPECT_EQ(h.Attempt(h.id).resumed_from, "snapshot");
  EXPECT_TRUE(h.HasEvent(h.id, "recovered", "resumed at step 12, 0 steps to do again; by in_place"))
      << h.Timeline();
  const auto told = std::find_if(h.observations.begin(), h.observations.end(), [](const auto& o) {
    return std::holds_alternative<RecoveryObserved>(o);
  });
  ASSERT_NE(told, h.observations.end());
  EXPECT_EQ(std::get<RecoveryObserved>(*told).tier, Tier::kInPlace);
}

// The node of rank 0 quiesces with a port for the next gang; then the other one does.
void QuiesceWithPort(Training* h, int port) {
  h->Deliver(
      "n1", Quiesced{.job = h->id, .generation = 1, .parked_ranks = {0}, .next_master_port = port});
  h->ParkedOn("n2", h->id);
}

TEST(InPlaceTest, TheNextGangIsLaunchedWithItsPrepareWhereItsPortIsBound) {
  Training h;
  h.KillRank1();
  EXPECT_EQ(h.Take<Abort>("n1").at(0).next_master_bind_address, "127.0.0.1");
  EXPECT_EQ(h.Take<Abort>("n2").at(0).next_master_bind_address, "");
  QuiesceWithPort(&h, 4242);
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kLaunching);
  for (const char* node : {"n1", "n2"}) {
    EXPECT_EQ(h.Take<Prepare>(node).at(0).generation, 2);
    EXPECT_EQ(h.Take<Launch>(node).at(0).master_port, 4242);
  }
  h.Deliver("n1", Prepared{.job = h.id, .generation = 2, .master_port = 4242});
  h.Deliver("n2", Prepared{.job = h.id, .generation = 2});
  EXPECT_TRUE(h.Take<Launch>("n1").empty()) << "once";
  for (const int rank : {0, 1}) h.Started(h.id, rank);
  h.TrainFrom(h.id, 12);
  EXPECT_EQ(h.State(h.id), JobState::kRunning) << h.Timeline();
}

TEST(InPlaceTest, APortThatIsGoneEndsTheAttemptThatWasLaunchedWithIt) {
  Training h;
  h.KillRank1();
  QuiesceWithPort(&h, 4242);
  h.Deliver("n1", Prepared{.job = h.id, .generation = 2, .master_port = 5000});
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting);
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kPrepareFailed);
}

TEST(InPlaceTest, ANodeThatCannotPrepareEndsTheAttemptThatIsLaunchedAlready) {
  Training h;
  h.KillRank1();
  QuiesceWithPort(&h, 4242);
  h.Deliver("n2", Prepared{.job = h.id, .generation = 2, .error = "no disk", .retryable = true});
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kAborting);
  EXPECT_THAT(h.Attempt(h.id).cause, HasSubstr("no disk"));
}

// A Hello in between: the processes of the generation before wait, and what was sent is lost.
TEST(InPlaceTest, PrepareAndLaunchAreSentAgainToANodeThatMissedThem) {
  Training h;
  h.KillRank1();
  QuiesceWithPort(&h, 4242);
  h.Leave("n1");
  h.Forget();
  HostedGeneration parked = h.Hosted("n1", h.id, AttemptState::kRunning);
  parked.generation = 1;
  parked.quiesced = true;
  parked.parked_ranks = {0};
  h.Join("n1", {.hosted = {parked}});
  EXPECT_EQ(h.Take<Prepare>("n1").at(0).generation, 2);
  EXPECT_EQ(h.Take<Launch>("n1").at(0).master_port, 4242);
  EXPECT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
}

TEST(InPlaceTest, OnlyTheAbortOfARanksExitIsSentBeforeItIsDurable) {
  const auto eager = [](const Training& h) {
    int count = 0;
    for (const WorkerSend& send : h.sends()) count += send.eager ? 1 : 0;
    return count;
  };
  Training h;
  h.KillRank1();
  EXPECT_EQ(eager(h), 2);
  for (const WorkerSend& send : h.sends()) {
    EXPECT_EQ(send.eager, std::holds_alternative<Abort>(send.message));
  }
  h.ParkAll(h.id);
  h.StartAll(h.id);
  EXPECT_EQ(eager(h), 2) << "nothing of the recovery";
  Training cancelled;
  (void)cancelled.Cancel(cancelled.id);
  EXPECT_EQ(eager(cancelled), 0);
}

// docs/adr/0015: the coordinator is killed after the Abort has gone out and before it was durable.
TEST(InPlaceTest, AnAbortThatWasLostWithTheCoordinatorEndsTheSame) {
  for (const bool survivor_first : {true, false}) {
    Training h;
    const MemoryStore before = h.store();
    HostedGeneration survivor = h.Hosted("n1", h.id, AttemptState::kRunning);
    HostedGeneration failed = h.Hosted("n2", h.id, AttemptState::kRunning);
    survivor.quiesced = true;
    survivor.parked_ranks = {0};
    failed.exited.push_back({.job = h.id, .generation = 1, .rank = 1, .end = {.exit = {0, 9}}});
    failed.quiesced = true;
    h.KillRank1();
    h.RestartFrom(before);
    if (survivor_first) h.Join("n1", {.hosted = {survivor}});
    h.Join("n2", {.hosted = {failed}});
    if (!survivor_first) h.Join("n1", {.hosted = {survivor}});
    h.ParkAll(h.id);
    const AttemptRecord& first = h.Job(h.id).attempts->at(0);
    EXPECT_EQ(first.cause_kind, CauseKind::kRankKilled) << h.Timeline();
    EXPECT_EQ(first.failed_rank, 1);
    EXPECT_EQ(h.Attempt(h.id).generation, 2) << h.Timeline();
    EXPECT_EQ(h.Attempt(h.id).tier, Tier::kInPlace);
  }
}

TEST(InPlaceTest, NobodyIsKeptWhereTheRulesForbidIt) {
  {
    Training h("restart: {in_place: false}\n");
    h.KillRank1();
    EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 0);
    h.QuiesceAll(h.id);
    EXPECT_EQ(h.Attempt(h.id).tier, Tier::kRespawn);
  }
  {
    Training h;  // no other attempt would do better
    h.Report(h.id, 1, TrainerError{.kind = "data", .message = "no JSON", .step = 3});
    h.Exited(h.id, 1, {78, 0});
    EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 0);
  }
  {
    Training h;
    (void)h.Cancel(h.id);
    EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 0);
  }
  {
    ControlHarness h;  // the gang had not formed
    h.Join("n1");
    h.Join("n2");
    const JobId id = h.Submit(TrainYaml());
    h.StartAll(id);
    h.Exited(id, 1, {0, 9});
    EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 0);
  }
  {
    ControlHarness h;
    h.Join("n1");
    h.Join("n2");
    const JobId id = h.Submit(CommandYaml());
    h.StartAll(id);
    h.Exited(id, 1, {0, 9});
    EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 0);
  }
}

TEST(InPlaceTest, AGangThatFailsBeforeItsFirstStepIsRespawned) {
  Training h;
  h.KillRank1();
  h.ParkAll(h.id);
  h.StartAll(h.id);
  h.ReportAll(h.id, Formed{});
  h.ReportAll(h.id, Resumed{.step = 12});
  h.Forget();
  h.Exited(h.id, 0, {0, 11});
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 0);
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kRespawn);
  h.StartAll(h.id);
  h.TrainFrom(h.id, 12);
  h.Forget();
  h.Exited(h.id, 0, {0, 9});
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 1) << "the new processes are good";
}

TEST(InPlaceTest, AGangThatGetsNowhereWithinItsBudgetIsRespawned) {
  Training h;
  h.KillRank1();
  h.ParkAll(h.id);
  h.StartAll(h.id);
  for (int i = 0; i < 9; ++i) {
    h.Advance(seconds(1));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n2", Heartbeat{});
  }
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kRunning);
  h.Advance(milliseconds(1100));
  EXPECT_EQ(h.Attempt(h.id).cause_kind, CauseKind::kSlowTier);
  EXPECT_TRUE(h.HasEvent(h.id, "aborting", "no step was finished in time")) << h.Timeline();
  h.QuiesceAll(h.id);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kRespawn);
}

TEST(InPlaceTest, LoadingDoesNotUseUpTheBudget) {
  Training h;
  h.KillRank1();
  h.ParkAll(h.id);
  h.StartAll(h.id);
  h.ReportAll(h.id, Formed{});
  for (int i = 0; i < 60; ++i) {
    h.Advance(seconds(1));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n2", Heartbeat{});
  }
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kRunning);
  h.ReportAll(h.id, Resumed{.step = 10, .from = "checkpoint"});
  for (int i = 0; i < 11; ++i) {
    h.Advance(seconds(1));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n2", Heartbeat{});
  }
  EXPECT_EQ(h.Job(h.id).attempts->back().cause_kind, CauseKind::kSlowTier);
}

TEST(InPlaceTest, AReportedLossOfPeersWaitsForItsCauseAMoment) {
  Training h;
  h.Report(
      h.id, 0,
      TrainerError{.kind = "peer_lost", .message = "all-reduce: connection reset", .step = 12});
  h.Report(h.id, 0, Parked{12});
  h.Advance(milliseconds(299));
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Advance(milliseconds(2));
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.ParkAll(h.id);
  const AttemptRecord& ended = h.Job(h.id).attempts->front();
  EXPECT_EQ(ended.cause_kind, CauseKind::kPeerLost);
  EXPECT_EQ(ended.failed_rank, 0);
}

TEST(InPlaceTest, ACauseEndsTheWaitForIt) {
  Training h;
  h.Report(h.id, 0, Parked{12});
  h.Advance(milliseconds(5));
  h.KillRank1();
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.ParkAll(h.id);
  EXPECT_EQ(h.Job(h.id).attempts->front().cause, "rank 1 on n2 was killed by SIGKILL");
}

TEST(InPlaceTest, AnErrorThatARankReportedIsCauseEnoughForASymptom) {
  Training h;
  h.Report(h.id, 1, TrainerError{.kind = "internal", .message = "assertion", .step = 12});
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
  h.Report(h.id, 0, TrainerError{.kind = "peer_lost", .message = "reset", .step = 12});
  EXPECT_EQ(h.Take<Abort>("n1").size(), 1u);
  h.Deliver("n2", RankExited{.job = h.id,
                             .generation = 1,
                             .rank = 1,
                             .end = {.exit = {1, 0}, .ended = true},
                             .log_tail = {"last words"}});
  h.ParkAll(h.id);
  const AttemptRecord& ended = h.Job(h.id).attempts->front();
  EXPECT_EQ(ended.cause, "rank 1 on n2 exited with code 1: assertion");
  EXPECT_EQ(ended.log_tail.size(), 1u) << "the exit says more than the report before it";
}

TEST(InPlaceTest, ParkedProcessesEndWhenTheJobHasToWait) {
  Training h;
  h.KillRank1();
  h.ParkedOn("n1", h.id);
  h.Leave("n2");
  h.Forget();
  for (int i = 0; i < 3; ++i) {
    h.Advance(seconds(4));
    h.Deliver("n1", Heartbeat{});
  }
  EXPECT_EQ(h.Attempt(h.id).state, AttemptState::kEnded);
  const Abort abort = h.Take<Abort>("n1").at(0);
  EXPECT_EQ(abort.generation, 1);
  EXPECT_DOUBLE_EQ(abort.park_seconds, 0);
  EXPECT_EQ(h.Node("n1").slots_used, 1) << "until its worker says that they are gone";
  h.Deliver("n1", Quiesced{.job = h.id, .generation = 1, .parked_ranks = {0}});
  EXPECT_EQ(h.Node("n1").slots_used, 1) << "that was the answer to the first abort";
  h.Deliver("n1", Quiesced{.job = h.id, .generation = 1});
  EXPECT_EQ(h.Node("n1").slots_used, 0);
  h.Join("n3");
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kRequeue);
}

TEST(InPlaceTest, ACancelDuringABackOffEndsWhatIsParked) {
  Training h;
  h.KillRank1();
  h.ParkAll(h.id);
  for (int i = 0; i < 2; ++i) {  // without progress
    h.StartAll(h.id);
    h.TrainFrom(h.id, 5);
    h.Exited(h.id, i, {0, 9});
    h.ParkAll(h.id);
  }
  ASSERT_EQ(h.Attempt(h.id).state, AttemptState::kEnded) << h.Timeline();
  EXPECT_EQ(h.Node("n1").slots_used, 1);
  (void)h.Cancel(h.id);
  EXPECT_EQ(h.State(h.id), JobState::kCancelled);
  EXPECT_EQ(h.Node("n1").slots_used, 1);
  EXPECT_EQ(h.Take<Release>("n1").size(), 1u);
  h.Deliver("n1", Released{h.id});
  EXPECT_EQ(h.Node("n1").slots_used, 0);
}

// --- the coordinator is killed in between ---

TEST(InPlaceRestartTest, BetweenAbortAndQuiesceTheSameAbortIsSentAgain) {
  Training h;
  h.KillRank1();
  const HostedGeneration running = h.Hosted("n1", h.id, AttemptState::kRunning);
  HostedGeneration parked = h.Hosted("n2", h.id, AttemptState::kRunning);
  parked.quiesced = true;
  h.Restart();
  h.Join("n1", {.hosted = {running}});
  EXPECT_DOUBLE_EQ(h.Take<Abort>("n1").at(0).park_seconds, 1);
  h.Join("n2", {.hosted = {parked}});
  h.ParkedOn("n1", h.id);
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kInPlace);
}

TEST(InPlaceRestartTest, ParkedProcessesAreTakenFromTheHello) {
  Training h;
  h.KillRank1();
  HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  n1.quiesced = true;
  n1.parked_ranks = {0};
  HostedGeneration n2 = h.Hosted("n2", h.id, AttemptState::kRunning);
  n2.quiesced = true;
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  EXPECT_EQ(h.Attempt(h.id).ranks[0].state, RankState::kParked);
  EXPECT_EQ(h.Node("n1").slots_used, 1);
  h.Join("n2", {.hosted = {n2}});
  EXPECT_EQ(h.Attempt(h.id).generation, 2);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kInPlace);
}

TEST(InPlaceRestartTest, DuringABackOffTheyAreHeldForTheJob) {
  Training h;
  h.KillRank1();
  h.ParkAll(h.id);
  for (int i = 0; i < 2; ++i) {
    h.StartAll(h.id);
    h.TrainFrom(h.id, 5);
    h.Exited(h.id, i, {0, 9});
    h.ParkAll(h.id);
  }
  HostedGeneration n1 = h.Hosted("n1", h.id, AttemptState::kRunning);
  n1.quiesced = true;
  n1.parked_ranks = {0};
  h.Restart();
  h.Join("n1", {.hosted = {n1}});
  EXPECT_TRUE(h.Take<Abort>("n1").empty()) << "n2 may still come back";
  EXPECT_EQ(h.Node("n1").slots_used, 1);
  h.Join("n2");
  EXPECT_EQ(h.Attempt(h.id).generation, 4);
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kInPlace);
}

TEST(InPlaceRestartTest, ParkedProcessesOfAnOlderGenerationAreEnded) {
  Training h;
  h.KillRank1();
  h.ParkedOn("n1", h.id);
  HostedGeneration old = h.Hosted("n1", h.id, AttemptState::kRunning);
  old.quiesced = true;
  old.parked_ranks = {0};
  h.Join("n3");
  h.Leave("n2");
  for (int i = 0; i < 3; ++i) {
    h.Advance(seconds(4));
    h.Deliver("n1", Heartbeat{});
    h.Deliver("n3", Heartbeat{});
  }
  ASSERT_EQ(h.Attempt(h.id).nodes[1].value, "n3") << h.Timeline();
  EXPECT_EQ(h.Attempt(h.id).tier, Tier::kSpare);
  h.Leave("n1");
  h.Forget();
  h.Join("n1", {.hosted = {old}});  // the Prepare never came
  EXPECT_EQ(h.Take<Prepare>("n1").size(), 1u) << "which takes over what is parked";
  EXPECT_TRUE(h.Take<Abort>("n1").empty());
}

}  // namespace
}  // namespace muster
