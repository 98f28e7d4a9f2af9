#include "coordinator/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <vector>

#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"
#include "tests/support/coordinator_harness.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(ServerTest, EveryCallNeedsTheToken) {
  StartServer();
  const std::string right = token_;
  token_ = std::string(64, '0');
  EXPECT_EQ(Get("x").status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Submit(Spec("a", 1)).status().code(), StatusCode::kUnauthenticated);

  const auto context = Context();
  const auto reader = client_->Watch(context.get(), v1::WatchRequest());
  v1::WatchUpdate update;
  EXPECT_FALSE(reader->Read(&update));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);

  FakeWorker worker(server_->endpoint().grpc, token_, {});
  EXPECT_EQ(worker.Connect().code(), StatusCode::kUnauthenticated);
  token_ = right;
}

TEST_F(ServerTest, AWorkerOfAnotherProtocolVersionIsRefused) {
  StartServer();
  FakeWorkerOptions options;
  options.protocol_version = 99;
  FakeWorker worker(server_->endpoint().grpc, token_, options);
  const Status status = worker.Connect();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("speaks protocol 99, this coordinator"));
  EXPECT_EQ(worker.Count([](const v1::CoordinatorMessage& m) {
    return m.refused().reason() == v1::REFUSAL_REASON_PROTOCOL_VERSION;
  }),
            1);
}

TEST_F(ServerTest, AWorkerWithABadNameIsRefused) {
  StartServer();
  FakeWorkerOptions options;
  options.node = "../n1";
  FakeWorker worker(server_->endpoint().grpc, token_, options);
  EXPECT_EQ(worker.Connect().code(), StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, ANodesNameHas63BytesAtMost) {
  StartServer();
  FakeWorkerOptions options;
  options.node = std::string(64, 'n');
  FakeWorker worker(server_->endpoint().grpc, token_, options);
  EXPECT_EQ(worker.Connect().message(),
            "node name '" + std::string(63, 'n') +
                "' is refused: 1 to 63 letters, digits, '-', '_' and '.', not beginning with '.'");
}

TEST_F(ServerTest, AHelloWithAFieldOverItsLimitIsRefusedByName) {
  StartServer();
  FakeWorker worker(server_->endpoint().grpc, token_, {.host_id = std::string(1000, 'x')});
  const Status status = worker.Connect();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "node n1: Hello.host_id has 1000 bytes; at most 128 are taken");
}

TEST_F(ServerTest, ASecondLiveWorkerOfTheSameNameIsRefused) {
  StartServer();
  const auto first = Worker({.node = "n1", .instance = "one"});
  FakeWorker second(server_->endpoint().grpc, token_, {.node = "n1", .instance = "two"});
  EXPECT_EQ(second.Connect().code(), StatusCode::kAlreadyExists);
}

TEST_F(ServerTest, AStreamThatDoesNotBeginWithHelloIsEnded) {
  StartServer();
  grpc::ClientContext context;
  AttachToken(context, token_);
  const auto stub = v1::Worker::NewStub(OpenChannel(server_->endpoint().grpc));
  const auto stream = stub->Session(&context);
  v1::WorkerMessage message;
  message.mutable_heartbeat();
  ASSERT_TRUE(stream->Write(message));
  v1::CoordinatorMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, SubmitIsIdempotentByKey) {
  StartServer();
  const auto first = Submit(Spec("a", 1), "key");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->id().size(), 10u);
  EXPECT_FALSE(first->existed());
  const auto again = Submit(Spec("a", 1), "key");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->id(), first->id());
  EXPECT_TRUE(again->existed());
  EXPECT_EQ(Submit(Spec("b", 1), "key").status().code(), StatusCode::kAlreadyExists);
}

// Prometheus would refuse its whole configuration.
TEST_F(ServerTest, AListOfTargetsThatPrometheusWouldNotReadIsRefused) {
  ServerOptions options;
  options.dir = "/nowhere";
  options.file_sd = "/tmp/targets.txt";
  const Status refused = Server::Start(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr(".json, .yml or .yaml"));
}

TEST_F(ServerTest, ABadSpecificationAndAnUnknownJobAreNamed) {
  StartServer();
  const Status bad = Submit(Spec("a", 1, "frobnicate: 1\n")).status();
  EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(bad.message(), HasSubstr("frobnicate"));
  EXPECT_EQ(Get("nobody").status().code(), StatusCode::kNotFound);
}

TEST_F(ServerTest, QuestionsBeyondAFewAreRefusedAndLaterOnesAnswered) {
  StartServer();
  v1::ExplainJobRequest request;
  request.set_job(SubmitId(Spec("waits", 1)));
  struct Asked {
    std::unique_ptr<grpc::ClientContext> context;
    v1::ExplainJobResponse response;
  };
  Status refusal;
  const auto ask_many = [&] {
    std::vector<Asked> all(200);
    std::mutex mutex;
    std::size_t ended = 0;
    for (Asked& each : all) {
      each.context = Context();
      client_->async()->ExplainJob(each.context.get(), &request, &each.response,
                                   [&](const grpc::Status& status) {
                                     const std::lock_guard lock(mutex);
                                     if (!status.ok()) refusal = FromGrpcStatus(status);
                                     ++ended;
                                   });
    }
    EXPECT_TRUE(Eventually([&] {
      const std::lock_guard lock(mutex);
      return ended == all.size();
    }));
    return !refusal.ok();
  };
  ASSERT_TRUE(Eventually(ask_many));
  EXPECT_EQ(refusal.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal.message(), "the coordinator answers other such questions; try again");
  for (int i = 0; i < 10; ++i) {
    v1::ExplainJobResponse response;
    EXPECT_TRUE(Call(&v1::Client::Stub::ExplainJob, request, &response).ok());
    EXPECT_TRUE(response.waits());
  }
}

TEST_F(ServerTest, AJobOfTwoNodesSucceedsAndItsWatchEnds) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const auto n2 = Worker({.node = "n2", .instance = "instance-2"});
  const std::string job = SubmitId(Spec("pair", 2));
  ASSERT_TRUE(n1->WaitForLaunch(job));
  ASSERT_TRUE(n2->WaitForLaunch(job));
  WaitForState(job, v1::JOB_STATE_RUNNING);

  const auto context = Context();
  v1::WatchRequest request;
  request.set_job(job);
  const auto reader = client_->Watch(context.get(), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(reader->Read(&update));
  n1->FinishJob(job);
  n2->FinishJob(job);
  while (reader->Read(&update)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(update.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(EventKinds(job),
              ::testing::IsSupersetOf({"submitted", "placed", "launched", "formed", "succeeded"}));
  // The guardians are let go.
  EXPECT_TRUE(n1->WaitFor([](const v1::CoordinatorMessage& m) { return m.has_release(); }));
}

TEST_F(ServerTest, ARankThatIsKilledIsRecovered) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const auto n2 = Worker({.node = "n2", .instance = "instance-2"});
  const std::string job = SubmitId(Spec("pair", 2));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  n2->ExitRank(job, 1, 0, 9);
  ASSERT_TRUE(n1->WaitForLaunch(job, 2));
  const v1::Job again = WatchUntil(job, [](const v1::Job& j) {
                          return j.state() == v1::JOB_STATE_RUNNING && j.generation() == 2;
                        }).job();
  ASSERT_EQ(again.attempts_size(), 2);
  EXPECT_EQ(again.attempts(0).failed_rank(), 1);
  EXPECT_EQ(again.attempts(0).failed_node(), "n2");
  EXPECT_THAT(again.attempts(0).cause(), HasSubstr("SIGKILL"));
  EXPECT_EQ(again.restarts(), 1);
  n1->FinishJob(job);
  n2->FinishJob(job);
  WaitForState(job, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(HttpGet(server_->endpoint().http, "/metrics"),
              ContainsRegex(R"(muster_restarts_total\{cause="rank_killed",tier="[a-z_]+"\} 1)"));
}

TEST_F(ServerTest, ACompleteCheckpointIsCommittedAndResumedFrom) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const auto n2 = Worker({.node = "n2", .instance = "instance-2"});
  const std::string job = SubmitId(Spec("pair", 2));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  n1->ReportShard(job, 0, 50, "step-00000050");
  n2->ReportShard(job, 1, 50, "step-00000050");
  ASSERT_TRUE(n1->WaitFor([](const v1::CoordinatorMessage& m) {
    return m.has_checkpoint_committed() && m.checkpoint_committed().checkpoint().step() == 50 &&
           m.checkpoint_committed().checkpoint().shards_size() == 2;
  }));
  n1->ExitRank(job, 0, 1);
  ASSERT_TRUE(n1->WaitFor([](const v1::CoordinatorMessage& m) {
    return m.has_launch() && m.launch().generation() == 2 && m.launch().resume_size() == 1 &&
           m.launch().resume(0).directory() == "step-00000050";
  }));
  EXPECT_EQ(Get(job)->checkpoints_size(), 1);
}

TEST_F(ServerTest, CheckpointsAreVerifiedOnRequestAndADamagedOneIsNotResumedFrom) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  for (const int step : {50, 60}) {
    n1->ReportShard(job, 0, step, "step-000000" + std::to_string(step));
    WatchUntil(job, [step](const v1::Job& j) {
      return j.checkpoints_size() > 0 && j.checkpoints().rbegin()->step() == step &&
             j.checkpoints().rbegin()->verified_unix_ms() > 0;
    });
  }
  v1::VerifyCheckpointsRequest request;
  request.set_job(job);
  v1::VerifyCheckpointsResponse response;
  Status status = Call(&v1::Client::Stub::VerifyCheckpoints, request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.whole(), 2);
  n1->set_options(
      {.node = "n1", .scrub_outcome = v1::SCRUB_OUTCOME_DAMAGED, .scrub_detail = "bytes 0 to 9"});
  status = Call(&v1::Client::Stub::VerifyCheckpoints, request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.damaged_size(), 2);
  EXPECT_THAT(Get(job)->checkpoints(0).refused(), HasSubstr("bytes 0 to 9"));
  EXPECT_THAT(EventKinds(job), Contains("checkpoint_damaged"));
  EXPECT_THAT(HttpGet(server_->endpoint().http, "/metrics"),
              HasSubstr(R"(muster_checkpoint_scrubs_total{result="damaged"} 2)"));
  request.set_job("nonsense");
  EXPECT_EQ(Call(&v1::Client::Stub::VerifyCheckpoints, request, &response).code(),
            StatusCode::kNotFound);
}

// Its handler stayed for up to 48 hours, and 1,024 of them refused every change.
TEST_F(ServerTest, AVerificationEndsWithItsCaller) {
  StartServer();
  const auto n1 = Worker({.node = "n1", .scrub_outcome = v1::SCRUB_OUTCOME_UNSPECIFIED});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  n1->ReportShard(job, 0, 50, "step-00000050");
  // Before the commit record is written there is nothing to read.
  ASSERT_TRUE(n1->WaitFor([](const auto& message) { return message.has_scrub_checkpoint(); }));
  const auto waiting = [this](int count) {
    return HttpGet(server_->endpoint().http, "/metrics")
               .find("\nmuster_pending_requests " + std::to_string(count) + "\n") !=
           std::string::npos;
  };
  v1::VerifyCheckpointsRequest request;
  request.set_job(job);
  const auto context = Context();
  std::thread caller([&] {
    v1::VerifyCheckpointsResponse response;
    const grpc::Status status = client_->VerifyCheckpoints(context.get(), request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually([&] { return waiting(1); }));
  context->TryCancel();
  caller.join();
  EXPECT_TRUE(Eventually([&] { return waiting(0); }));
}

TEST_F(ServerTest, ARestartedCoordinatorKnowsItsJobsAndAdoptsTheirRanks) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string waiting = SubmitId(Spec("waiting", 5));
  const std::string job = SubmitId(Spec("single", 1));
  const v1::Job before = WaitForState(job, v1::JOB_STATE_RUNNING);

  StopServer();
  StartServer();
  EXPECT_EQ(Get(waiting)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get(job)->state(), v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(n1->Connect().ok());
  n1->ReportProgress(job, 0, 7, 2.5);
  const v1::Job after = WatchUntil(job, [](const v1::Job& j) { return j.step() == 7; }).job();
  EXPECT_EQ(after.generation(), before.generation());
  EXPECT_EQ(after.ranks(0).pid(), before.ranks(0).pid());
  EXPECT_EQ(after.restarts(), 0);
  EXPECT_EQ(n1->Count([](const v1::CoordinatorMessage& m) { return m.has_abort(); }), 0);
  n1->FinishJob(job);
  WaitForState(job, v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ServerTest, QueuesAreAppliedUnderTheirVersionAndOutliveARestart) {
  StartServer();
  const auto show = [&] {
    v1::ShowQueuesResponse response;
    EXPECT_TRUE(Call(&v1::Client::Stub::ShowQueues, v1::ShowQueuesRequest(), &response).ok());
    return response;
  };
  EXPECT_EQ(show().yaml(), "queues:\n  default: {}\n");
  EXPECT_EQ(show().queues_size(), 1);
  v1::ApplyQueuesRequest request;
  request.set_yaml("queues:\n  default: {}\n  a: {ceiling: {gpus: 8}, weight: 3}  # ours\n");
  request.set_file("ours.yaml");
  request.set_check_only(true);
  request.set_expected_version(9);
  v1::ApplyQueuesResponse response;
  ASSERT_TRUE(Call(&v1::Client::Stub::ApplyQueues, request, &response).ok());
  EXPECT_EQ(response.version(), 0u);
  EXPECT_EQ(response.changes(0), "a: new, ceiling none -> 8 GPUs, weight 1 -> 3");
  request.set_check_only(false);
  EXPECT_EQ(Call(&v1::Client::Stub::ApplyQueues, request, &response).code(), StatusCode::kAborted);
  request.set_expected_version(0);
  ASSERT_TRUE(Call(&v1::Client::Stub::ApplyQueues, request, &response).ok());
  EXPECT_EQ(response.version(), 1u);
  StopServer();
  StartServer();
  EXPECT_EQ(show().version(), 1u);
  EXPECT_EQ(show().yaml(), request.yaml());
  const v1::Queue queue = show().queues(1);
  EXPECT_EQ(queue.name(), "a");
  EXPECT_TRUE(queue.leaf());
  EXPECT_EQ(queue.ceiling().gpus(), 8);
  EXPECT_FALSE(queue.ceiling().has_slots());
  EXPECT_EQ(queue.share(), 0.75);
  request.set_yaml("queues: {}\n");
  const Status status = Call(&v1::Client::Stub::ApplyQueues, request, &response);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("ours.yaml:1: queues: there is no queue 'default'"));
}

TEST_F(ServerTest, AScheduleIsExportedAndReplaysToItsPlan) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  WaitForState(SubmitId(Spec("runs", 1)), v1::JOB_STATE_RUNNING);
  const std::string waits = SubmitId(Spec("waits", 1));
  const Result<std::string> recording = Export();
  ASSERT_TRUE(recording.ok()) << recording.status().ToString();
  RecordingReader reader(*recording, "export");
  v1::SchedulePass pass;
  ASSERT_TRUE(*reader.Next(&pass));
  EXPECT_EQ(pass.plan().waiting(0).job(), waits);
  EXPECT_EQ(Replan(pass)->SerializeAsString(), pass.plan().SerializeAsString());
  EXPECT_FALSE(*reader.Next(&pass));
  v1::ShowUsageRequest usage;
  usage.set_queue("defalt");
  v1::ShowUsageResponse rows;
  const Status status = Call(&v1::Client::Stub::ShowUsage, usage, &rows);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("did you mean 'default'?"));
  usage.clear_queue();
  EXPECT_TRUE(Call(&v1::Client::Stub::ShowUsage, usage, &rows).ok());
}

TEST_F(ServerTest, AScheduleIsExportedInPartsThatAreNoLargerThanAMebibyte) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  WaitForState(SubmitId(Spec("runs", 1)), v1::JOB_STATE_RUNNING);
  std::string exclude = "resources:\n  exclude:\n";
  for (int i = 0; i < 100; ++i) exclude += "    - " + std::string(6'000, 'n') + "\n";
  for (int i = 0; i < 2; ++i)
    SubmitId("name: waits\n" + exclude + "workdir: /jobs\ncommand: [x]\n");
  const auto context = Context();
  const auto parts = client_->ExportSchedule(context.get(), {});
  std::vector<std::size_t> sizes;
  std::string recording;
  for (v1::ExportScheduleResponse part; parts->Read(&part); recording += part.recording())
    sizes.push_back(part.recording().size());
  ASSERT_TRUE(parts->Finish().ok());
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[0], std::size_t{1 << 20});
  RecordingReader reader(recording, "export");
  v1::SchedulePass pass;
  ASSERT_TRUE(*reader.Next(&pass));
  EXPECT_EQ(pass.snapshot().requests_size(), 2);
  EXPECT_EQ(Replan(pass)->SerializeAsString(), pass.plan().SerializeAsString());
}

TEST_F(ServerTest, ARankThatEndedWhileTheCoordinatorWasAwayIsRecovered) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  StopServer();
  n1->ExitRank(job, 0, 0, 11);
  StartServer();
  ASSERT_TRUE(n1->Connect().ok());
  ASSERT_TRUE(n1->WaitForLaunch(job, 2));
}

TEST_F(ServerTest, AWorkerThatReconnectsWithinItsLeaseDisturbsNothing) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  n1->Disconnect();
  ASSERT_TRUE(n1->Connect().ok());
  n1->ReportProgress(job, 0, 9, 2.5);
  const v1::Job job_after = WatchUntil(job, [](const v1::Job& j) { return j.step() == 9; }).job();
  EXPECT_EQ(job_after.generation(), 1);
}

TEST_F(ServerTest, ALostNodeEndsTheAttemptAfterItsLease) {
  ServerOptions options = Options();
  options.lease = std::chrono::milliseconds(200);
  StartServer(options);
  const auto n1 = Worker({.node = "n1"});
  const auto n2 = Worker({.node = "n2", .instance = "instance-2"});
  const std::string job = SubmitId(Spec("single", 1));
  const v1::Job before = WaitForState(job, v1::JOB_STATE_RUNNING);
  const bool on_n1 = before.ranks(0).node() == "n1";
  (on_n1 ? n1 : n2)->Disconnect();
  ASSERT_TRUE((on_n1 ? n2 : n1)->WaitForLaunch(job, 2));
  EXPECT_THAT(Get(job)->attempts(0).cause(), HasSubstr(before.ranks(0).node()));
}

TEST_F(ServerTest, CancelEndsAJobAndMayBeRepeated) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::CancelRequest request;
  request.set_job(job);
  v1::CancelResponse response;
  ASSERT_TRUE(Call(&v1::Client::Stub::Cancel, request, &response).ok());
  EXPECT_EQ(response.id(), job);
  WaitForState(job, v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Call(&v1::Client::Stub::Cancel, request, &response).ok());
  EXPECT_EQ(response.state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(ServerTest, ReadsTheLogOfARankFromItsNode) {
  StartServer();
  const auto n1 = Worker({.node = "n1", .log_text = "hello\nworld\n"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::ReadLogRequest request;
  request.set_job("single");
  request.set_offset(-6);
  v1::ReadLogResponse response;
  const Status status = Call(&v1::Client::Stub::ReadLog, request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.data(), "world\n");
  EXPECT_EQ(response.next_offset(), 12);
  EXPECT_TRUE(response.at_end());
  EXPECT_FALSE(response.final());
  EXPECT_THAT(response.path(), HasSubstr("logs/1/rank-0.log"));

  n1->Disconnect();
  // The end of the stream is noticed on its own time; then the node is named.
  WatchUntil(job, [](const v1::Job&) { return true; });
  for (Status gone; gone.code() != StatusCode::kUnavailable;) {
    gone = Call(&v1::Client::Stub::ReadLog, request, &response);
    ASSERT_FALSE(gone.code() == StatusCode::kNotFound) << gone.ToString();
  }
}

TEST_F(ServerTest, ServesHealthMetricsAndDiscovery) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string& http = server_->endpoint().http;
  EXPECT_THAT(HttpGet(http, "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(HttpGet(http, "/metrics"),
              HasSubstr(R"(muster_node_state{node="n1",state="ready"} 1)"));
  EXPECT_THAT(HttpGet(http, "/sd"), HasSubstr("127.0.0.1:9"));
  v1::VersionResponse version;
  ASSERT_TRUE(Call(&v1::Client::Stub::Version, v1::VersionRequest(), &version).ok());
  EXPECT_EQ(version.cluster(), dir_);
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(Call(&v1::Client::Stub::ListNodes, v1::ListNodesRequest(), &nodes).ok());
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).state(), v1::NODE_STATE_READY);
}

TEST_F(ServerTest, ASecondCoordinatorInTheSameDirectoryIsRefused) {
  StartServer();
  const auto second = Server::Start(Options());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("pid " + std::to_string(::getpid())));
  // And the first one's endpoint is untouched.
  EXPECT_TRUE(ReadEndpoint(ClusterPaths{dir_}.Endpoint()).ok());
}

TEST_F(ServerTest, ATakenPortIsNamedAndNothingIsLeftRunning) {
  ServerOptions options = Options();
  options.listen = "127.0.0.1:0";
  StartServer(options);
  ServerOptions other = Options();
  other.dir = dir_ + "/other";
  other.listen = server_->endpoint().grpc;
  const auto second = Server::Start(other);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            other.listen + " is taken by another program; choose another with --listen");
  other.listen = "unix:" + dir_ + "/other.sock";
  other.http = server_->endpoint().http;
  const auto third = Server::Start(other);
  ASSERT_FALSE(third.ok());
  EXPECT_THAT(third.status().message(), HasSubstr("--http"));
}

TEST_F(ServerTest, AnAddressOfTheNetworkIsRefused) {
  ServerOptions options = Options();
  options.listen = "0.0.0.0:0";
  EXPECT_EQ(Server::Start(options).status().code(), StatusCode::kPermissionDenied);
}

// It ended after the first message.
TEST_F(ServerTest, AWatchOfAJobThatIsOverEndsWithItsLastEvent) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("waiting", 5));
  for (int i = 0; i < 400; ++i) {
    v1::SuspendRequest suspend;
    suspend.set_job(job);
    v1::SuspendResponse suspended;
    ASSERT_TRUE(Call(&v1::Client::Stub::Suspend, suspend, &suspended).ok());
    v1::ResumeRequest resume;
    resume.set_job(job);
    v1::ResumeResponse resumed;
    ASSERT_TRUE(Call(&v1::Client::Stub::Resume, resume, &resumed).ok());
  }
  v1::CancelRequest cancel;
  cancel.set_job(job);
  v1::CancelResponse cancelled;
  ASSERT_TRUE(Call(&v1::Client::Stub::Cancel, cancel, &cancelled).ok());
  ASSERT_GT(EventKinds(job).size(), 1000u);
  const auto context = Context();
  v1::WatchRequest request;
  request.set_job(job);
  const auto reader = client_->Watch(context.get(), request);
  std::string last;
  for (v1::WatchUpdate update; reader->Read(&update);) {
    if (update.events_size() > 0) last = update.events(update.events_size() - 1).kind();
  }
  EXPECT_EQ(last, "cancelled");
}

TEST_F(ServerTest, StoppingEndsOpenWatchesAndStreams) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("waiting", 5));
  const auto context = Context();
  v1::WatchRequest request;
  request.set_job(job);
  const auto reader = client_->Watch(context.get(), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(reader->Read(&update));
  StopServer();
  while (reader->Read(&update)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(n1->WaitForEnd().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(outcome_.ok());
}

}  // namespace
}  // namespace muster
