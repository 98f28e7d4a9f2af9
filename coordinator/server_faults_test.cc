// Drains, faults on purpose and what job files want done at events, over a real channel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>

#include "common/base/files.h"
#include "common/http/testing/http_sink.h"
#include "tests/support/coordinator_harness.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST_F(ServerTest, ADrainedNodeIsEmptiedAndUsedAgainAfterUndrain) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::DrainRequest drain;
  drain.set_node("nowhere");
  v1::DrainResponse drained;
  EXPECT_EQ(Call(&v1::Client::Stub::Drain, drain, &drained).code(), StatusCode::kNotFound);
  drain.set_node("n1");
  drain.set_reason("new kernel");
  drain.set_by_seconds(-1);
  EXPECT_EQ(Call(&v1::Client::Stub::Drain, drain, &drained).code(), StatusCode::kInvalidArgument);
  drain.set_by_seconds(600);
  const Status status = Call(&v1::Client::Stub::Drain, drain, &drained);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(drained.state(), v1::NODE_STATE_DRAINING);
  EXPECT_THAT(drained.jobs(), ::testing::ElementsAre(job));
  const v1::Node draining = FindNode("n1");
  EXPECT_THAT(draining.reason(), HasSubstr("new kernel"));
  EXPECT_GT(draining.drain_by_unix_ms(), 0);

  ASSERT_TRUE(n1->WaitFor([](const v1::CoordinatorMessage& m) { return m.has_stop(); }));
  n1->FinishJob(job);
  ASSERT_TRUE(Eventually([&] { return FindNode("n1").state() == v1::NODE_STATE_DRAINED; }));
  EXPECT_EQ(Get(job)->attempts(0).cause_kind(), "drained");

  v1::UndrainRequest undrain;
  undrain.set_node("n1");
  v1::UndrainResponse undrained;
  ASSERT_TRUE(Call(&v1::Client::Stub::Undrain, undrain, &undrained).ok());
  EXPECT_EQ(undrained.state(), v1::NODE_STATE_READY);
  EXPECT_TRUE(n1->WaitForLaunch(job, 2));
}

TEST_F(ServerTest, ASuspendedJobEndsAndGoesOnWhenItIsResumed) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::SuspendRequest suspend;
  suspend.set_job(job);
  suspend.set_by_seconds(-1);
  v1::SuspendResponse suspended;
  EXPECT_EQ(Call(&v1::Client::Stub::Suspend, suspend, &suspended).code(),
            StatusCode::kInvalidArgument);
  suspend.set_by_seconds(600);
  const Status status = Call(&v1::Client::Stub::Suspend, suspend, &suspended);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(suspended.state(), v1::JOB_STATE_STOPPING);
  ASSERT_TRUE(n1->WaitFor([](const v1::CoordinatorMessage& m) { return m.has_stop(); }));
  n1->FinishJob(job);
  WaitForState(job, v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Get(job)->attempts(0).cause_kind(), "suspended");

  v1::ResumeRequest resume;
  resume.set_job("nobody");
  v1::ResumeResponse resumed;
  EXPECT_EQ(Call(&v1::Client::Stub::Resume, resume, &resumed).code(), StatusCode::kNotFound);
  resume.set_job(job);
  ASSERT_TRUE(Call(&v1::Client::Stub::Resume, resume, &resumed).ok());
  EXPECT_EQ(resumed.id(), job);
  EXPECT_TRUE(n1->WaitForLaunch(job, 2));
}

TEST_F(ServerTest, AHeldJobIsUpdatedAndReleased) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("single", 1) + "hold: true\n");
  EXPECT_EQ(Get(job)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(Get(job)->held());
  v1::HoldJobRequest hold;
  hold.set_job(job);
  hold.set_reason("no data yet");
  v1::HoldJobResponse held;
  ASSERT_TRUE(Call(&v1::Client::Stub::HoldJob, hold, &held).ok());
  EXPECT_EQ(held.id(), job);
  EXPECT_EQ(Get(job)->reason(), "held: no data yet");

  v1::UpdateJobRequest update;
  update.set_job("single");
  update.set_priority(101);
  v1::UpdateJobResponse updated;
  EXPECT_EQ(Call(&v1::Client::Stub::UpdateJob, update, &updated).code(),
            StatusCode::kInvalidArgument);
  update.set_priority(80);
  update.set_queue("default");
  update.set_priority_class("normal");
  update.set_time_limit_seconds(7200);
  update.set_begin_unix_ms(1000);
  ASSERT_TRUE(Call(&v1::Client::Stub::UpdateJob, update, &updated).ok());
  EXPECT_EQ(updated.changed(),
            "priority 50 -> 80, time limit none -> 2h, begin none -> 1970-01-01 00:00:01 UTC");
  EXPECT_EQ(updated.state(), v1::JOB_STATE_QUEUED);
  const auto shown = Get(job);
  EXPECT_EQ(shown->priority(), 80);
  EXPECT_EQ(shown->time_limit_seconds(), 7200);
  EXPECT_EQ(shown->begin_unix_ms(), 1000);
  EXPECT_EQ(shown->queue(), "default");
  EXPECT_EQ(shown->priority_class(), "normal");
  update.set_queue("team");
  EXPECT_EQ(Call(&v1::Client::Stub::UpdateJob, update, &updated).code(),
            StatusCode::kInvalidArgument);

  v1::ReleaseJobRequest release;
  release.set_job(job);
  v1::ReleaseJobResponse released;
  ASSERT_TRUE(Call(&v1::Client::Stub::ReleaseJob, release, &released).ok());
  EXPECT_EQ(released.state(), v1::JOB_STATE_STARTING);
  WaitForState(job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Call(&v1::Client::Stub::HoldJob, hold, &held).code(), StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, AFaultGoesToItsRankAndItsOutcomeToTheClient) {
  ServerOptions options = Options();
  options.allow_faults = true;
  StartServer(options);
  const auto n1 = Worker({.node = "n1", .allow_faults = true});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::InjectFaultRequest request;
  request.set_job("single");
  request.set_kind("slow");
  request.set_argument("0.3");
  std::uint64_t last_fault = 0;
  for (const std::string error : {"", "there is no such rank"}) {
    v1::InjectFaultResponse response;
    Status status;
    std::thread client([&] { status = Call(&v1::Client::Stub::InjectFault, request, &response); });
    v1::WorkerMessage done;
    const bool came = n1->WaitFor([&](const v1::CoordinatorMessage& m) {
      const v1::InjectFault& fault = m.inject_fault();
      if (!m.has_inject_fault() || fault.request_id() == last_fault) return false;
      EXPECT_EQ(fault.job_id(), job);
      EXPECT_EQ(fault.generation(), 1);
      EXPECT_EQ(fault.kind(), "slow");
      EXPECT_EQ(fault.argument(), "0.3");
      done.mutable_fault_done()->set_request_id(fault.request_id());
      return true;
    });
    last_fault = done.fault_done().request_id();
    done.mutable_fault_done()->set_error(error);
    if (came) n1->Send(done);
    client.join();
    ASSERT_TRUE(came);
    EXPECT_EQ(status.ok(), error.empty()) << status.ToString();
    EXPECT_EQ(status.message(), error);
    if (!status.ok()) continue;
    EXPECT_EQ(response.node(), "n1");
    EXPECT_EQ(response.generation(), 1);
  }
  EXPECT_THAT(EventKinds(job), ::testing::Contains("fault_injected"));
  EXPECT_THAT(HttpGet(server_->endpoint().http, "/metrics"),
              HasSubstr("muster_injected_faults_total 2"));
}

TEST_F(ServerTest, FaultsAreRefusedWhereTheyAreNotAllowed) {
  StartServer();
  const auto n1 = Worker({.node = "n1", .allow_faults = true});
  const std::string job = SubmitId(Spec("single", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::InjectFaultRequest request;
  request.set_job(job);
  request.set_kind("kill");
  v1::InjectFaultResponse response;
  const Status status = Call(&v1::Client::Stub::InjectFault, request, &response);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("--allow-faults"));
}

std::string WithWebhook(const std::string& dir, const std::string& url) {
  return "name: a\nworkdir: " + dir + "\ncommand: [/bin/true]\n" +
         "on_event: {kinds: [cancelled], webhook: '" + url + "'}\n";
}

TEST_F(ServerTest, AnEventThatAJobNamesIsPostedToItsWebhook) {
  const HttpSinkForTest sink({200});
  ServerOptions options = Options();
  options.webhook_hosts = "127.0.0.1:" + std::to_string(sink.port());
  StartServer(std::move(options));
  const std::string job = SubmitId(WithWebhook(dir_, sink.Url("/hook")));
  v1::CancelRequest request;
  request.set_job(job);
  v1::CancelResponse response;
  ASSERT_TRUE(Call(&v1::Client::Stub::Cancel, request, &response).ok());
  ASSERT_TRUE(Eventually([&] { return sink.requests().size() == 1; }));
  EXPECT_THAT(sink.requests()[0], HasSubstr(R"("kind":"cancelled")"));
  EXPECT_THAT(sink.requests()[0], HasSubstr(job));
  EXPECT_TRUE(Eventually([&] {
    return HttpGet(server_->endpoint().http, "/metrics")
               .find(R"(muster_on_event_total{result="done"} 1)") != std::string::npos;
  }));
}

TEST_F(ServerTest, AJobWithAWebhookIsRefusedWhereNoHostIsAllowed) {
  StartServer();
  const auto refused = Submit(WithWebhook(dir_, "https://hooks.example/x"));
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("--webhook-hosts hooks.example"));
}

TEST_F(ServerTest, AListOfWebhookHostsThatIsNoneStopsTheStart) {
  ServerOptions options = Options();
  options.webhook_hosts = "hooks.example,https://x";
  const auto server = Server::Start(std::move(options));
  EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(server.status().message(), HasSubstr("--webhook-hosts: 'https://x'"));
}

}  // namespace
}  // namespace muster
