// What the controller books for jobs and slots, timeline by timeline.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr double kNear = 1e-6;

// Rank-seconds by state, in the order of the enum: step, recompute, checkpoint, recovery, hang,
// queue, idle.
std::vector<double> Figures(const Goodput& goodput) {
  std::vector<double> figures;
  for (const TimeShare& share : goodput.Shares()) figures.push_back(share.seconds);
  return figures;
}

std::vector<double> Figures(const ControlHarness& h, const JobId& id) {
  return Figures(h.Job(id).goodput(h.now().mono));
}

auto Are(double step, double recompute, double checkpoint, double recovery, double hang,
         double queue, double idle) {
  return ElementsAre(DoubleNear(step, kNear), DoubleNear(recompute, kNear),
                     DoubleNear(checkpoint, kNear), DoubleNear(recovery, kNear),
                     DoubleNear(hang, kNear), DoubleNear(queue, kNear), DoubleNear(idle, kNear));
}

double UnderWay(const ControlHarness& h, const JobId& id) {
  return h.Job(id).goodput(h.now().mono).under_way_seconds();
}

double Total(const ControlHarness& h, const JobId& id) {
  return h.Job(id).goodput(h.now().mono).total_seconds() + UnderWay(h, id);
}

// A rank's page while it trains; `checkpoint_seconds` since its process began.
RankProgress Page(int rank, Step step, double checkpoint_seconds = 0,
                  TrainPhase phase = TrainPhase::kForward, std::uint64_t stores = 0) {
  RankProgress page;
  page.rank = rank;
  page.step = step;
  page.phase = phase;
  page.steps_done = step;
  page.step_seconds = 0.1;
  page.stores = stores > 0 ? stores : static_cast<std::uint64_t>(100 + step);
  page.process_state = "R";
  page.phase_seconds.resize(kTrainPhaseCount);
  page.phase_seconds[static_cast<std::size_t>(TrainPhase::kCheckpoint)] = checkpoint_seconds;
  return page;
}

// Both ranks of a job report their pages.
void RecordEvent(ControlHarness& h, const JobId& id, Step step, double checkpoint_seconds = 0) {
  for (int rank = 0; rank < 2; ++rank) {
    const AttemptRecord& attempt = h.Attempt(id);
    h.Deliver(attempt.ranks[static_cast<std::size_t>(rank)].node.value,
              Progress{.job = id,
                       .generation = attempt.generation,
                       .ranks = {Page(rank, step, checkpoint_seconds)}});
  }
}

// A job of two ranks that has trained to step 12, with its usage so far discarded.
struct Training : RunningJob {
  explicit Training(const std::string& yaml = TrainYaml(),
                    const std::vector<std::string>& nodes = {"n1", "n2"})
      : RunningJob(yaml, {}, nodes) {}
  // From the fault of rank 1 to the first step after `resumed`.
  void Recover(Step resumed) {
    QuiesceAll(id);
    StartAll(id);
    ReportAll(id, Formed{});
    ReportAll(id, Resumed{.step = resumed});
    Report(id, 0, FirstStep{resumed + 1});
  }
};

TEST(GoodputTest, ACalmJobFromItsSubmissionToItsEnd) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  h.Advance(seconds(10));
  EXPECT_THAT(Figures(h, id), Are(0, 0, 0, 0, 0, 20, 0)) << "it asks for two";
  h.Join("n1");
  h.Join("n2");
  h.StartAll(id);
  h.Advance(seconds(3));
  EXPECT_THAT(Figures(h, id), Are(0, 0, 0, 0, 0, 20, 6)) << "ranks are set up";
  h.TrainFrom(id, 0);
  h.Advance(seconds(1));
  EXPECT_DOUBLE_EQ(UnderWay(h, id), 2);
  RecordEvent(h, id, 2);
  h.Advance(seconds(4));
  RecordEvent(h, id, 3, 1.5);
  EXPECT_THAT(Figures(h, id), Are(2 + 8 - 1.5, 0, 1.5, 0, 0, 20, 6))
      << "what rank 1 has waited comes with its own page";
  h.Advance(seconds(1));
  RecordEvent(h, id, 4, 1.5);
  EXPECT_THAT(Figures(h, id), Are(9, 0, 3, 0, 0, 20, 6));
  h.Advance(seconds(2));
  h.FinishAll(id);
  EXPECT_THAT(Figures(h, id), Are(9, 0, 3, 0, 0, 20, 6 + 4)) << "the model was written";
  h.Advance(seconds(100));
  EXPECT_DOUBLE_EQ(Total(h, id), 2 * 21) << "a job that is over takes no time";
}

TEST(GoodputTest, AKilledRankTakesARecoveryAndStepsThatAreDoneAgain) {
  Training h;
  const double before = Total(h, h.id);
  h.Advance(milliseconds(500));
  h.Exited(h.id, 1, {0, 9});
  h.Advance(seconds(1));
  h.Ended(h.id, 0);
  h.Recover(9);
  EXPECT_THAT(Figures(h, h.id), Are(0, 0, 0, 3, 0, 0, before))
      << "what the step under way has taken is lost too";
  h.Advance(seconds(3));
  RecordEvent(h, h.id, 13);  // 11 and 12 again, 13 for the first time
  EXPECT_THAT(Figures(h, h.id), Are(2, 4, 0, 3, 0, 0, before)) << h.Timeline();
}

TEST(GoodputTest, AHangIsBookedFromTheLastMoveToTheVerdict) {
  Training h;
  Step step = 12;
  std::uint64_t stores = 1000;
  const auto tell = [&](TrainPhase phase) {
    for (int rank = 0; rank < 2; ++rank) {
      h.Deliver(
          rank == 0 ? "n1" : "n2",
          Progress{.job = h.id, .generation = 1, .ranks = {Page(rank, step, 0, phase, stores)}});
    }
  };
  for (; step < 40; ++step, ++stores) {
    tell(TrainPhase::kForward);
    h.Advance(milliseconds(100));
  }
  // Within the next step the ranks move once more, and then stop.
  tell(TrainPhase::kForward);
  h.Advance(milliseconds(400));
  ++stores;
  tell(TrainPhase::kBackward);
  const std::vector<double> moving = Figures(h, h.id);
  for (int i = 0; i < 100 && h.State(h.id) == JobState::kRunning; ++i) {
    h.Advance(milliseconds(100));
    tell(TrainPhase::kBackward);
  }
  ASSERT_EQ(h.State(h.id), JobState::kRecovering) << h.Timeline();
  const std::vector<double> found = Figures(h, h.id);
  EXPECT_GE(found[4], 2 * 2.8);
  EXPECT_LE(found[4], 2 * 3.1);
  EXPECT_NEAR(found[3], 2 * 0.4, 0.01) << "until then it had moved";
  EXPECT_DOUBLE_EQ(found[0], moving[0]);
}

TEST(GoodputTest, ASuspendedJobIsInTheQueue) {
  Training h;
  const double before = Total(h, h.id);
  h.Suspend(h.id);
  h.Advance(seconds(1));
  RecordEvent(h, h.id, 13);
  h.Advance(seconds(2));
  h.Exited(h.id, 0, {0, 0});
  h.Exited(h.id, 1, {0, 0});
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kSuspended) << h.Timeline();
  EXPECT_THAT(Figures(h, h.id), Are(2, 0, 0, 0, 0, 0, before + 4)) << "training ended there";
  h.Advance(seconds(500));
  EXPECT_THAT(Figures(h, h.id), Are(2, 0, 0, 0, 0, 1000, before + 4));
  h.Resume(h.id);
  h.Advance(seconds(1));
  EXPECT_THAT(Figures(h, h.id), Are(2, 0, 0, 0, 0, 1000, before + 6)) << "no fault has happened";
}

TEST(GoodputTest, AJobThatFindsNoGangAfterAFaultIsInTheQueue) {
  Training h;
  const double before = Total(h, h.id);
  h.silent.insert("n2");
  h.Leave("n2");
  h.Advance(seconds(20));
  h.QuiescedOn("n1", h.id);
  ASSERT_EQ(h.State(h.id), JobState::kRecovering) << h.Timeline();
  const std::vector<double> lost = Figures(h, h.id);
  EXPECT_THAT(lost, Are(0, 0, 0, 40, 0, 0, before)) << "until it was known that none can be had";
  h.Advance(seconds(30));
  EXPECT_THAT(Figures(h, h.id), Are(0, 0, 0, 40, 0, 60, before));
  h.Restart();
  EXPECT_NEAR(Figures(h, h.id)[5], 60, 0.01) << "it still waits";
}

TEST(GoodputTest, AFaultThatEndsTheJobIsBookedAsItsRecovery) {
  Training h;
  const double before = Total(h, h.id);
  h.Advance(seconds(1));
  h.Exited(h.id, 1, {78, 0});
  h.Advance(seconds(1));
  h.Ended(h.id, 0);
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kFailed);
  EXPECT_THAT(Figures(h, h.id), Are(0, 0, 0, 4, 0, 0, before));
}

TEST(GoodputTest, ACancelledJobHasLostNothingToAFault) {
  Training h;
  const double before = Total(h, h.id);
  h.Advance(seconds(1));
  h.Cancel(h.id);
  h.QuiesceAll(h.id);
  ASSERT_EQ(h.State(h.id), JobState::kCancelled);
  EXPECT_THAT(Figures(h, h.id), Are(0, 0, 0, 0, 0, 0, before + 2));
}

TEST(GoodputTest, ACommandIsAtWorkWhileItsProcessesAreUp) {
  RunningJob h(CommandYaml());
  h.Advance(seconds(5));
  EXPECT_THAT(Figures(h, h.id), Are(10, 0, 0, 0, 0, 0, 0));
  h.Exited(h.id, 1, {1, 0});
  h.Advance(seconds(1));
  h.Ended(h.id, 0);
  h.QuiesceAll(h.id);
  h.StartAll(h.id);
  h.Advance(seconds(1));
  EXPECT_THAT(Figures(h, h.id), Are(12, 0, 0, 2, 0, 0, 0));
}

TEST(GoodputTest, AGangThatShrinksHasTheRanksThatItHas) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, min_nodes: 1,");
  Training h(yaml);
  h.silent.insert("n2");
  h.Leave("n2");
  h.Advance(seconds(20));
  h.QuiescedOn("n1", h.id);
  h.StartAll(h.id);
  ASSERT_EQ(h.Attempt(h.id).ranks.size(), 1u) << h.Timeline();
  const double before = Total(h, h.id);
  h.Advance(seconds(10));
  EXPECT_DOUBLE_EQ(Total(h, h.id) - before, 10);
}

// --- what is stored ---

const JobRecord& Stored(const ControlHarness& h) { return h.stored().jobs.front(); }

TEST(GoodputTest, UsageOfTrainingIsStoredFromTimeToTimeAndNotWithEveryStep) {
  Training h;
  int puts = 0;
  std::int64_t stored_at = Stored(h).usage.until_unix_ms;
  for (Step step = 13; step < 13 + 300; ++step) {
    h.Advance(milliseconds(100));
    RecordEvent(h, h.id, step);
    const std::int64_t now_at = Stored(h).usage.until_unix_ms;
    if (now_at != stored_at) ++puts;
    stored_at = now_at;
  }
  EXPECT_EQ(puts, 2) << "in 30 s";
  const double step_seconds = Figures({Stored(h).usage.micros})[0];
  EXPECT_GE(step_seconds, 2 * 14.9);
  EXPECT_DOUBLE_EQ(Figures(h.Job(h.id).stored_goodput(h.now().mono))[0], step_seconds);
  EXPECT_NEAR(Figures(h, h.id)[0], 60, 0.2);
}

TEST(GoodputTest, NoFigureFallsWhenTheCoordinatorStartsAgain) {
  Training h;
  for (Step step = 13; step < 13 + 200; ++step) {
    h.Advance(milliseconds(100));
    RecordEvent(h, h.id, step);
  }
  const double total = Total(h, h.id);
  const Goodput shown = h.Job(h.id).stored_goodput(h.now().mono);
  h.Restart();
  const Goodput again = h.Job(h.id).stored_goodput(h.now().mono);
  for (std::size_t i = 0; i < shown.micros.size(); ++i) {
    EXPECT_GE(again.micros[i], shown.micros[i]) << Name(static_cast<TimeState>(i));
  }
  EXPECT_NEAR(Total(h, h.id), total, 0.01);
}

TEST(GoodputTest, StepsThatWereDoneWithoutACoordinatorCount) {
  Training h;
  const double before = Total(h, h.id);
  const std::vector<HostedGeneration> first = {h.Hosted("n1", h.id, AttemptState::kRunning)};
  const std::vector<HostedGeneration> second = {h.Hosted("n2", h.id, AttemptState::kRunning)};
  h.Oversleep(seconds(5));
  h.Restart();
  h.Oversleep(seconds(1));
  h.Join("n1", {.hosted = first});
  h.Join("n2", {.hosted = second});
  EXPECT_NEAR(UnderWay(h, h.id), 12, 0.01);
  RecordEvent(h, h.id, 50);
  EXPECT_NEAR(Figures(h, h.id)[0], 12, 0.01) << h.Timeline();
  EXPECT_NEAR(Total(h, h.id), before + 12, 0.01);
}

TEST(GoodputTest, ARankThatDiedWithoutACoordinatorHasTrainedUntilThen) {
  Training h;
  const std::vector<HostedGeneration> first = {h.Hosted("n1", h.id, AttemptState::kRunning)};
  HostedGeneration second = h.Hosted("n2", h.id, AttemptState::kRunning);
  h.Restart();
  h.Oversleep(seconds(10));
  RankExited exit{.job = h.id, .generation = 1, .rank = 1, .end = {{0, 9}}, .age_seconds = 4};
  exit.last = Page(1, 60);
  second.exited.push_back(exit);
  h.Join("n1", {.hosted = first});
  h.Join("n2", {.hosted = {second}});
  ASSERT_EQ(h.State(h.id), JobState::kRecovering) << h.Timeline();
  EXPECT_NEAR(Figures(h, h.id)[0], 2 * 6, 0.01);
  EXPECT_NEAR(Figures(h, h.id)[3], 2 * 4, 0.01);
}

TEST(GoodputTest, TimeInTheQueueGoesOnWithoutACoordinator) {
  ControlHarness h;
  const JobId id = h.Submit(TrainYaml());
  h.Advance(seconds(10));
  h.Restart();
  h.Oversleep(seconds(5));
  EXPECT_NEAR(Figures(h, id)[5], 30, 0.01);
}

// --- the cluster ---

TEST(GoodputTest, TheClusterHasItsJobsAndTheSlotsThatNoneOfThemHas) {
  ControlHarness h;
  h.Join("n1", {.slots = 4});
  h.Advance(seconds(10));
  const auto cluster = [&h] { return h.controller().ClusterGoodput(h.now().mono); };
  EXPECT_THAT(Figures(cluster()), Are(0, 0, 0, 0, 0, 0, 40));
  const JobId id = h.Submit(CommandYaml());
  h.Advance(seconds(10));
  EXPECT_THAT(Figures(cluster()), Are(0, 0, 0, 0, 0, 20, 80)) << "one node is not enough";
  h.Join("n2", {.slots = 1});
  h.StartAll(id);
  h.Advance(seconds(10));
  EXPECT_THAT(Figures(cluster()), Are(20, 0, 0, 0, 0, 20, 80 + 30)) << "three are left over";
  h.FinishAll(id);
  h.Advance(seconds(10));
  EXPECT_THAT(Figures(cluster()), Are(20, 0, 0, 0, 0, 20, 110 + 50));
  EXPECT_DOUBLE_EQ(cluster().total_seconds(), 200);
}

TEST(GoodputTest, SlotsThatMayNotBeUsedAreNotIdle) {
  ControlHarness h;
  h.Join("n1", {.slots = 4});
  h.Drain("n1");
  h.Advance(seconds(10));
  EXPECT_DOUBLE_EQ(h.controller().ClusterGoodput(h.now().mono).total_seconds(), 0);
  h.Undrain("n1");
  h.Advance(seconds(10));
  EXPECT_DOUBLE_EQ(h.controller().ClusterGoodput(h.now().mono).total_seconds(), 40);
}

TEST(GoodputTest, IdleSlotsAreKeptOverARestart) {
  ControlHarness h;
  h.Join("n1", {.slots = 4});
  h.Advance(seconds(10));
  h.Restart();
  h.Join("n1", {.slots = 4});
  h.Advance(seconds(10));
  EXPECT_NEAR(h.controller().ClusterGoodput(h.now().mono).total_seconds(), 80, 0.01);
  EXPECT_EQ(h.stored().nodes.front().unused.doing.ranks, 4);
}

TEST(GoodputTest, ASpareNodeIsIdle) {
  std::string yaml = TrainYaml();
  yaml.replace(yaml.find("nodes: 2,"), 9, "nodes: 2, spares: 1,");
  Training h(yaml, {"n1", "n2", "n3"});
  ASSERT_EQ(h.Attempt(h.id).spares.size(), 1u) << h.Timeline();
  const auto idle = [&h] { return Figures(h.controller().ClusterGoodput(h.now().mono))[6]; };
  const double before = idle();
  h.Advance(seconds(10));
  EXPECT_DOUBLE_EQ(idle() - before, 10);
}

}  // namespace
}  // namespace muster
