// The archive and the lists as clients see them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/http/testing/http_sink.h"
#include "tests/support/coordinator_harness.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServerArchiveTest : public ServerTest {
 protected:
  void StartWithShortRetention(const std::string& webhook_hosts = "") {
    ServerOptions options = Options();
    options.webhook_hosts = webhook_hosts;
    options.retain = std::chrono::milliseconds(50);
    StartServer(options);
  }
  std::string SubmitCancelled(const std::string& name, const std::string& key = "") {
    const auto job = Submit(Spec(name, 1), key);
    EXPECT_TRUE(job.ok()) << job.status().ToString();
    v1::CancelRequest request;
    request.set_job(job->id());
    v1::CancelResponse response;
    EXPECT_TRUE(Call(&v1::Client::Stub::Cancel, request, &response).ok());
    return job->id();
  }
  // A job that has finished with one checkpoint is archived.
  std::string Archive(FakeWorker& n1, const std::string& spec) {
    const std::string job = SubmitId(spec);
    WaitForState(job, v1::JOB_STATE_RUNNING);
    n1.ReportShard(job, 0, 10, "step-00000010-g1");
    WatchUntil(job, [](const v1::Job& now) {
      return now.checkpoints_size() == 1 && now.checkpoints(0).verified_unix_ms() > 0;
    });
    n1.FinishJob(job);
    WaitUntilArchived();
    return job;
  }
  v1::VerifyCheckpointsResponse Verify(const std::string& job) {
    v1::VerifyCheckpointsRequest request;
    request.set_job(job);
    v1::VerifyCheckpointsResponse response;
    const Status status = Call(&v1::Client::Stub::VerifyCheckpoints, request, &response);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return response;
  }
  v1::ListJobsResponse List(const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    const Status status = Call(&v1::Client::Stub::ListJobs, request, &response);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return response;
  }
  // The names of each page.
  std::vector<std::string> Pages(v1::ListJobsRequest request) {
    std::vector<std::string> pages;
    do {
      const v1::ListJobsResponse response = List(request);
      pages.emplace_back();
      for (const v1::Job& job : response.jobs()) pages.back() += job.name();
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return pages;
  }
  // Only jobs in memory are listed without `all`.
  void WaitUntilArchived(int left = 0) {
    EXPECT_TRUE(Eventually([&] { return List({}).jobs_size() == left; }));
  }
};

TEST_F(ServerArchiveTest, AnArchivedJobIsFoundByIdPrefixAndKeyAlsoAfterARestart) {
  StartWithShortRetention();
  const std::string job = SubmitCancelled("old", "key");
  WaitUntilArchived();
  for (const bool restarted : {false, true}) {
    if (restarted) {
      StopServer();
      StartWithShortRetention();
    }
    const auto found = Get(job.substr(0, 6));
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->id(), job);
    EXPECT_EQ(found->name(), "old");
    EXPECT_EQ(found->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(found->spec_yaml(), Spec("old", 1));
    EXPECT_THAT(EventKinds(job), ElementsAre("submitted", "queued", "stopping", "cancelled"));
    const auto again = Submit(Spec("old", 1), "key");
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->id(), job);
    EXPECT_TRUE(again->existed());
    EXPECT_EQ(Submit(Spec("other", 1), "key").status().code(), StatusCode::kAlreadyExists);
  }
}

// By its name it was unknown to what changes a job, and known to what shows it.
TEST_F(ServerArchiveTest, WhatChangesAnArchivedJobSaysThatItIsOver) {
  StartWithShortRetention();
  const std::string job = SubmitCancelled("old");
  WaitUntilArchived();
  for (const std::string& name : {std::string("old"), job, job.substr(0, 6)}) {
    v1::CancelRequest cancel;
    cancel.set_job(name);
    v1::CancelResponse cancelled;
    const Status again = Call(&v1::Client::Stub::Cancel, cancel, &cancelled);
    EXPECT_TRUE(again.ok()) << again.ToString();
    EXPECT_EQ(cancelled.id(), job) << "it is cancelled";
    v1::SuspendRequest suspend;
    suspend.set_job(name);
    v1::SuspendResponse suspended;
    const Status status = Call(&v1::Client::Stub::Suspend, suspend, &suspended);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("is over (cancelled) and archived"));
  }
}

TEST_F(ServerArchiveTest, AWatchOfAnArchivedJobShowsItsEnd) {
  StartWithShortRetention();
  const std::string job = SubmitCancelled("old");
  WaitUntilArchived();
  EXPECT_EQ(WaitForState(job, v1::JOB_STATE_CANCELLED).name(), "old");
  EXPECT_EQ(WaitForState("old", v1::JOB_STATE_CANCELLED).id(), job);
}

TEST_F(ServerArchiveTest, ANameIsThatOfTheJobInMemoryAndThenOfTheNewestInTheArchive) {
  StartWithShortRetention();
  SubmitCancelled("again");
  const std::string newest = SubmitCancelled("again");
  WaitUntilArchived();
  const auto archived = Get("again");
  ASSERT_TRUE(archived.ok()) << archived.status().ToString();
  EXPECT_EQ(archived->id(), newest);
  EXPECT_THAT(EventKinds("again"), ElementsAre("submitted", "queued", "stopping", "cancelled"));
  const std::string waiting = SubmitId(Spec("again", 9));
  EXPECT_EQ(Get("again")->id(), waiting);
  EXPECT_EQ(Get("never").status().code(), StatusCode::kNotFound);
}

TEST_F(ServerArchiveTest, TheLogOfAnArchivedJobIsReadFromItsNode) {
  StartWithShortRetention();
  const auto n1 = Worker({.node = "n1", .log_text = "hello\nworld\n"});
  const std::string job = SubmitId(Spec("old", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  n1->FinishJob(job);
  WaitUntilArchived();
  v1::ReadLogRequest request;
  request.set_job("old");
  request.set_offset(-6);
  v1::ReadLogResponse response;
  const Status status = Call(&v1::Client::Stub::ReadLog, request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.data(), "world\n");
  EXPECT_TRUE(response.final());
  EXPECT_THAT(response.path(), HasSubstr("logs/1/rank-0.log"));
  request.set_rank(1);
  EXPECT_EQ(Call(&v1::Client::Stub::ReadLog, request, &response).code(), StatusCode::kNotFound);
}

TEST_F(ServerArchiveTest, CheckpointsOfAnArchivedJobAreVerifiedByItsName) {
  StartWithShortRetention();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = Archive(*n1, Spec("old", 1));
  const std::int64_t before = Get(job)->checkpoints(0).verified_unix_ms();
  EXPECT_EQ(Verify("old").whole(), 1);
  EXPECT_GT(Get(job)->checkpoints(0).verified_unix_ms(), before);
}

TEST_F(ServerArchiveTest, DamageInTheArchiveIsShownAndPostedToTheJobsWebhook) {
  const HttpSinkForTest sink({200});
  StartWithShortRetention("127.0.0.1:" + std::to_string(sink.port()));
  const auto n1 = Worker({.node = "n1"});
  const std::string job =
      Archive(*n1, Spec("old", 1) + "on_event: {kinds: [checkpoint_damaged], webhook: '" +
                       sink.Url("/hook") + "'}\n");
  n1->set_options({.scrub_outcome = v1::SCRUB_OUTCOME_DAMAGED, .scrub_detail = "bytes differ"});
  EXPECT_EQ(Verify(job).damaged_size(), 1);
  EXPECT_THAT(Get(job)->checkpoints(0).refused(), HasSubstr("n1: bytes differ"));
  EXPECT_TRUE(Eventually([&] { return sink.requests().size() == 1; }));
  EXPECT_THAT(sink.requests().at(0), HasSubstr(R"("kind":"checkpoint_damaged")"));
}

TEST_F(ServerArchiveTest, PagesGoFromTheNewestJobInMemoryToTheOldestInTheArchive) {
  StartWithShortRetention();
  for (const char* name : {"a", "b", "c"}) SubmitCancelled(name);
  WaitUntilArchived();
  SubmitId(Spec("d", 9));
  SubmitId(Spec("e", 9));
  v1::ListJobsRequest request;
  request.set_limit(2);
  EXPECT_THAT(Pages(request), ElementsAre("ed"));
  request.set_all(true);
  EXPECT_THAT(Pages(request), ElementsAre("ed", "cb", "a"));
  request.set_limit(3);
  EXPECT_THAT(Pages(request), ElementsAre("edc", "ba"));
  request.set_name("b");
  EXPECT_THAT(Pages(request), ElementsAre("b"));
  request.clear_name();
  request.add_states(v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(Pages(request), ElementsAre("cba"));
}

TEST_F(ServerArchiveTest, ABadPageIsRefused) {
  StartServer();
  const auto refusal = [this](const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    return Call(&v1::Client::Stub::ListJobs, request, &response);
  };
  v1::ListJobsRequest request;
  request.set_page_token("never");
  EXPECT_EQ(refusal(request).code(), StatusCode::kInvalidArgument);
  request.Clear();
  request.set_limit(1001);
  EXPECT_THAT(refusal(request).message(), HasSubstr("limit 1001 is not from 0 to 1000"));
  v1::ListEventsRequest events;
  events.set_limit(-1);
  v1::ListEventsResponse none;
  EXPECT_THAT(Call(&v1::Client::Stub::ListEvents, events, &none).message(),
              HasSubstr("limit -1 is not from 0 to 10000"));
}

TEST_F(ServerArchiveTest, NoEventFollowsTheLastNumber) {
  StartServer();
  const auto worker = Worker({.node = "n1"});
  v1::ListEventsRequest request;
  request.set_after_seq(std::numeric_limits<std::uint64_t>::max());
  v1::ListEventsResponse events;
  ASSERT_TRUE(Call(&v1::Client::Stub::ListEvents, request, &events).ok());
  EXPECT_THAT(events.events(), IsEmpty());
}

TEST_F(ServerArchiveTest, ABadSetOfStatesIsRefused) {
  StartServer();
  const auto refusal = [this](const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    return Call(&v1::Client::Stub::ListJobs, request, &response);
  };
  v1::ListJobsRequest request;
  request.Clear();
  for (int n = 0; n < 17; ++n) request.add_states(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(refusal(request).code(), StatusCode::kInvalidArgument);
}

TEST_F(ServerArchiveTest, NodesComeInPagesByName) {
  StartServer();
  const auto n3 = Worker({.node = "n3"});
  const auto n1 = Worker({.node = "n1"});
  const auto n2 = Worker({.node = "n2"});
  v1::ListNodesRequest request;
  request.set_limit(2);
  std::vector<std::string> pages;
  do {
    v1::ListNodesResponse response;
    ASSERT_TRUE(Call(&v1::Client::Stub::ListNodes, request, &response).ok());
    pages.emplace_back();
    for (const v1::Node& node : response.nodes()) pages.back() += node.name();
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(pages, ElementsAre("n1n2", "n3"));
  request.add_states(v1::NODE_STATE_LOST);
  v1::ListNodesResponse lost;
  ASSERT_TRUE(Call(&v1::Client::Stub::ListNodes, request, &lost).ok());
  EXPECT_THAT(lost.nodes(), IsEmpty());
}

}  // namespace
}  // namespace muster
