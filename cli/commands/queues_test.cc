// muster queues, against a coordinator that answers from a script.

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

constexpr char kFile[] = "queues:\n  vision: {}  # a comment\n  default: {}\n";

class QueuesVerbsTest : public CommandsTest {
 protected:
  QueuesVerbsTest() {
    v1::ShowQueuesResponse& queues = coordinator_.queues;
    queues.set_version(3);
    queues.set_yaml(kFile);
    queues.set_half_life_seconds(7 * 86400);
    v1::PriorityClass& normal = *queues.add_classes();
    normal.set_name("normal");
    v1::Queue& research = *queues.add_queues();
    research.set_name("research");
    research.mutable_guarantee()->set_gpus(64);
    research.mutable_ceiling()->set_gpus(128);
    research.mutable_ceiling()->set_slots(512);
    research.set_weight(2.5);
    research.set_share(0.714);
    research.set_priority(60);
    research.set_time_limit_seconds(2 * 86400);
    v1::Queue& vision = *queues.add_queues();
    vision.set_name("vision");
    vision.set_parent("research");
    vision.set_leaf(true);
    vision.set_weight(1);
    vision.set_running(2);
    vision.set_waiting(1);
    vision.mutable_per_user()->set_gpus(8);
    vision.mutable_per_user()->set_jobs(2);
    vision.set_per_user_queued(100);
    vision.mutable_used()->set_gpus(1);
    vision.mutable_used()->set_slots(1);
  }
};

TEST_F(QueuesVerbsTest, ApplySendsTheFileForTheVersionInForceAndPrintsTheChanges) {
  Serve();
  const std::string file = WriteJob(kFile);
  ASSERT_TRUE(Run({"queues", "apply", file}).ok());
  EXPECT_EQ(coordinator_.applied.yaml(), kFile);
  EXPECT_EQ(coordinator_.applied.file(), file);
  EXPECT_EQ(coordinator_.applied.expected_version(), 3u);
  EXPECT_FALSE(coordinator_.applied.check_only());
  EXPECT_EQ(out_.str(), "version 4 is in force:\n  vision: guarantee 32 -> 48 GPUs\n");
  EXPECT_EQ(err_.str(), "muster: warning: the guarantees come to 80 GPUs\n");
}

TEST_F(QueuesVerbsTest, ApplyMayNameTheVersionThatItReplaces) {
  Serve();
  const std::string file = WriteJob(kFile);
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"queues", "apply", file, "--version", "1"}).ok());
  EXPECT_EQ(coordinator_.applied.expected_version(), 1u);
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["version"], 4);
  EXPECT_EQ(json["changes"], (Json{"vision: guarantee 32 -> 48 GPUs"}));
  EXPECT_FALSE(Run({"queues", "apply", file, "--version", "-1"}).ok());
}

TEST_F(QueuesVerbsTest, ARefusedFileIsAConflictAndABadOneBadUsage) {
  Serve();
  const std::string file = WriteJob(kFile);
  coordinator_.apply_status = {grpc::StatusCode::ABORTED, "another file was applied in between"};
  EXPECT_EQ(ExitCodeOf(Run({"queues", "apply", file}).status()), kExitConflict);
  coordinator_.apply_status = {grpc::StatusCode::FAILED_PRECONDITION, "5 jobs are in it"};
  EXPECT_EQ(ExitCodeOf(Run({"queues", "apply", file}).status()), kExitConflict);
  coordinator_.apply_status = {grpc::StatusCode::INVALID_ARGUMENT, "queues: is missing"};
  EXPECT_EQ(ExitCodeOf(Run({"queues", "check", file}).status()), kExitBadUsage);
  EXPECT_EQ(ExitCodeOf(Run({"queues", "check", WriteJob("queues: {\xff: {}}\n")}).status()),
            kExitBadUsage);
  const CommandResult none = Run({"queues", "apply", dir_ + "/none.yaml"});
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_NE(none.status().message().find("cannot read the queue file"), std::string::npos);
}

TEST_F(QueuesVerbsTest, CheckChangesNothing) {
  Serve();
  ASSERT_TRUE(Run({"queues", "check", WriteJob(kFile)}).ok());
  EXPECT_TRUE(coordinator_.applied.check_only());
  EXPECT_EQ(out_.str(), "valid; would change in version 3:\n  vision: guarantee 32 -> 48 GPUs\n");
}

TEST_F(QueuesVerbsTest, ShowPrintsTheTreeAsATable) {
  Serve();
  ASSERT_TRUE(Run({"queues", "show"}).ok());
  EXPECT_EQ(
      out_.str(),
      "QUEUE     GUARANTEE  CEILING              WEIGHT  SHARE  HAD  USED           RUNNING  "
      "WAITING\n"
      "research  64 GPUs    128 GPUs, 512 slots  2.5     71%    0%   -              0        0\n"
      "  vision  -          -                    1       0%     0%   1 GPU, 1 slot  2        1\n");
  out_.str("");
  context_->output = OutputFormat::kWide;
  ASSERT_TRUE(Run({"queues", "show"}).ok());
  EXPECT_NE(out_.str().find("PRIORITY  TIME LIMIT"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("  8 GPUs, 2 running, 100 queued\n"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("60        2d 00h"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("\nversion 3; classes: normal 0; half-life of usage: 7d 00h\n"),
            std::string::npos)
      << out_.str();
}

TEST_F(QueuesVerbsTest, ShowAsYamlIsTheFileAsItWasApplied) {
  Serve();
  context_->output = OutputFormat::kYaml;
  ASSERT_TRUE(Run({"queues", "show"}).ok());
  EXPECT_EQ(out_.str(), kFile);
  context_->output = OutputFormat::kTable;
  ASSERT_TRUE(Run({"queues", "apply", WriteJob(out_.str())}).ok());
  EXPECT_EQ(coordinator_.applied.yaml(), kFile);
}

TEST_F(QueuesVerbsTest, ShowForPrograms) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"queues", "show"}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["classes"]["normal"], 0);
  EXPECT_EQ(json["queues"][0]["ceiling"]["gpus"], 128);
  EXPECT_EQ(json["queues"][1]["ceiling"]["gpus"], nullptr);
  EXPECT_EQ(json["queues"][1]["parent"], "research");
  EXPECT_EQ(json["queues"][1]["per_user"],
            (Json{{"gpus", 8}, {"slots", nullptr}, {"running", 2}, {"queued", 100}}));
  EXPECT_EQ(json["queues"][1]["used"]["gpus"], 1);
  out_.str("");
  context_->output = OutputFormat::kName;
  ASSERT_TRUE(Run({"queues", "show"}).ok());
  EXPECT_EQ(out_.str(), "research\nvision\n");
}

}  // namespace
}  // namespace muster
