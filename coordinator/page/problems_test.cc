#include "coordinator/page/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "common/base/json.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Watched : RunningJob {
  explicit Watched(const std::string& yaml = TrainYaml(),
                   const std::vector<std::string>& nodes = {"n1", "n2"})
      : RunningJob(yaml, {}, nodes) {}
  std::vector<Problem> Find() {
    histories.Observe(Job(id), now().mono);
    return FindProblems(controller().Jobs(), controller().Nodes(), histories, now());
  }
  Histories histories;
  std::array<double, 2> busy = {};  // seconds, of TrainOn
};

TEST(Problems, NothingIsWrongWithAJobThatTrains) {
  Watched cluster;
  EXPECT_TRUE(cluster.Find().empty());
}

TEST(Problems, AMissingStepIsReported) {
  Watched cluster;
  cluster.StepTo(cluster.id, 13);
  EXPECT_TRUE(cluster.Find().empty());
  // The controller's own verdict on a hang is not waited for here: no heartbeat is missing.
  Now later = cluster.now();
  later.mono += 40s;
  const auto problems = FindProblems(cluster.controller().Jobs(), {}, cluster.histories, later);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kNoProgress);
  EXPECT_EQ(problems[0].text, "job tiny has not finished a step for 40 s");
  EXPECT_EQ(problems[0].command, "muster describe " + cluster.id.value);
}

TEST(Problems, ARunThatCannotSaveIsReported) {
  Watched cluster;
  cluster.Report(cluster.id, 1, CheckpointFailed{.step = 10, .reason = "no space left on device"});
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kUnsaved);
  EXPECT_THAT(problems[0].text, HasSubstr("checkpoints fail: no space left on device"));
}

TEST(Problems, ARecoveryShowsItsDuration) {
  Watched cluster;
  cluster.Exited(cluster.id, 1, {.signal = 9});
  cluster.QuiesceAll(cluster.id);
  Now later = cluster.now();
  later.unix_ms += 75'000;
  const auto problems = FindProblems(cluster.controller().Jobs(), {}, cluster.histories, later);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].text, StartsWith("job tiny is recovering for 1 min 15 s: "));
}

TEST(Problems, ALossThatIsNoNumberIsWorseThanSilence) {
  Watched cluster;
  cluster.StepTo(cluster.id, 13, std::numeric_limits<double>::quiet_NaN());
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kNotFinite);
  EXPECT_THAT(problems[0].text, HasSubstr("at step 13"));
}

TEST(Problems, ARankThatHasReportedNothingLendsItsNameToNoOther) {
  std::string three = TrainYaml();
  three.replace(three.find("nodes: 2"), 8, "nodes: 3");
  Watched cluster(three, {"n1", "n2", "n3"});
  const Generation generation = cluster.Attempt(cluster.id).generation;
  cluster.Deliver("n3",
                  Progress{.job = cluster.id,
                           .generation = generation,
                           .ranks = {{.rank = 2, .step = 11, .phase = TrainPhase::kBackward}}});
  EXPECT_TRUE(cluster.Find().empty());
  Now later = cluster.now();
  later.mono += 40s;
  const auto problems = FindProblems(cluster.controller().Jobs(), {}, cluster.histories, later);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text,
            "job tiny has not finished a step for 40 s; rank 2 on n3 is at step 11, in backward");
}

// Ten steps at a time; rank 1 needs `slow` times what rank 0 needs.
void TrainOn(Watched* cluster, Step* step, int times, double slow) {
  const Generation generation = cluster->Attempt(cluster->id).generation;
  for (int i = 0; i < times; ++i) {
    *step += 10;
    cluster->busy[0] += 10;
    cluster->busy[1] += 10 * slow;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const RankProgress progress{.rank = static_cast<int>(rank),
                                  .step = *step,
                                  .phase = TrainPhase::kForward,
                                  .step_seconds = 1,
                                  .busy_seconds = cluster->busy[rank],
                                  .steps_done = *step};
      cluster->Deliver(rank == 0 ? "n1" : "n2",
                       Progress{.job = cluster->id, .generation = generation, .ranks = {progress}});
    }
  }
}

TEST(Problems, AJobWaitsForARankFromTheVerdictThatNamesItToTheOneThatClearsIt) {
  Watched cluster;
  Step step = 10;
  TrainOn(&cluster, &step, 2, 1.5);
  EXPECT_TRUE(cluster.Find().empty());
  TrainOn(&cluster, &step, 8, 1.5);
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kStraggler);
  EXPECT_EQ(problems[0].text,
            "job tiny waits for rank 1 on n2, whose work takes 1.50 times that of the others");
  EXPECT_EQ(cluster.CountEvents(cluster.id, "straggler"), 1);
  TrainOn(&cluster, &step, 5, 1);
  EXPECT_EQ(cluster.Find().size(), 1u);
  EXPECT_EQ(cluster.CountEvents(cluster.id, "straggler_cleared"), 0);
  TrainOn(&cluster, &step, 15, 1);
  EXPECT_TRUE(cluster.Find().empty());
  EXPECT_EQ(cluster.CountEvents(cluster.id, "straggler"), 1);
  EXPECT_TRUE(cluster.HasEvent(cluster.id, "straggler_cleared", "rank 1 on n2"));
}

TEST(Problems, AJobThatRecoversWaitsForNoSlowRank) {
  Watched cluster;
  Step step = 10;
  TrainOn(&cluster, &step, 10, 1.5);
  ASSERT_NE(cluster.Job(cluster.id).straggler, nullptr);
  cluster.Exited(cluster.id, 1, {.signal = 9});
  EXPECT_EQ(cluster.Job(cluster.id).straggler, nullptr);
}

TEST(Problems, TheWorstComesFirst) {
  Watched cluster;
  for (const char* name : {"waiting", "behind-it", "and-another"}) cluster.Submit(TrainYaml(name));
  cluster.Exited(cluster.id, 1, {.signal = 9});
  cluster.Leave("n1");
  cluster.Advance(2s);
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kRecovering);
  EXPECT_THAT(problems[0].text, StartsWith("job tiny is recovering"));
  EXPECT_EQ(problems[1].kind, ProblemKind::kNodeLost);
  EXPECT_THAT(problems[1].text, StartsWith("node n1 is "));
  EXPECT_EQ(problems[2].kind, ProblemKind::kWaiting);
  EXPECT_THAT(problems[2].text, StartsWith("job waiting waits: "));
  EXPECT_THAT(problems[2].text, EndsWith("; 2 more wait")) << "the queue is told once";
  const auto part = nlohmann::json::parse(ProblemsPart(problems));
  EXPECT_EQ(part["count"], problems.size());
  EXPECT_THAT(std::string(part["first"][0]["text"]), StartsWith("Job tiny is recovering"));
  EXPECT_EQ(part["first"][0]["severity"], "warning");
  EXPECT_EQ(part["first"][0]["job"], cluster.id.value);
}

}  // namespace
}  // namespace muster
