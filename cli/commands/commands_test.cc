// Verbs for jobs, their history and their logs, against a coordinator that answers from a script.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"
#include "common/base/wall_time.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kJob[] = "name: j\ncommand: [sleep, 1]\nworkdir: sub/dir\n";

TEST_F(CommandsTest, WithoutAClusterTheNextCommandIsUp) {
  const CommandResult result = Run({"get"});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(ExitCodeOf(result.status()), kExitUnreachable);
  EXPECT_NE(result.status().message().find("next: muster up --nodes 2 --dir " + dir_),
            std::string::npos);
}

TEST_F(CommandsTest, ADeadCoordinatorIsUnreachable) {
  Serve();
  server_->Shutdown();
  const CommandResult result = Run({"nodes"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitUnreachable);
  EXPECT_NE(result.status().message().find("muster up --dir " + dir_), std::string::npos);
}

TEST_F(CommandsTest, WithoutATokenFileTheClusterIsUnreachable) {
  Serve();
  fs::remove(dir_ + "/coordinator/token");
  const CommandResult result = Run({"nodes"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitUnreachable);
  EXPECT_NE(result.status().message().find("next: rm -f " + dir_), std::string::npos);
}

TEST_F(CommandsTest, AJobFileThatIsTooLargeIsBadUsage) {
  Serve();
  const std::string path = WriteJob(std::string(2 << 20, '#'));
  EXPECT_EQ(ExitCodeOf(Run({"submit", path}).status()), kExitBadUsage);
}

TEST_F(CommandsTest, SubmitSendsTheWholeJobOnce) {
  Serve();
  context_->output = OutputFormat::kJson;
  const CommandResult result =
      Run({"submit", WriteJob(kJob), "--priority", "7", "--set", "resources.nodes=2"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitSuccess);
  EXPECT_EQ(Json::parse(out_.str()),
            (Json{{"id", "7f3a9c1e2b"}, {"name", "j"}, {"state", "queued"}}));
  EXPECT_EQ(coordinator_.authorization, "Bearer " + token_);
  EXPECT_EQ(coordinator_.submitted.key().size(), 32u);
  const auto spec = ParseJobSpec(coordinator_.submitted.spec_yaml());
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->workdir, dir_ + "/sub/dir");
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_EQ(spec->priority, 7);
}

TEST_F(CommandsTest, SubmitSaysWhenTheJobIsPlaced) {
  Serve();
  ASSERT_TRUE(Run({"submit", WriteJob(kJob), "--queue", "team-a", "--class", "high", "--hold",
                   "--begin", "2027-01-15T09:00:00+01:00", "--key", "k"})
                  .ok());
  const auto spec = ParseJobSpec(coordinator_.submitted.spec_yaml());
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->queue, "team-a");
  EXPECT_EQ(spec->priority_class, "high");
  EXPECT_TRUE(spec->hold);
  EXPECT_EQ(ParseRfc3339(spec->begin), 1'800'000'000'000);
  EXPECT_EQ(ExitCodeOf(Run({"submit", WriteJob(kJob), "--queue", "a b"}).status()), kExitBadUsage);
  EXPECT_EQ(ExitCodeOf(Run({"submit", WriteJob(kJob), "--begin", "soon"}).status()), kExitBadUsage);
}

TEST_F(CommandsTest, ABeginThatCountsFromNowIsAbsoluteOnceItIsSent) {
  Serve();
  ASSERT_TRUE(Run({"submit", WriteJob(kJob), "--begin", "now+2h"}).ok());
  const auto spec = ParseJobSpec(coordinator_.submitted.spec_yaml());
  ASSERT_TRUE(spec.ok());
  EXPECT_GT(ParseRfc3339(spec->begin).value_or(0), SystemClock().UnixMillis() + 7'000'000);
  coordinator_.submitted.Clear();
  const CommandResult keyed = Run({"submit", WriteJob(kJob), "--begin", "now+2h", "--key", "k"});
  EXPECT_EQ(ExitCodeOf(keyed.status()), kExitBadUsage);
  EXPECT_EQ(coordinator_.submitted.spec_yaml(), "") << "a second one would be refused";
}

TEST_F(CommandsTest, SubmitTakesAnotherLaunchersConfiguration) {
  Serve();
  const std::string foreign = dir_ + "/accelerate.yaml";
  ASSERT_TRUE(
      WriteFileAtomically(foreign, "num_machines: 3\nnum_processes: 6\ndistributed_type: FSDP\n")
          .ok());
  const CommandResult result =
      Run({"submit", WriteJob(kJob), "--set", "resources.nodes=2", "--accelerate-config", foreign});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const auto spec = ParseJobSpec(coordinator_.submitted.spec_yaml());
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_EQ(spec->resources.ranks_per_node, 2);
  EXPECT_NE(err_.str().find("num_machines: 3 is not taken"), std::string::npos) << err_.str();
}

TEST_F(CommandsTest, SubmitAndFollowPrintsOneDocument) {
  Serve();
  context_->output = OutputFormat::kJson;
  for (const char* follow : {"--wait", "--attach"}) {
    out_.str("");
    coordinator_.watches = {{{Update(v1::JOB_STATE_SUCCEEDED, 1, "finished")}, grpc::Status::OK}};
    const CommandResult result = Run({"submit", WriteJob(kJob), follow});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(Json::parse(out_.str()).at("state"), "succeeded");
  }
  context_->output = OutputFormat::kName;
  for (const char* follow : {"--wait", "--attach"}) {
    out_.str("");
    coordinator_.watches = {{{Update(v1::JOB_STATE_SUCCEEDED, 1, "finished")}, grpc::Status::OK}};
    ASSERT_TRUE(Run({"submit", WriteJob(kJob), follow}).ok());
    EXPECT_EQ(out_.str(), "7f3a9c1e2b\n");
  }
}

TEST_F(CommandsTest, SubmitShowsProgressWhileItWaits) {
  Serve();
  coordinator_.watches = {
      {{Update(v1::JOB_STATE_RUNNING, 1, "formed"), Update(v1::JOB_STATE_RUNNING, 2, "saved"),
        Update(v1::JOB_STATE_SUCCEEDED, 3, "finished")},
       grpc::Status::OK}};
  ASSERT_TRUE(Run({"submit", WriteJob(kJob), "--wait"}).ok());
  const std::string shown = err_.str();
  EXPECT_NE(shown.find("step 120/200  loss 2.500  1234 tok/s  eta 1m 05s  running"),
            std::string::npos)
      << shown;
  EXPECT_NE(shown.find("  succeeded\n"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("running", shown.find("running") + 1), std::string::npos)
      << "one line for a state: " << shown;
  // `wait`, which scripts use, prints nothing.
  err_.str("");
  coordinator_.watches = {{{Update(v1::JOB_STATE_SUCCEEDED, 4, "finished")}, grpc::Status::OK}};
  ASSERT_TRUE(Run({"wait", "7f3a"}).ok());
  EXPECT_EQ(err_.str(), "");
}

TEST_F(CommandsTest, TheNextCommandReachesTheSameCluster) {
  EXPECT_EQ(SameCluster(*context_), "--dir " + dir_);
  ClusterClient remote(dir_, interrupt_, RemoteCoordinator{"10.0.0.1:7070", "mine"});
  const CommandContext context{remote, context_->terminal};
  EXPECT_EQ(SameCluster(context), "--coordinator 10.0.0.1:7070 --tls DIR");
  context_->slurm_job = "4711";
  EXPECT_EQ(SameCluster(*context_), "--slurm-job 4711");
}

TEST_F(CommandsTest, DescribeSuggestsCommandsForTheSameCluster) {
  Serve();
  context_->slurm_job = "4711";
  ASSERT_TRUE(Run({"describe", "7f3a9c1e2b"}).ok());
  EXPECT_THAT(out_.str(), HasSubstr("muster attach 7f3a9c1e2b --slurm-job 4711\n"));
}

TEST_F(CommandsTest, SubmitWithTheSameKeyAndAnotherSpecIsAConflict) {
  Serve();
  coordinator_.submit_status = {grpc::StatusCode::ALREADY_EXISTS, "job 1 has this key"};
  const CommandResult result = Run({"submit", WriteJob(kJob), "--key", "k"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitConflict);
  EXPECT_EQ(coordinator_.submitted.key(), "k");
}

TEST_F(CommandsTest, SubmitReportsErrorsWithTheFilesOwnLines) {
  const std::string file = WriteJob("# a comment\nname: j\ncommand: [a]\n\npriority: high\n");
  EXPECT_EQ(Run({"submit", file}).status().message(),
            file + ":5: priority: expected a whole number, got 'high'");
  // The same slip although the overrides moved the lines.
  EXPECT_EQ(Run({"submit", file, "--set", "resources.nodes=1"}).status().message(),
            file + ":5: priority: expected a whole number, got 'high'");
  // One that the command line brought.
  const CommandResult result = Run({"submit", WriteJob(kJob), "--set", "resources.nodes=no"});
  EXPECT_EQ(result.status().message(),
            file + " with --set: resources.nodes: expected a whole number, got 'no'");
  EXPECT_EQ(ExitCodeOf(result.status()), kExitBadUsage);
}

TEST_F(CommandsTest, SubmitWarnsOfPathsThatAreMissingAndOfNoNameOfTheHub) {
  Serve();
  const auto warnings = [&](const std::string& model) {
    err_.str("");
    const std::string job = "name: j\ntrain:\n  model: {path: " + model +
                            "}\n  data: {train: " + dir_ + "}\n  schedule: {max_steps: 1}\n";
    const CommandResult result = Run({"submit", WriteJob(job)});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return err_.str();
  };
  EXPECT_NE(warnings("/no/such/model").find("has no config.json"), std::string::npos);
  EXPECT_NE(warnings("model").find("has no config.json"), std::string::npos);
  EXPECT_EQ(warnings("Qwen/Qwen2.5-0.5B").find("warning"), std::string::npos);
  EXPECT_EQ(warnings("Qwen/Qwen2.5-0.5B@main").find("warning"), std::string::npos);
  ASSERT_TRUE(MakeDirectories(dir_ + "/org/model").ok());
  EXPECT_NE(warnings("org/model").find("has no config.json"), std::string::npos)
      << "a directory of that name counts first";
}

TEST_F(CommandsTest, GetAndDescribeShowTheJob) {
  Serve();
  ASSERT_TRUE(Run({"get", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("7f3a9c1e2b  llama-chat  running  2    120/200"), std::string::npos)
      << out_.str();
  context_->output = OutputFormat::kName;
  out_.str("");
  ASSERT_TRUE(Run({"get", "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str(), "7f3a9c1e2b\n");
  EXPECT_EQ(ExitCodeOf(Run({"describe", "other"}).status()), kExitNotFound);
}

TEST_F(CommandsTest, WaitEndsWithTheJobsResult) {
  Serve();
  const std::pair<v1::JobState, int> cases[] = {{v1::JOB_STATE_SUCCEEDED, kExitSuccess},
                                                {v1::JOB_STATE_FAILED, kExitJobFailed},
                                                {v1::JOB_STATE_CANCELLED, kExitJobCancelled}};
  for (const auto& [state, exit_code] : cases) {
    coordinator_.watches.push_back(
        {{Update(v1::JOB_STATE_RUNNING, 1, "a"), Update(state, 2, "b")}, {}});
    const CommandResult result = Run({"wait", "7f3a"});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(*result, exit_code);
  }
}

TEST_F(CommandsTest, WaitEndsAtAStepOrWhenTheJobRuns) {
  Serve();
  const auto watch = [this](const std::string& step) {
    v1::WatchUpdate at_step = Update(v1::JOB_STATE_RECOVERING, 3, "c");
    at_step.mutable_job()->set_step(150);
    coordinator_.watches.push_back(
        {{Update(v1::JOB_STATE_STARTING, 1, "a"), Update(v1::JOB_STATE_RUNNING, 2, "b"), at_step,
          Update(v1::JOB_STATE_FAILED, 4, "d")},
         {}});
    out_.str("");
    return Run({"wait", "7f3a", "--step", step});
  };
  EXPECT_EQ(*watch("0"), kExitSuccess);
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b running at step 120\n");
  EXPECT_EQ(*watch("121"), kExitSuccess);
  EXPECT_EQ(out_.str(), "job 7f3a9c1e2b recovering at step 150\n");
  EXPECT_EQ(*watch("151"), kExitJobFailed);
  const CommandResult late = Run({"wait", "7f3a9c1e2b", "--step", "151", "--timeout", "50ms"});
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("did not come so far"));
}

TEST_F(CommandsTest, WaitGivesUpAtItsTimeout) {
  Serve();
  const CommandResult result = Run({"wait", "7f3a9c1e2b", "--timeout", "50ms"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitTimeout);
}

TEST_F(CommandsTest, WaitWithoutTimeStillSaysWhatIsTrue) {
  Serve();
  EXPECT_EQ(ExitCodeOf(Run({"wait", "other", "--timeout", "0s"}).status()), kExitNotFound);
  coordinator_.job.set_state(v1::JOB_STATE_SUCCEEDED);
  const CommandResult result = Run({"wait", "7f3a9c1e2b", "--timeout", "0s"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitSuccess);
}

TEST_F(CommandsTest, AttachGoesOnWhereTheStreamBroke) {
  Serve();
  coordinator_.watches.push_back(
      {{Update(v1::JOB_STATE_RUNNING, 1, "formed"), Update(v1::JOB_STATE_RECOVERING, 2, "killed")},
       {grpc::StatusCode::UNAVAILABLE, "restarting"}});
  coordinator_.watches.push_back({{Update(v1::JOB_STATE_FAILED, 3, "failed")}, {}});
  const CommandResult result = Run({"attach", "llama-chat"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitJobFailed);
  ASSERT_EQ(coordinator_.watched.size(), 2u);
  EXPECT_EQ(coordinator_.watched[1].after_seq(), 2u);
  EXPECT_EQ(coordinator_.watched[1].job(), "7f3a9c1e2b");
  for (const char* text : {"formed\n", "killed\n", "failed\n", "reconnected\n"})
    EXPECT_NE(out_.str().find(text), std::string::npos) << out_.str();
}

TEST_F(CommandsTest, AttachToAnUnknownJobDoesNotRetry) {
  Serve();
  coordinator_.watches.push_back({{}, {grpc::StatusCode::NOT_FOUND, "no job"}});
  EXPECT_EQ(ExitCodeOf(Run({"attach", "x"}).status()), kExitNotFound);
  EXPECT_EQ(coordinator_.watched.size(), 1u);
}

TEST_F(CommandsTest, LogsOfAllRanksHaveAPrefixAndThoseOfOneHaveNot) {
  Serve();
  coordinator_.logs = {"a\nb\nc", "x\n"};
  ASSERT_TRUE(Run({"logs", "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str(), "rank 0 | a\nrank 0 | b\nrank 0 | c\nrank 1 | x\n");
  out_.str("");
  ASSERT_TRUE(Run({"logs", "7f3a9c1e2b", "--rank", "0", "--tail", "2"}).ok());
  EXPECT_EQ(out_.str(), "b\nc\n");
  out_.str("");
  ASSERT_TRUE(Run({"logs", "7f3a9c1e2b", "--rank", "1", "--tail", "0"}).ok());
  EXPECT_EQ(out_.str(), "");
}

TEST_F(CommandsTest, LogsLongerThanACallAreReadWhole) {
  Serve();
  std::string log;
  for (int i = 0; i < 5000; ++i) log += "line " + std::to_string(i) + "\n";
  coordinator_.logs[0] = log;
  ASSERT_TRUE(Run({"logs", "7f3a9c1e2b", "--rank", "0"}).ok());
  EXPECT_EQ(out_.str(), log);
}

TEST_F(CommandsTest, FollowingLogsEndsWithTheJob) {
  Serve();
  coordinator_.job.set_state(v1::JOB_STATE_SUCCEEDED);
  coordinator_.logs = {"a\n", "b\n"};
  const CommandResult result = Run({"logs", "-f", "7f3a9c1e2b"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(out_.str(), "rank 0 | a\nrank 1 | b\n");
}

TEST_F(CommandsTest, FollowingLogsOutlastsARestartOfTheCoordinator) {
  Serve();
  coordinator_.job.set_state(v1::JOB_STATE_SUCCEEDED);
  coordinator_.logs = {"a\n", "b\n"};
  coordinator_.failures = {grpc::Status::OK,
                           {grpc::StatusCode::CANCELLED, "it stops"},
                           {grpc::StatusCode::UNAVAILABLE, "it starts"}};
  const CommandResult result = Run({"logs", "-f", "7f3a9c1e2b"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitSuccess);
  EXPECT_EQ(out_.str(), "rank 0 | a\nrank 1 | b\n");
  EXPECT_NE(err_.str().find("reconnected"), std::string::npos) << err_.str();
}

TEST_F(CommandsTest, FollowingEventsOutlastsARestartOfTheCoordinator) {
  Serve();
  coordinator_.failures = {grpc::Status::OK,
                           {grpc::StatusCode::CANCELLED, "it stops"},
                           {grpc::StatusCode::UNAVAILABLE, "it starts"},
                           grpc::Status::OK,
                           grpc::Status::OK,
                           {grpc::StatusCode::NOT_FOUND, "the job was deleted"}};
  EXPECT_EQ(ExitCodeOf(Run({"events", "-f"}).status()), kExitNotFound);
  for (const char* text : {"event 1", "event 3", "event 5"})
    EXPECT_NE(out_.str().find(text), std::string::npos) << out_.str();
}

TEST_F(CommandsTest, ACoordinatorThatStopsIsNoInterrupt) {
  Serve();
  coordinator_.failures = {{grpc::StatusCode::CANCELLED, "it stops"}};
  EXPECT_EQ(ExitCodeOf(Run({"get", "7f3a9c1e2b"}).status()), kExitUnreachable);
}

TEST_F(CommandsTest, TextThatIsNotUtf8IsABadCommandLine) {
  Serve();
  EXPECT_EQ(ExitCodeOf(Run({"get", "\xff"}).status()), kExitBadUsage);
}

TEST_F(CommandsTest, ByNoTimeMeansAtOnce) {
  Serve();
  ASSERT_TRUE(Run({"drain", "node-1", "--by", "0s"}).ok());
  EXPECT_EQ(coordinator_.drained.by_seconds(), 0.001);
  ASSERT_TRUE(Run({"suspend", "7f3a9c1e2b", "--by", "0s"}).ok());
  EXPECT_EQ(coordinator_.suspended.by_seconds(), 0.001);
}

TEST_F(CommandsTest, EventsAreReadToTheLast) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"events"}).ok());
  const Json events = Json::parse(out_.str());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[4]["message"], "event 5");
}

TEST_F(CommandsTest, CheckpointsAreListedWithTheirSize) {
  Serve();
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("6.0 MiB"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("/jobs/out/checkpoints/step-00000080-g1"), std::string::npos);
  out_.str("");
  context_->output = OutputFormat::kName;
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str(), "step-00000080-g1\n");
  EXPECT_EQ(coordinator_.verified, "") << "no verification was requested";
}

TEST_F(CommandsTest, CheckpointsShowWhatAnEvaluationHasFound) {
  Serve();
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str().find("1.8"), std::string::npos) << out_.str();
  coordinator_.job.mutable_checkpoints(0)->set_eval_loss(1.875);
  out_.str("");
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("1.8750"), std::string::npos) << out_.str();
}

TEST_F(CommandsTest, CheckpointsShowWhenTheyWereVerifiedOrWhatIsDamaged) {
  Serve();
  v1::CheckpointInfo& checkpoint = *coordinator_.job.mutable_checkpoints(0);
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("not yet"), std::string::npos) << out_.str();
  checkpoint.set_verified_unix_ms(1'700'000'050'000);
  out_.str("");
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find(LocalTime(1'700'000'050'000)), std::string::npos) << out_.str();
  checkpoint.set_refused("found damaged on node-1: bytes 0 to 9");
  out_.str("");
  ASSERT_TRUE(Run({"checkpoints", "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("damaged"), std::string::npos) << out_.str();
  EXPECT_NE(err_.str().find("step-00000080-g1: found damaged on node-1"), std::string::npos);
}

TEST_F(CommandsTest, VerifyFailsForADamagedCheckpointAndForOneThatCannotBeRead) {
  Serve();
  const std::vector<std::string> verify = {"checkpoints", "7f3a9c1e2b", "--verify"};
  CommandResult result = Run(verify);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitSuccess);
  EXPECT_EQ(coordinator_.verified, "7f3a9c1e2b");
  EXPECT_NE(err_.str().find(" verified, 0 damaged\n"), std::string::npos) << err_.str();
  coordinator_.job.mutable_checkpoints(0)->set_refused("found damaged");
  result = Run(verify);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitError);
  EXPECT_NE(err_.str().find(" verified, 1 damaged\n"), std::string::npos) << err_.str();
  coordinator_.verify_status = {grpc::StatusCode::FAILED_PRECONDITION, "no output directory"};
  result = Run(verify);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("no output directory"), std::string::npos);
}

// What "muster WORDS" asks for.
verbs::Parsed Parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "muster");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
}

TEST(CommandLine, AFlagOfRunWinsOverTheVariableOfTheGlobalOne) {
  ASSERT_EQ(::setenv("MUSTER_DIR", "/variable", 1), 0);
  EXPECT_EQ(Parsed({"run", "--dir", "/flag", "train.py"}).global.dir, "/flag");
  EXPECT_EQ(Parsed({"run", "train.py"}).global.dir, "/variable");
  ::unsetenv("MUSTER_DIR");
  ASSERT_EQ(::setenv("MUSTER_OUTPUT", "yaml", 1), 0);
  EXPECT_EQ(Parsed({"slurm", "doctor", "-o", "json"}).global.output, "json");
  ::unsetenv("MUSTER_OUTPUT");
}

TEST(CommandLine, AVerbsVariableHasItsNameAndThatOfTheFlag) {
  ASSERT_EQ(::setenv("MUSTER_DOWN_TIMEOUT", "soon", 1), 0);
  EXPECT_EQ(Parsed({"down"}).exit_code, kExitBadUsage);
  EXPECT_TRUE(Parsed({"get"}).command);
  ::unsetenv("MUSTER_DOWN_TIMEOUT");
}

TEST(CommandLine, WordsOfAnotherProgramArePassedOn) {
  const std::vector<std::string> all = {
      "--nproc-per-node", "2", "train.py", "--dir", "x", "--", "y"};
  std::vector<std::string> run = all;
  run.insert(run.begin(), "run");
  EXPECT_EQ(Parsed(run).passed_on, all);
  EXPECT_EQ(Parsed({"slurm", "render", "job.yaml", "-t", "2:00", "--", "--output=x"}).passed_on,
            (std::vector<std::string>{"-t", "2:00", "--output=x"}));
  EXPECT_TRUE(Parsed({"get", "--", "-odd-name"}).command) << "its own positional";
}

TEST(CommandLine, AMistypedVerbIsNamedWithTheNearestOne) {
  const auto error_of = [](const std::vector<std::string>& words) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Parsed(words).exit_code, kExitBadUsage);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(error_of({"queus", "show"}),
            "muster: 'queus' is no command of muster; did you mean 'queues'?\n"
            "  next: muster --help\n");
  EXPECT_EQ(error_of({"queues", "aply", "x", "--dir", "y"}),
            "muster: 'aply' is no command of muster queues; did you mean 'apply'?\n"
            "  next: muster queues --help\n");
  EXPECT_EQ(error_of({"queues", "frobnicate"}),
            "muster: 'frobnicate' is no command of muster queues\n"
            "  next: muster queues --help\n");
  // A verb's own words are not taken for one.
  EXPECT_THAT(error_of({"attach", "a", "b"}), HasSubstr("b"));
  EXPECT_THAT(error_of({"queues"}), HasSubstr("A subcommand is required"));
  EXPECT_THAT(error_of({"--frobnicate"}), HasSubstr("--frobnicate"));
}

TEST(CommandLine, ANumberOutOfItsRangeIsBadUsage) {
  for (const char* nodes : {"0", "65", "many", "1.5"})
    EXPECT_EQ(Parsed({"up", "--nodes", nodes}).exit_code, kExitBadUsage) << nodes;
  EXPECT_TRUE(Parsed({"up", "--nodes", "64"}).command);
}

TEST(ParseDuration, ReadsItsUnits) {
  EXPECT_EQ(*verbs::ParseDuration("90"), std::chrono::seconds(90));
  EXPECT_EQ(*verbs::ParseDuration("1.5s"), std::chrono::milliseconds(1500));
  EXPECT_EQ(*verbs::ParseDuration("200ms"), std::chrono::milliseconds(200));
  EXPECT_EQ(*verbs::ParseDuration("10m"), std::chrono::minutes(10));
  EXPECT_EQ(*verbs::ParseDuration("2h"), std::chrono::hours(2));
  for (const char* text : {"", "soon", "-1s", "1x", "s", "nan", "1e300h"})
    EXPECT_FALSE(verbs::ParseDuration(text).ok()) << text;
}

}  // namespace
}  // namespace muster
