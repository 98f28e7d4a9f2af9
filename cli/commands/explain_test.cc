// muster explain, plan and submit --check-index, against a coordinator that answers from a script.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "cli/base/exit_code.h"
#include "cli/commands/memory_plan.h"
#include "cli/commands/testing/commands_testing.h"
#include "common/process/run_child.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = "name: two\nresources: {nodes: 2}\ncommand: [x]\n";
constexpr char kTrainJob[] =
    "name: t\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl}\n"
    "  schedule: {max_steps: 1}\n";

// As a shell reads them.
std::vector<std::string> WordsOf(const std::string& line) {
  RunChildOptions shell;
  shell.spawn.argv = {"/bin/sh", "-c", "printf '%s\\0' " + line};
  const auto outcome = RunChild(shell);
  EXPECT_TRUE(outcome.ok() && outcome->ok());
  std::vector<std::string> words;
  for (std::size_t at = 0; at < outcome->output.size(); at += words.back().size() + 1)
    words.emplace_back(outcome->output.c_str() + at);
  return words;
}

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

TEST_F(CommandsTest, TheLineBelowAPlanSubmitsTheJobThatWasPlanned) {
  Serve();
  coordinator_.explanation.set_index(1234);
  const std::string file = WriteJob(kJob);
  ASSERT_TRUE(Run({"plan", file, "--set", "command=[echo, \"it's $HOME\"]", "--set",
                   "resources.nodes=3", "--name", "other", "--queue", "vision", "--class", "urgent",
                   "--priority", "70", "--begin", "2030-01-01", "--hold"})
                  .ok());
  const std::string line = err_.str();
  constexpr std::string_view kNext = "next: muster ";
  ASSERT_NE(line.find(kNext), std::string::npos);
  std::vector<std::string> words = WordsOf(line.substr(line.find(kNext) + kNext.size()));
  ASSERT_EQ(words[0], "submit");
  ASSERT_TRUE(Run(words).ok());
  EXPECT_EQ(coordinator_.submitted.spec_yaml(), coordinator_.explained.spec_yaml());
  EXPECT_EQ(coordinator_.submitted.check_index(), 1234u);
  EXPECT_THAT(coordinator_.submitted.spec_yaml(), HasSubstr("it's $HOME"));
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
  ASSERT_TRUE(Run({"plan", WriteJob(kTrainJob)}).ok());
  EXPECT_THAT(err_.str(), HasSubstr("no plan of its memory: "));
}

TEST_F(CommandsTest, PlanOfATrainJobOnAGpuAsksForTheDevice) {
  Serve();
  const std::string file = WriteJob(kTrainJob);
  ASSERT_TRUE(Run({"plan", file, "--set", "resources.device=cuda"}).ok());
  EXPECT_THAT(err_.str(), HasSubstr("  next: muster plan " + file +
                                    " --set resources.device=cuda --device NAME"));
}

TEST_F(CommandsTest, PlanOfACommandTakesNoDevice) {
  Serve();
  const CommandResult result = Run({"plan", WriteJob(kJob), "--device", "cpu"});
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator_.explained.spec_yaml(), "") << "no question was asked";
}

struct MemoryPlanTest : testing::Test {
  Result<std::string> Plan(const std::string& script, bool json) const {
    const std::string trainer = dir_ / "muster-trainer";
    EXPECT_TRUE(WriteFileAtomically(trainer, "#!/bin/sh\n" + script).ok());
    EXPECT_EQ(::chmod(trainer.c_str(), 0755), 0);
    return verbs::MemoryPlan(trainer, {.file = "job.yaml"}, "", json);
  }
  const TempDirForTest dir_;
};

TEST_F(MemoryPlanTest, IsWhatTheTrainerPrintsAndNotItsWarnings) {
  EXPECT_EQ(*Plan("echo key taken >&2; echo '{\"fits\": true}'", true), "{\"fits\": true}\n");
  EXPECT_EQ(*Plan("echo plan; echo warning >&2; exit 1", false), "plan\n") << "it does not fit";
}

TEST_F(MemoryPlanTest, IsAnErrorWhereTheTrainerPrintsNone) {
  const auto failed = Plan("echo no such library >&2; exit 1", false);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "exit code 1: no such library");
  EXPECT_FALSE(Plan("echo plan", true).ok()) << "it is no JSON";
}

TEST_F(CommandsTest, SubmitPassesTheIndexOnAndAChangeIsAConflict) {
  Serve();
  const std::string file = WriteJob(kJob);
  ASSERT_TRUE(Run({"submit", file}).ok());
  EXPECT_FALSE(coordinator_.submitted.has_check_index());
  ASSERT_TRUE(Run({"submit", file, "--check-index", "562949953421311"}).ok());  // 2^49 - 1
  EXPECT_EQ(coordinator_.submitted.check_index(), 562949953421311u);
  ASSERT_TRUE(Run({"submit", file, "--check-index", "1234"}).ok());
  EXPECT_EQ(coordinator_.submitted.check_index(), 1234u);
  coordinator_.submit_status = {grpc::StatusCode::FAILED_PRECONDITION, "nodes have changed"};
  EXPECT_EQ(ExitCodeOf(Run({"submit", file, "--check-index", "1234"}).status()), kExitConflict);
  for (const char* wrong : {"0", "-1"})
    EXPECT_EQ(ExitCodeOf(Run({"submit", file, "--check-index", wrong}).status()), kExitBadUsage);
}

}  // namespace
}  // namespace muster
