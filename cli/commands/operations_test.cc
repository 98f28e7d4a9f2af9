// Verbs of operators for nodes and jobs, against a coordinator that answers from a script.

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

TEST_F(CommandsTest, NodesShowWhyTheyDrainAndWhatTheyReport) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node.set_state(v1::NODE_STATE_DRAINING);
  coordinator_.node.set_reason("new kernel");
  coordinator_.node.set_drain_by_unix_ms(1'700'000'000'000);
  coordinator_.node.add_notices("memory pressure");
  coordinator_.node.set_failure_domain("rack-7");
  coordinator_.node.set_pilot("p-1");
  coordinator_.node.add_report("between nodes: sockets");
  ASSERT_TRUE(Run({"nodes"}).ok());
  EXPECT_NE(out_.str().find("node-2  draining"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("new kernel, by "), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("; memory pressure"), std::string::npos) << out_.str();
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"nodes"}).ok());
  const Json node = Json::parse(out_.str()).at(0);
  EXPECT_EQ(node.at("failure_domain"), "rack-7");
  EXPECT_EQ(node.at("pilot"), "p-1");
  EXPECT_EQ(node.at("notices"), (Json{"memory pressure"}));
  EXPECT_EQ(node.at("report"), (Json{"between nodes: sockets"}));
  EXPECT_EQ(node.at("drain_by"), "2023-11-14T22:13:20.000Z");
  out_.str("");
  context_->output = OutputFormat::kTable;
  ASSERT_TRUE(Run({"nodes", "node-2", "--report"}).ok());
  EXPECT_EQ(out_.str(), "between nodes: sockets\n  node-2\n");
  EXPECT_EQ(Run({"nodes", "node-9"}).status().code(), StatusCode::kNotFound);
}

TEST_F(CommandsTest, PagePrintsItsAddress) {
  const std::string file = dir_ + "/coordinator/endpoint.json";
  Endpoint endpoint{.grpc = "127.0.0.1:1", .http = "127.0.0.1:4711", .pid = 1};
  ASSERT_TRUE(WriteEndpoint(file, endpoint).ok());
  const CommandResult without = Run({"page"});
  EXPECT_EQ(without.status().code(), StatusCode::kNotFound) << "of a coordinator without a page";
  endpoint.page_key = "5ec";
  ASSERT_TRUE(WriteEndpoint(file, endpoint).ok());
  ASSERT_TRUE(Run({"page"}).ok());
  EXPECT_NE(out_.str().find("  http://127.0.0.1:4711/#key=5ec\n"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find(":127.0.0.1:4711 "), std::string::npos) << out_.str();
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"page"}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["url"], "http://127.0.0.1:4711/#key=5ec");
  EXPECT_EQ(json["tunnel"].get<std::string>().rfind("ssh -N -L ", 0), 0u);
}

TEST_F(CommandsTest, DrainPrintsTheJobsThatMove) {
  Serve();
  const CommandResult result = Run({"drain", "node-2", "--by", "10m", "--reason", "new kernel"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(coordinator_.drained.node(), "node-2");
  EXPECT_EQ(coordinator_.drained.by_seconds(), 600);
  EXPECT_EQ(coordinator_.drained.reason(), "new kernel");
  EXPECT_EQ(out_.str(), "node node-2 is draining; moving jobs: 7f3a9c1e2b\n");
}

TEST_F(CommandsTest, DrainWaitsUntilTheNodeIsEmpty) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node_states = {v1::NODE_STATE_DRAINING, v1::NODE_STATE_DRAINED};
  const CommandResult result = Run({"drain", "node-2", "--wait"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(coordinator_.drained.by_seconds(), 0) << "no limit";
  EXPECT_EQ(out_.str(), "node node-2 is drained; moved jobs: 7f3a9c1e2b\n");
}

TEST_F(CommandsTest, AWaitForADrainOrASuspensionOutlastsARestart) {
  Serve();
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "connection refused");
  coordinator_.node.set_name("node-2");
  coordinator_.node_states = {v1::NODE_STATE_DRAINED};
  coordinator_.failures = {away};
  EXPECT_EQ(Run({"drain", "node-2", "--wait"}).value(), kExitSuccess);
  coordinator_.job.set_state(v1::JOB_STATE_SUSPENDED);
  coordinator_.failures = {away};
  EXPECT_EQ(Run({"suspend", "llama-chat", "--wait"}).value(), kExitSuccess);
  EXPECT_TRUE(coordinator_.failures.empty());
}

TEST_F(CommandsTest, ADrainThatWasTakenBackIsNotWaitedFor) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node_states = {v1::NODE_STATE_DRAINING, v1::NODE_STATE_READY};
  const CommandResult result = Run({"drain", "node-2", "--wait"});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "node node-2 is ready and no longer draining");
}

TEST_F(CommandsTest, ANodeThatIsLostIsNotWaitedForAndStaysDrained) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node_states = {v1::NODE_STATE_DRAINING, v1::NODE_STATE_LOST};
  const CommandResult result = Run({"drain", "node-2", "--wait"});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("node node-2 is lost"), std::string::npos)
      << result.status().message();
  EXPECT_NE(result.status().message().find("drained when it comes back"), std::string::npos);
}

TEST_F(CommandsTest, UndrainMakesANodeReady) {
  Serve();
  ASSERT_TRUE(Run({"undrain", "node-2"}).ok());
  EXPECT_EQ(coordinator_.undrained, "node-2");
  EXPECT_EQ(out_.str(), "node node-2 is ready\n");
}

TEST_F(CommandsTest, SuspendPrintsThatTheStateIsSavedFirst) {
  Serve();
  const CommandResult result =
      Run({"suspend", "llama-chat", "--by", "2m", "--reason", "new kernel"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitSuccess);
  EXPECT_EQ(coordinator_.suspended.job(), "llama-chat");
  EXPECT_EQ(coordinator_.suspended.by_seconds(), 120);
  EXPECT_EQ(coordinator_.suspended.reason(), "new kernel");
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is stopping; it saves its state first\n");
}

TEST_F(CommandsTest, SuspendWaitsForTheEndAndPrintsWhichItWas) {
  Serve();
  coordinator_.job.set_state(v1::JOB_STATE_SUSPENDED);
  coordinator_.job.set_reason("it will go on at step 13");
  const std::vector<std::string> suspend = {"suspend", "llama-chat", "--wait"};
  EXPECT_EQ(Run(suspend).value(), kExitSuccess);
  EXPECT_EQ(coordinator_.suspended.by_seconds(), 0) << "no limit";
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is suspended (it will go on at step 13)\n");
  coordinator_.job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run(suspend).value(), kExitSuccess) << "its last step was done";
  coordinator_.job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Run(suspend).value(), kExitError);
}

TEST_F(CommandsTest, ResumePrintsTheState) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"resume", "llama-chat"}).ok());
  EXPECT_EQ(Json::parse(out_.str()), (Json{{"id", "7f3a9c1e2b"}, {"state", "queued"}}));
  EXPECT_EQ(Run({"resume", "unknown"}).status().code(), StatusCode::kNotFound);
}

TEST_F(CommandsTest, UpdateSendsWhatIsGivenAndPrintsWhatChanged) {
  Serve();
  ASSERT_TRUE(Run({"update", "llama-chat", "--priority", "80"}).ok());
  ASSERT_TRUE(coordinator_.updated);
  EXPECT_EQ(coordinator_.updated->job(), "llama-chat");
  EXPECT_EQ(coordinator_.updated->priority(), 80);
  EXPECT_FALSE(coordinator_.updated->has_queue());
  EXPECT_FALSE(coordinator_.updated->has_priority_class());
  EXPECT_FALSE(coordinator_.updated->has_time_limit_seconds());
  EXPECT_FALSE(coordinator_.updated->has_begin_unix_ms());
  EXPECT_FALSE(coordinator_.updated->force());
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is running; priority 50 -> 80\n");
  out_.str("");
  ASSERT_TRUE(Run({"update", "j", "--queue", "a", "--class", "high", "--time-limit", "1h30m",
                   "--begin", "2027-01-15T08:00:00Z", "--force"})
                  .ok());
  EXPECT_TRUE(coordinator_.updated->force());
  EXPECT_EQ(coordinator_.updated->queue(), "a");
  EXPECT_EQ(coordinator_.updated->priority_class(), "high");
  EXPECT_EQ(coordinator_.updated->time_limit_seconds(), 5400);
  EXPECT_EQ(coordinator_.updated->begin_unix_ms(), 1'800'000'000'000);
  EXPECT_FALSE(coordinator_.updated->has_priority());
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is running; nothing changed\n");
}

TEST_F(CommandsTest, UpdateRemovesALimitAndABegin) {
  Serve();
  for (const char* begin : {"none", "now"}) {
    coordinator_.updated.reset();
    ASSERT_TRUE(Run({"update", "j", "--time-limit", "none", "--begin", begin}).ok());
    ASSERT_TRUE(coordinator_.updated && coordinator_.updated->has_begin_unix_ms());
    EXPECT_EQ(coordinator_.updated->begin_unix_ms(), 0);
    EXPECT_TRUE(coordinator_.updated->has_time_limit_seconds());
    EXPECT_EQ(coordinator_.updated->time_limit_seconds(), 0);
  }
}

TEST_F(CommandsTest, UpdateIsJsonForPrograms) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"update", "j", "--priority", "80"}).ok());
  EXPECT_EQ(Json::parse(out_.str()),
            (Json{{"id", "7f3a9c1e2b"}, {"state", "running"}, {"changed", "priority 50 -> 80"}}));
}

TEST_F(CommandsTest, AnUpdateThatIsNoneIsBadUsageAndNotSent) {
  Serve();
  const std::vector<std::string> cases[] = {{"j"},
                                            {"--priority", "1"},
                                            {"j", "--priority", "101"},
                                            {"j", "--priority", "high"},
                                            {"j", "--force"},
                                            {"j", "--time-limit", "soon"},
                                            {"j", "--time-limit", "0s"},
                                            {"j", "--time-limit", "-1h"},
                                            {"j", "--begin", "tomorrow"},
                                            {"j", "k", "--priority", "1"}};
  for (std::vector<std::string> words : cases) {
    const std::string shown = ::testing::PrintToString(words);
    words.insert(words.begin(), "update");
    EXPECT_EQ(ExitCodeOf(Run(std::move(words)).status()), kExitBadUsage) << shown;
  }
  EXPECT_FALSE(coordinator_.updated);
}

TEST_F(CommandsTest, HoldAndReleaseTakeSeveralJobs) {
  Serve();
  ASSERT_EQ(Run({"hold", "a", "b", "--reason", "no data yet"}).value(), kExitSuccess);
  ASSERT_EQ(coordinator_.held.size(), 2u);
  EXPECT_EQ(coordinator_.held[1].job(), "b");
  EXPECT_EQ(coordinator_.held[1].reason(), "no data yet");
  EXPECT_EQ(out_.str(), "job a is queued and held\njob b is queued and held\n");
  out_.str("");
  ASSERT_EQ(Run({"release", "a", "b"}).value(), kExitSuccess);
  EXPECT_EQ(coordinator_.released, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(out_.str(), "job a is starting\njob b is starting\n");
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_EQ(Run({"release", "a"}).value(), kExitSuccess);
  EXPECT_EQ(Json::parse(out_.str()), (Json::array({{{"id", "a"}, {"state", "starting"}}})));
  out_.str("");
  ASSERT_EQ(Run({"release", "a", "b"}).value(), kExitSuccess);
  EXPECT_EQ(
      Json::parse(out_.str()),
      (Json::array({{{"id", "a"}, {"state", "starting"}}, {{"id", "b"}, {"state", "starting"}}})));
}

TEST_F(CommandsTest, SeveralJobsAreCancelledAndTheFirstFailureDecidesTheExitCode) {
  Serve();
  EXPECT_EQ(Run({"cancel", "a", "unknown", "over", "b", "--reason", "old"}).value(), kExitNotFound);
  ASSERT_EQ(coordinator_.cancelled.size(), 2u);
  EXPECT_EQ(coordinator_.cancelled[1].job(), "b");
  EXPECT_EQ(coordinator_.cancelled[1].reason(), "old");
  EXPECT_EQ(out_.str(), "job a is cancelled\njob b is cancelled\n");
  EXPECT_EQ(err_.str(), "muster: no such job\nmuster: job is over\n");
  out_.str("");
  ASSERT_EQ(Run({"cancel", "a"}).value(), kExitSuccess);
  EXPECT_EQ(out_.str(), "job a is cancelled\n");
}

TEST_F(CommandsTest, SeveralJobsAreSuspendedAndResumed) {
  Serve();
  coordinator_.job.set_state(v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Run({"suspend", "unknown", "llama-chat", "--wait"}).value(), kExitNotFound);
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is suspended\n");
  EXPECT_EQ(err_.str(), "muster: no such job\n");
  out_.str("");
  coordinator_.job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Run({"suspend", "llama-chat", "7f3a9c1e2b", "--wait"}).value(), kExitError);
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is cancelled\njob 7f3a9c1e2b is cancelled\n");
  out_.str("");
  EXPECT_EQ(Run({"resume", "unknown", "llama-chat"}).value(), kExitNotFound);
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b is queued\n");
}

TEST_F(CommandsTest, AJobThatCannotBeHeldKeepsNoOtherFromItsTurn) {
  Serve();
  EXPECT_EQ(Run({"hold", "running", "b"}).value(), kExitConflict);
  EXPECT_EQ(out_.str(), "job b is queued and held\n");
  EXPECT_EQ(err_.str(), "muster: job running is running\n");
}

TEST_F(CommandsTest, QueueAndClassAreShownWhereTheyAreNotTheDefault) {
  Serve();
  ASSERT_TRUE(Run({"get"}).ok());
  EXPECT_EQ(out_.str().find("QUEUE"), std::string::npos) << out_.str();
  out_.str("");
  coordinator_.job.set_queue("default");
  coordinator_.job.set_priority_class("normal");
  ASSERT_TRUE(Run({"get", "7f3a9c1e2b"}).ok());
  ASSERT_TRUE(Run({"describe", "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str().find("QUEUE"), std::string::npos) << out_.str();
  EXPECT_EQ(out_.str().find("queue default"), std::string::npos) << out_.str();
  out_.str("");
  coordinator_.job.set_queue("team-a");
  coordinator_.job.set_priority_class("high");
  coordinator_.job.set_time_limit_seconds(5400);
  ASSERT_TRUE(Run({"get"}).ok());
  EXPECT_NE(out_.str().find("QUEUE"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("team-a"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("CLASS"), std::string::npos) << out_.str();
  out_.str("");
  ASSERT_TRUE(Run({"describe", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find(", queue team-a, class high, time limit 1h30m\n"), std::string::npos)
      << out_.str();
  out_.str("");
  context_->output = OutputFormat::kJson;
  coordinator_.job.set_held(true);
  coordinator_.job.set_begin_unix_ms(1'800'000'000'000);
  ASSERT_TRUE(Run({"get", "7f3a9c1e2b"}).ok());
  const Json job = Json::parse(out_.str());
  EXPECT_EQ(job.at("queue"), "team-a");
  EXPECT_EQ(job.at("class"), "high");
  EXPECT_EQ(job.at("held"), true);
  EXPECT_EQ(job.at("begin"), "2027-01-15T08:00:00.000Z");
  EXPECT_EQ(job.at("time_limit_seconds"), 5400);
}

TEST_F(CommandsTest, AFaultOfARankIsSentWithItsArgument) {
  Serve();
  const CommandResult result = Run({"fault", "llama-chat", "--rank", "1", "--kind", "slow=30%"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_TRUE(coordinator_.fault);
  EXPECT_EQ(coordinator_.fault->job(), "llama-chat");
  EXPECT_EQ(coordinator_.fault->rank(), 1);
  EXPECT_EQ(coordinator_.fault->kind(), "slow");
  EXPECT_EQ(coordinator_.fault->argument(), "0.3000");
  EXPECT_EQ(out_.str(), "slow=30% on node-2, rank 1 of generation 4\n");
}

TEST_F(CommandsTest, AFaultTakesFractionsAndExitCodes) {
  Serve();
  for (const auto& [kind, argument] :
       {std::pair("slow=0.5", "0.5000"), std::pair("exit=3", "3"), std::pair("kill", "")}) {
    ASSERT_TRUE(Run({"fault", "llama-chat", "--kind", kind}).ok()) << kind;
    EXPECT_EQ(coordinator_.fault->argument(), argument);
    EXPECT_EQ(coordinator_.fault->rank(), 0);
  }
}

TEST_F(CommandsTest, AFaultOfANodeNamesNoRank) {
  Serve();
  ASSERT_TRUE(Run({"fault", "--node", "node-2", "--kind", "kill-node"}).ok());
  EXPECT_EQ(coordinator_.fault->node(), "node-2");
  EXPECT_EQ(out_.str(), "kill-node on node-2\n");
}

TEST_F(CommandsTest, AClusterThatAllowsNoFaultsRefusesThem) {
  Serve();
  coordinator_.fault_status = {grpc::StatusCode::FAILED_PRECONDITION, "no --allow-faults"};
  const CommandResult result = Run({"fault", "j", "--kind", "kill"});
  EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(CommandsTest, AFaultOfTheWrongThingIsBadUsageAndNotSent) {
  Serve();
  const std::vector<std::string> cases[] = {{"j", "--kind", "explode"},
                                            {"j", "--kind", "kill-node"},
                                            {"--node", "n", "--kind", "kill"},
                                            {"j", "--node", "n", "--kind", "kill-node"},
                                            {"--kind", "kill"},
                                            {"--kind", "link-down"},
                                            {"j", "--kind", "slow"},
                                            {"j", "--kind", "slow="},
                                            {"j", "--kind", "slow=fast"},
                                            {"j", "--kind", "slow=0"},
                                            {"j", "--kind", "slow=-1"},
                                            {"j", "--kind", "exit"},
                                            {"j", "--kind", "exit=256"},
                                            {"j", "--kind", "exit=-1"},
                                            {"j", "--kind", "exit=1.5"},
                                            {"j", "--kind", "exit=3x"},
                                            {"j", "--kind", "kill="},
                                            {"j", "--kind", "kill=3"},
                                            {"j", "--rank", "-1", "--kind", "kill"}};
  for (std::vector<std::string> words : cases) {
    const std::string shown = ::testing::PrintToString(words);
    words.insert(words.begin(), "fault");
    EXPECT_EQ(ExitCodeOf(Run(std::move(words)).status()), kExitBadUsage) << shown;
  }
  EXPECT_FALSE(coordinator_.fault);
}

TEST_F(CommandsTest, ALinkThatIsNotThereIsNoFaultOfATimeline) {
  Serve();
  const CommandResult result = Run({"fault", "--node", "node-2", "--kind", "link-down"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitNotFound);
  EXPECT_NE(result.status().message().find("--netns"), std::string::npos);
  EXPECT_FALSE(coordinator_.fault);
}

TEST_F(CommandsTest, TopPrintsOnePictureWhereThereIsNoTerminal) {
  Serve();
  coordinator_.node.set_name("node-1");
  ASSERT_TRUE(Run({"top"}).ok());
  EXPECT_NE(out_.str().find("muster lab"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("llama-chat"), std::string::npos) << out_.str();
  out_.str("");
  ASSERT_TRUE(Run({"top", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("event 5"), std::string::npos) << "of all parts: " << out_.str();
  EXPECT_EQ(out_.str().find('\x1b'), std::string::npos);
}

TEST_F(CommandsTest, TopIsJsonForPrograms) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"top", "7f3a9c1e2b"}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json.at("job").at("id"), "7f3a9c1e2b");
  EXPECT_EQ(json.at("jobs").at(0).at("id"), "7f3a9c1e2b");
  EXPECT_EQ(json.at("problems"), Json::array());
}

TEST_F(CommandsTest, TopAsJsonNamesTheProblemsOfTheCluster) {
  Serve();
  coordinator_.node.set_name("n9");
  coordinator_.node.set_state(v1::NODE_STATE_LOST);
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"top"}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json.at("cluster"), "lab");
  EXPECT_EQ(json.at("nodes").size(), 1u);
  EXPECT_EQ(json.at("problems").at(0).at("text"), "node n9 is lost");
  EXPECT_TRUE(json.at("job").is_null());
}

TEST_F(CommandsTest, TopWithoutACoordinatorIsAnError) { EXPECT_FALSE(Run({"top"}).ok()); }

}  // namespace
}  // namespace muster
