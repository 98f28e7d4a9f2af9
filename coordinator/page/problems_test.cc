#include "coordinator/page/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "coordinator/control/control_harness.h"

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
    return problems.Find(controller().Jobs(), controller().Nodes(), histories, now());
  }
  Histories histories;
  Problems problems;
};

TEST(Problems, NothingIsWrongWithAJobThatTrains) {
  Watched cluster;
  EXPECT_TRUE(cluster.Find().empty());
}

TEST(Problems, AStepThatDoesNotComeIsTold) {
  Watched cluster;
  cluster.StepTo(cluster.id, 13);
  EXPECT_TRUE(cluster.Find().empty());
  // The controller's own verdict on a hang is not waited for here: no heartbeat is missing.
  Now later = cluster.now();
  later.mono += 40s;
  const auto problems =
      cluster.problems.Find(cluster.controller().Jobs(), {}, cluster.histories, later);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kNoProgress);
  EXPECT_EQ(problems[0].text, "job tiny has not finished a step for 40 s");
  EXPECT_EQ(problems[0].command, "muster describe " + cluster.id.value);
}

TEST(Problems, ARunThatCannotSaveIsTold) {
  Watched cluster;
  cluster.Report(cluster.id, 1, CheckpointFailed{10, "no space left on device"});
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::kUnsaved);
  EXPECT_THAT(problems[0].text, HasSubstr("checkpoints fail: no space left on device"));
}

TEST(Problems, ARecoverySaysHowLongItLasts) {
  Watched cluster;
  cluster.Exited(cluster.id, 1, {.signal = 9});
  cluster.QuiesceAll(cluster.id);
  Now later = cluster.now();
  later.unix_ms += 75'000;
  const auto problems =
      cluster.problems.Find(cluster.controller().Jobs(), {}, cluster.histories, later);
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
  cluster.Say("n3",
              Progress{cluster.id, generation, {{.rank = 2, .step = 11, .phase = "backward"}}});
  Now later = cluster.now();
  later.mono += 40s;
  const auto problems =
      cluster.problems.Find(cluster.controller().Jobs(), {}, cluster.histories, later);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text,
            "job tiny has not finished a step for 40 s; rank 2 on n3 is at step 11, in backward");
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
