// The commands against a coordinator that answers from a script, over loopback.

#include "cli/commands/commands.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sstream>

#include "cli/canned_job.h"
#include "cli/exit_code.h"
#include "common/base/files.h"
#include "common/job_spec/parse.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token.h"
#include "muster/v1/client_api.grpc.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// What one Watch call sends before it ends with `status`.
struct WatchScript {
  std::vector<v1::WatchUpdate> updates;
  grpc::Status status;
};

class FakeCoordinator final : public v1::Client::Service {
 public:
  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    const auto entry = context->client_metadata().find("authorization");
    authorization = std::string(entry->second.data(), entry->second.size());
    submitted = *request;
    if (!submit_status.ok()) return submit_status;
    response->set_id("7f3a9c1e2b");
    response->set_name("j");
    response->set_state(v1::JOB_STATE_QUEUED);
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* response) override {
    if (request->job() != job.id()) return {grpc::StatusCode::NOT_FOUND, "no job has this id"};
    *response = job;
    return grpc::Status::OK;
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchUpdate>* writer) override {
    std::unique_lock lock(mutex);
    watched.push_back(*request);
    if (watches.empty()) {
      // A job about which nothing is new: the stream stays open until the client ends it.
      while (!context->IsCancelled()) silence.wait_for(lock, std::chrono::milliseconds(1));
      return grpc::Status::CANCELLED;
    }
    const WatchScript script = watches.front();
    watches.pop_front();
    for (const auto& update : script.updates) writer->Write(update);
    return script.status;
  }

  grpc::Status ReadLog(grpc::ServerContext*, const v1::ReadLogRequest* request,
                       v1::ReadLogResponse* response) override {
    const std::string& log = logs[static_cast<std::size_t>(request->rank())];
    const auto size = static_cast<std::int64_t>(log.size());
    const std::int64_t start = request->offset() < 0
                                   ? std::max<std::int64_t>(0, size + request->offset())
                                   : request->offset();
    const std::string data = log.substr(static_cast<std::size_t>(start), 10'000);
    response->set_data(data);
    response->set_next_offset(start + static_cast<std::int64_t>(data.size()));
    response->set_at_end(response->next_offset() == size);
    response->set_final(true);
    return grpc::Status::OK;
  }

  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override {
    for (std::uint64_t seq = request->after_seq() + 1; seq <= 5 && response->events_size() < 2;
         ++seq) {
      auto* event = response->add_events();
      event->set_seq(seq);
      event->set_message("event " + std::to_string(seq));
    }
    return grpc::Status::OK;
  }

  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    *response->add_nodes() = node;
    // One state after the other, the last one for good.
    if (node_states.empty()) return grpc::Status::OK;
    response->mutable_nodes(0)->set_state(node_states.front());
    if (node_states.size() > 1) node_states.pop_front();
    return grpc::Status::OK;
  }

  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    drained = *request;
    response->set_state(v1::NODE_STATE_DRAINING);
    response->add_jobs("7f3a9c1e2b");
    return grpc::Status::OK;
  }

  grpc::Status Undrain(grpc::ServerContext*, const v1::UndrainRequest* request,
                       v1::UndrainResponse* response) override {
    undrained = request->node();
    response->set_state(v1::NODE_STATE_READY);
    return grpc::Status::OK;
  }

  grpc::Status InjectFault(grpc::ServerContext*, const v1::InjectFaultRequest* request,
                           v1::InjectFaultResponse* response) override {
    fault = *request;
    if (!fault_status.ok()) return fault_status;
    response->set_node("node-2");
    response->set_generation(4);
    return grpc::Status::OK;
  }

  grpc::Status VerifyCheckpoints(grpc::ServerContext*, const v1::VerifyCheckpointsRequest* request,
                                 v1::VerifyCheckpointsResponse* response) override {
    verified = request->job();
    if (!verify_status.ok()) return verify_status;
    for (const auto& checkpoint : job.checkpoints())
      if (!checkpoint.refused().empty()) response->add_damaged(checkpoint.directory());
    return grpc::Status::OK;
  }

  std::string verified;
  grpc::Status verify_status;
  std::mutex mutex;
  std::condition_variable silence;
  v1::Node node;
  std::deque<v1::NodeState> node_states;
  v1::DrainRequest drained;
  std::string undrained;
  std::optional<v1::InjectFaultRequest> fault;
  grpc::Status fault_status;
  std::string authorization;
  v1::SubmitRequest submitted;
  grpc::Status submit_status;
  v1::Job job = CannedJob();
  std::deque<WatchScript> watches;
  std::vector<v1::WatchRequest> watched;
  std::vector<std::string> logs = std::vector<std::string>(2);
};

v1::WatchUpdate Update(v1::JobState state, std::uint64_t seq, const std::string& message) {
  v1::WatchUpdate update;
  *update.mutable_job() = CannedJob();
  update.mutable_job()->set_state(state);
  auto* event = update.add_events();
  event->set_seq(seq);
  event->set_severity("info");
  event->set_message(message);
  return update;
}

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() {
    std::string pattern = (fs::temp_directory_path() / "muster-commands-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    fs::create_directories(dir_ + "/coordinator");
    client_ = std::make_unique<ClusterClient>(dir_, interrupt_);
    context_ = std::make_unique<CommandContext>(CommandContext{*client_, terminal_});
  }
  ~CommandsTest() override {
    if (server_) server_->Shutdown();
    fs::remove_all(dir_);
  }

  void Serve() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&coordinator_);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // clients ping each second
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    token_ = *LoadOrCreateToken(dir_ + "/coordinator/token");
    ASSERT_TRUE(WriteEndpoint(dir_ + "/coordinator/endpoint.json",
                              {"127.0.0.1:" + std::to_string(port), "127.0.0.1:1", 1})
                    .ok());
  }

  std::string WriteJob(const std::string& text) {
    const std::string path = dir_ + "/job.yaml";
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }

  std::string dir_;
  std::string token_;
  Interrupt interrupt_;
  std::ostringstream out_, err_;
  Terminal terminal_{out_, err_};
  std::unique_ptr<ClusterClient> client_;
  std::unique_ptr<CommandContext> context_;
  FakeCoordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
};

constexpr char kJob[] = "name: j\ncommand: [sleep, 1]\nworkdir: sub/dir\n";

TEST_F(CommandsTest, WithoutAClusterTheNextCommandIsUp) {
  const CommandResult result = RunGet(*context_, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(ExitCodeOf(result.status()), kExitUnreachable);
  EXPECT_NE(result.status().message().find("next: muster up --nodes 2 --dir " + dir_),
            std::string::npos);
}

TEST_F(CommandsTest, ADeadCoordinatorIsUnreachable) {
  Serve();
  server_->Shutdown();
  const CommandResult result = RunNodes(*context_);
  EXPECT_EQ(ExitCodeOf(result.status()), kExitUnreachable);
  EXPECT_NE(result.status().message().find("muster up --dir " + dir_), std::string::npos);
}

TEST_F(CommandsTest, WithoutATokenFileTheClusterIsUnreachable) {
  Serve();
  fs::remove(dir_ + "/coordinator/token");
  const CommandResult result = RunNodes(*context_);
  EXPECT_EQ(ExitCodeOf(result.status()), kExitUnreachable);
  EXPECT_NE(result.status().message().find("next: rm -f " + dir_), std::string::npos);
}

TEST_F(CommandsTest, AJobFileThatIsTooLargeIsBadUsage) {
  Serve();
  const std::string path = WriteJob(std::string(2 << 20, '#'));
  EXPECT_EQ(ExitCodeOf(RunSubmit(*context_, {.file = path}).status()), kExitBadUsage);
}

TEST_F(CommandsTest, SubmitSendsTheWholeJobOnce) {
  Serve();
  context_->output = OutputFormat::kJson;
  const CommandResult result = RunSubmit(
      *context_, {.file = WriteJob(kJob), .priority = 7, .overrides = {"resources.nodes=2"}});
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

TEST_F(CommandsTest, SubmitTakesWhatAnotherLaunchersConfigurationSays) {
  Serve();
  const std::string foreign = dir_ + "/accelerate.yaml";
  ASSERT_TRUE(
      WriteFileAtomically(foreign, "num_machines: 3\nnum_processes: 6\ndistributed_type: FSDP\n")
          .ok());
  const CommandResult result = RunSubmit(
      *context_,
      {.file = WriteJob(kJob), .overrides = {"resources.nodes=2"}, .accelerate_config = foreign});
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
  for (const SubmitFollow follow : {SubmitFollow::kWait, SubmitFollow::kAttach}) {
    out_.str("");
    coordinator_.watches = {{{Update(v1::JOB_STATE_SUCCEEDED, 1, "finished")}, grpc::Status::OK}};
    const CommandResult result = RunSubmit(*context_, {.file = WriteJob(kJob), .follow = follow});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(Json::parse(out_.str()).at("state"), "succeeded");
  }
}

TEST_F(CommandsTest, SubmitWithTheSameKeyAndAnotherSpecIsAConflict) {
  Serve();
  coordinator_.submit_status = {grpc::StatusCode::ALREADY_EXISTS, "job 1 has this key"};
  const CommandResult result = RunSubmit(*context_, {.file = WriteJob(kJob), .key = "k"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitConflict);
  EXPECT_EQ(coordinator_.submitted.key(), "k");
}

TEST_F(CommandsTest, SubmitTellsErrorsWithTheFilesOwnLines) {
  const std::string file = WriteJob("# a comment\nname: j\ncommand: [a]\n\npriority: high\n");
  EXPECT_EQ(RunSubmit(*context_, {.file = file}).status().message(),
            file + ":5: priority: expected a whole number, got 'high'");
  // The same slip although the overrides moved the lines.
  EXPECT_EQ(
      RunSubmit(*context_, {.file = file, .overrides = {"resources.nodes=1"}}).status().message(),
      file + ":5: priority: expected a whole number, got 'high'");
  // One that the command line brought.
  const CommandResult result =
      RunSubmit(*context_, {.file = WriteJob(kJob), .overrides = {"resources.nodes=no"}});
  EXPECT_EQ(result.status().message(),
            file + " with --set: resources.nodes: expected a whole number, got 'no'");
  EXPECT_EQ(ExitCodeOf(result.status()), kExitBadUsage);
}

TEST_F(CommandsTest, GetAndDescribeShowTheJob) {
  Serve();
  ASSERT_TRUE(RunGet(*context_, {.job = "7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("7f3a9c1e2b  llama-chat  running  2    120/200"), std::string::npos)
      << out_.str();
  context_->output = OutputFormat::kName;
  out_.str("");
  ASSERT_TRUE(RunGet(*context_, {.job = "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str(), "7f3a9c1e2b\n");
  EXPECT_EQ(ExitCodeOf(RunDescribe(*context_, "other").status()), kExitNotFound);
}

TEST_F(CommandsTest, WaitEndsWithTheJobsResult) {
  Serve();
  const std::pair<v1::JobState, int> cases[] = {{v1::JOB_STATE_SUCCEEDED, kExitSuccess},
                                                {v1::JOB_STATE_FAILED, kExitJobFailed},
                                                {v1::JOB_STATE_CANCELLED, kExitJobCancelled}};
  for (const auto& [state, exit_code] : cases) {
    coordinator_.watches.push_back(
        {{Update(v1::JOB_STATE_RUNNING, 1, "a"), Update(state, 2, "b")}, {}});
    const CommandResult result = RunWait(*context_, {.job = "7f3a"});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(*result, exit_code);
  }
}

TEST_F(CommandsTest, WaitGivesUpAtItsTimeout) {
  Serve();
  const CommandResult result =
      RunWait(*context_, {.job = "7f3a", .timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitTimeout);
}

TEST_F(CommandsTest, AttachGoesOnWhereTheStreamBroke) {
  Serve();
  coordinator_.watches.push_back(
      {{Update(v1::JOB_STATE_RUNNING, 1, "formed"), Update(v1::JOB_STATE_RECOVERING, 2, "killed")},
       {grpc::StatusCode::UNAVAILABLE, "restarting"}});
  coordinator_.watches.push_back({{Update(v1::JOB_STATE_FAILED, 3, "failed")}, {}});
  const CommandResult result = RunAttach(*context_, {.job = "llama-chat"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitJobFailed);
  ASSERT_EQ(coordinator_.watched.size(), 2u);
  EXPECT_EQ(coordinator_.watched[1].after_seq(), 2u);
  EXPECT_EQ(coordinator_.watched[1].job(), "7f3a9c1e2b");
  for (const char* text : {"formed\n", "killed\n", "failed\n", "connected again\n"})
    EXPECT_NE(out_.str().find(text), std::string::npos) << out_.str();
}

TEST_F(CommandsTest, AttachToAnUnknownJobDoesNotRetry) {
  Serve();
  coordinator_.watches.push_back({{}, {grpc::StatusCode::NOT_FOUND, "no job"}});
  EXPECT_EQ(ExitCodeOf(RunAttach(*context_, {.job = "x"}).status()), kExitNotFound);
  EXPECT_EQ(coordinator_.watched.size(), 1u);
}

TEST_F(CommandsTest, LogsOfAllRanksHaveAPrefixAndThoseOfOneHaveNot) {
  Serve();
  coordinator_.logs = {"a\nb\nc", "x\n"};
  ASSERT_TRUE(RunLogs(*context_, {.job = "7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str(), "rank 0 | a\nrank 0 | b\nrank 0 | c\nrank 1 | x\n");
  out_.str("");
  ASSERT_TRUE(RunLogs(*context_, {.job = "7f3a9c1e2b", .rank = 0, .tail = 2}).ok());
  EXPECT_EQ(out_.str(), "b\nc\n");
  out_.str("");
  ASSERT_TRUE(RunLogs(*context_, {.job = "7f3a9c1e2b", .rank = 1, .tail = 0}).ok());
  EXPECT_EQ(out_.str(), "");
}

TEST_F(CommandsTest, LogsLongerThanACallAreReadWhole) {
  Serve();
  std::string log;
  for (int i = 0; i < 5000; ++i) log += "line " + std::to_string(i) + "\n";
  coordinator_.logs[0] = log;
  ASSERT_TRUE(RunLogs(*context_, {.job = "7f3a9c1e2b", .rank = 0}).ok());
  EXPECT_EQ(out_.str(), log);
}

TEST_F(CommandsTest, FollowingLogsEndsWithTheJob) {
  Serve();
  coordinator_.job.set_state(v1::JOB_STATE_SUCCEEDED);
  coordinator_.logs = {"a\n", "b\n"};
  const CommandResult result = RunLogs(*context_, {.job = "7f3a9c1e2b", .follow = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(out_.str(), "rank 0 | a\nrank 1 | b\n");
}

TEST_F(CommandsTest, EventsAreReadToTheLast) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(RunEvents(*context_, {}).ok());
  const Json events = Json::parse(out_.str());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[4]["message"], "event 5");
}

TEST_F(CommandsTest, NodesShowWhyTheyDrainAndWhatTheySay) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node.set_state(v1::NODE_STATE_DRAINING);
  coordinator_.node.set_reason("new kernel");
  coordinator_.node.set_drain_by_unix_ms(1'700'000'000'000);
  coordinator_.node.add_notices("memory pressure");
  coordinator_.node.set_failure_domain("rack-7");
  ASSERT_TRUE(RunNodes(*context_).ok());
  EXPECT_NE(out_.str().find("node-2  draining"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("new kernel, by "), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("; memory pressure"), std::string::npos) << out_.str();
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(RunNodes(*context_).ok());
  const Json node = Json::parse(out_.str()).at(0);
  EXPECT_EQ(node.at("failure_domain"), "rack-7");
  EXPECT_EQ(node.at("notices"), (Json{"memory pressure"}));
  EXPECT_EQ(node.at("drain_by"), "2023-11-14T22:13:20.000Z");
}

TEST_F(CommandsTest, DrainTellsTheJobsThatMove) {
  Serve();
  const CommandResult result = RunDrain(
      *context_, {.node = "node-2", .by = std::chrono::minutes(10), .reason = "new kernel"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(coordinator_.drained.node(), "node-2");
  EXPECT_EQ(coordinator_.drained.by_seconds(), 600);
  EXPECT_EQ(coordinator_.drained.reason(), "new kernel");
  EXPECT_EQ(out_.str(),
            "node node-2 is draining; these jobs save their state and move: 7f3a9c1e2b\n");
}

TEST_F(CommandsTest, DrainWaitsUntilTheNodeIsEmpty) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node_states = {v1::NODE_STATE_DRAINING, v1::NODE_STATE_DRAINED};
  const CommandResult result = RunDrain(*context_, {.node = "node-2", .wait = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(coordinator_.drained.by_seconds(), 0) << "no limit";
  EXPECT_EQ(out_.str(), "node node-2 is drained; moved away: 7f3a9c1e2b\n");
}

TEST_F(CommandsTest, ADrainThatSomebodyTookBackIsNotWaitedFor) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node_states = {v1::NODE_STATE_DRAINING, v1::NODE_STATE_READY};
  const CommandResult result = RunDrain(*context_, {.node = "node-2", .wait = true});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "node node-2 is ready and no longer draining");
}

TEST_F(CommandsTest, UndrainMakesANodeReady) {
  Serve();
  ASSERT_TRUE(RunUndrain(*context_, "node-2").ok());
  EXPECT_EQ(coordinator_.undrained, "node-2");
  EXPECT_EQ(out_.str(), "node node-2 is ready\n");
}

TEST_F(CommandsTest, AFaultOfARankIsSentWithItsArgument) {
  Serve();
  const CommandResult result =
      RunFault(*context_, {.job = "llama-chat", .rank = 1, .kind = "slow=30%"});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_TRUE(coordinator_.fault);
  EXPECT_EQ(coordinator_.fault->job(), "llama-chat");
  EXPECT_EQ(coordinator_.fault->rank(), 1);
  EXPECT_EQ(coordinator_.fault->kind(), "slow");
  EXPECT_EQ(coordinator_.fault->argument(), "0.3000");
  EXPECT_EQ(out_.str(), "slow=30% on node-2, rank 1 of generation 4\n");
}

TEST_F(CommandsTest, AFaultOfANodeNamesNoRank) {
  Serve();
  ASSERT_TRUE(RunFault(*context_, {.node = "node-2", .kind = "kill-node"}).ok());
  EXPECT_EQ(coordinator_.fault->node(), "node-2");
  EXPECT_EQ(out_.str(), "kill-node on node-2\n");
}

TEST_F(CommandsTest, AClusterThatAllowsNoFaultsRefusesThem) {
  Serve();
  coordinator_.fault_status = {grpc::StatusCode::FAILED_PRECONDITION, "no --allow-faults"};
  const CommandResult result = RunFault(*context_, {.job = "j", .kind = "kill"});
  EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(CommandsTest, AFaultOfTheWrongThingIsBadUsageAndNotSent) {
  Serve();
  const FaultOptions cases[] = {{.job = "j", .kind = "explode"},
                                {.job = "j", .kind = "kill-node"},
                                {.job = "j", .node = "n", .kind = "kill-node"},
                                {.node = "n", .kind = "kill"},
                                {.kind = "kill"},
                                {.kind = "link-down"},
                                {.job = "j", .kind = "slow"},
                                {.job = "j", .kind = "kill=3"}};
  for (const FaultOptions& options : cases)
    EXPECT_EQ(ExitCodeOf(RunFault(*context_, options).status()), kExitBadUsage) << options.kind;
  EXPECT_FALSE(coordinator_.fault);
}

TEST_F(CommandsTest, ALinkThatIsNotThereIsNoFaultThatAnyStoryTells) {
  Serve();
  const CommandResult result = RunFault(*context_, {.node = "node-2", .kind = "link-down"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitNotFound);
  EXPECT_NE(result.status().message().find("--netns"), std::string::npos);
  EXPECT_FALSE(coordinator_.fault);
}

TEST_F(CommandsTest, CheckpointsAreListedWithTheirSize) {
  Serve();
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("6.0 MiB"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("/jobs/out/checkpoints/step-00000080-g1"), std::string::npos);
  out_.str("");
  context_->output = OutputFormat::kName;
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str(), "step-00000080-g1\n");
  EXPECT_EQ(coordinator_.verified, "") << "nobody asked for it";
}

TEST_F(CommandsTest, CheckpointsShowWhatAnEvaluationHasFound) {
  Serve();
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_EQ(out_.str().find("1.8"), std::string::npos) << out_.str();
  coordinator_.job.mutable_checkpoints(0)->set_eval_loss(1.875);
  out_.str("");
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("1.8750"), std::string::npos) << out_.str();
}

TEST_F(CommandsTest, CheckpointsSayWhenTheyWereVerifiedOrWhatIsDamaged) {
  Serve();
  v1::CheckpointInfo& checkpoint = *coordinator_.job.mutable_checkpoints(0);
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("not yet"), std::string::npos) << out_.str();
  checkpoint.set_verified_unix_ms(1'700'000'050'000);
  out_.str("");
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find(LocalTime(1'700'000'050'000)), std::string::npos) << out_.str();
  checkpoint.set_refused("found damaged on node-1: bytes 0 to 9");
  out_.str("");
  ASSERT_TRUE(RunCheckpoints(*context_, {"7f3a9c1e2b"}).ok());
  EXPECT_NE(out_.str().find("damaged"), std::string::npos) << out_.str();
  EXPECT_NE(err_.str().find("step-00000080-g1: found damaged on node-1"), std::string::npos);
}

TEST_F(CommandsTest, VerifyFailsForADamagedCheckpointAndForOneThatCannotBeRead) {
  Serve();
  const CheckpointsOptions options{.job = "7f3a9c1e2b", .verify = true};
  CommandResult result = RunCheckpoints(*context_, options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitSuccess);
  EXPECT_EQ(coordinator_.verified, "7f3a9c1e2b");
  coordinator_.job.mutable_checkpoints(0)->set_refused("found damaged");
  result = RunCheckpoints(*context_, options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, kExitError);
  coordinator_.verify_status = {grpc::StatusCode::FAILED_PRECONDITION, "no output directory"};
  result = RunCheckpoints(*context_, options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("no output directory"), std::string::npos);
}

TEST(ParseFaultKind, TakesFractionsAndCodes) {
  EXPECT_EQ(ParseFaultKind("slow=30%")->argument, "0.3000");
  EXPECT_EQ(ParseFaultKind("slow=0.5")->argument, "0.5000");
  EXPECT_EQ(ParseFaultKind("exit=3")->argument, "3");
  EXPECT_EQ(ParseFaultKind("kill")->argument, "");
  for (const char* text : {"slow", "slow=", "slow=fast", "slow=0", "slow=-1", "exit", "exit=256",
                           "exit=-1", "exit=1.5", "kill=", "exit=3x"})
    EXPECT_FALSE(ParseFaultKind(text).ok()) << text;
}

TEST(ParseDuration, KnowsItsUnits) {
  EXPECT_EQ(*ParseDuration("90"), std::chrono::seconds(90));
  EXPECT_EQ(*ParseDuration("1.5s"), std::chrono::milliseconds(1500));
  EXPECT_EQ(*ParseDuration("200ms"), std::chrono::milliseconds(200));
  EXPECT_EQ(*ParseDuration("10m"), std::chrono::minutes(10));
  EXPECT_EQ(*ParseDuration("2h"), std::chrono::hours(2));
  for (const char* text : {"", "soon", "-1s", "1x", "s", "nan", "1e300h"})
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
}

}  // namespace
}  // namespace muster
