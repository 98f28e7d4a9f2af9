// muster explain, plan and submit --check-index, against a coordinator that answers from a script.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = "name: two\nresources: {nodes: 2}\ncommand: [x]\n";

TEST_F(CommandsTest, ExplainPrintsTheAnswer) {
  Serve();
  v1::ExplainJobResponse& answer = coordinator_.explanation;
  answer.mutable_job()->set_id("7f3a9c1e2b");
  answer.mutable_job()->set_state(v1::JOB_STATE_QUEUED);
  answer.set_waits(true);
  answer.add_causes()->set_code("no_nodes");
  ASSERT_TRUE(Run({"explain", "two"}).ok());
  EXPECT_EQ(coordinator_.explained.job(), "two");
  EXPECT_THAT(out_.str(), HasSubstr("  no node is ready\n"));
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"explain", "two"}).ok());
  EXPECT_EQ(Json::parse(out_.str())["causes"][0]["code"], "no_nodes");
  coordinator_.explain_status = {grpc::StatusCode::NOT_FOUND, "no job 'none'"};
  EXPECT_EQ(ExitCodeOf(Run({"explain", "none"}).status()), kExitNotFound);
}

TEST_F(CommandsTest, PlanSendsTheJobFileWithItsOverridesAndNamesTheIndex) {
  Serve();
  v1::ExplainJobResponse& answer = coordinator_.explanation;
  answer.set_index(1234);
  answer.set_waits(true);
  answer.set_starts_now(true);
  answer.add_nodes("n1");
  const std::string file = WriteJob(kJob);
  ASSERT_TRUE(Run({"plan", file, "--set", "resources.nodes=3"}).ok());
  EXPECT_THAT(coordinator_.explained.spec_yaml(), HasSubstr("nodes: 3"));
  EXPECT_EQ(coordinator_.submitted.spec_yaml(), "") << "nothing is submitted";
  EXPECT_EQ(out_.str(), "would start now on n1\n");
  EXPECT_THAT(err_.str(), HasSubstr("--check-index 1234"));
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"plan", file}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["start"], "now");
  EXPECT_EQ(json["name"], "two");
  EXPECT_TRUE(json["memory"].is_null());
}

TEST_F(CommandsTest, PlanOfAJobThatSubmitRefusesFailsAsSubmitDoes) {
  Serve();
  coordinator_.explain_status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "no node can hold it"};
  const CommandResult result = Run({"plan", WriteJob(kJob)});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitCannotBePlaced);
  EXPECT_THAT(result.status().message(), HasSubstr("no node can hold it"));
}

// The trainer is not beside the program of this test.
TEST_F(CommandsTest, PlanOfATrainJobGoesOnWithoutATrainer) {
  Serve();
  const std::string file = WriteJob(
      "name: t\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl}\n"
      "  schedule: {max_steps: 1}\n");
  ASSERT_TRUE(Run({"plan", file}).ok());
  EXPECT_THAT(err_.str(), HasSubstr("no plan of its memory: "));
}

TEST_F(CommandsTest, SubmitPassesTheIndexOnAndAChangeIsAConflict) {
  Serve();
  const std::string file = WriteJob(kJob);
  ASSERT_TRUE(Run({"submit", file}).ok());
  EXPECT_FALSE(coordinator_.submitted.has_check_index());
  ASSERT_TRUE(Run({"submit", file, "--check-index", "1234"}).ok());
  EXPECT_EQ(coordinator_.submitted.check_index(), 1234u);
  coordinator_.submit_status = {grpc::StatusCode::FAILED_PRECONDITION, "nodes have changed"};
  EXPECT_EQ(ExitCodeOf(Run({"submit", file, "--check-index", "1234"}).status()), kExitConflict);
}

}  // namespace
}  // namespace muster
