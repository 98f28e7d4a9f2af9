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
  std::vector<Problem> Find() {
    histories.Observe(Job(id), now().mono);
    return FindProblems(controller().Jobs(), controller().Nodes(), histories, now());
  }
  Histories histories;
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
  const auto problems = FindProblems(cluster.controller().Jobs(), {}, cluster.histories, later);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, Problem::Kind::kNoProgress);
  EXPECT_EQ(problems[0].text, "Job tiny has not finished a step for 40 s");
  EXPECT_EQ(problems[0].command, "muster describe " + cluster.id.value);
}

TEST(Problems, ALossThatIsNoNumberIsWorseThanSilence) {
  Watched cluster;
  cluster.StepTo(cluster.id, 13, std::numeric_limits<double>::quiet_NaN());
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, Problem::Kind::kNotFinite);
  EXPECT_THAT(problems[0].text, HasSubstr("at step 13"));
}

TEST(Problems, TheWorstComesFirst) {
  Watched cluster;
  for (const char* name : {"waiting", "behind-it", "and-another"}) cluster.Submit(TrainYaml(name));
  cluster.Exited(cluster.id, 1, {.signal = 9});
  cluster.Leave("n1");
  cluster.Advance(2s);
  const auto problems = cluster.Find();
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].kind, Problem::Kind::kRecovering);
  EXPECT_THAT(problems[0].text, StartsWith("Job tiny is recovering: "));
  EXPECT_EQ(problems[1].kind, Problem::Kind::kNodeLost);
  EXPECT_THAT(problems[1].text, StartsWith("Node n1 is "));
  EXPECT_EQ(problems[2].kind, Problem::Kind::kWaiting);
  EXPECT_THAT(problems[2].text, StartsWith("Job waiting waits: "));
  EXPECT_THAT(problems[2].text, EndsWith("; 2 more wait")) << "the queue is told once";
  const auto part = nlohmann::json::parse(ProblemsPart(problems));
  EXPECT_EQ(part["count"], problems.size());
  EXPECT_EQ(part["first"][0]["text"], problems[0].text);
  EXPECT_EQ(part["first"][0]["job"], cluster.id.value);
}

}  // namespace
}  // namespace muster
