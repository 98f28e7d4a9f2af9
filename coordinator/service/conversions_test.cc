#include "coordinator/service/conversions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// What a view of a job points into.
struct ViewedJob {
  JobView View() const {
    JobView view;
    view.record = &record;
    view.attempts = &attempts;
    view.checkpoints = &checkpoints;
    view.progress = &progress;
    return view;
  }
  JobRecord record;
  std::vector<AttemptRecord> attempts;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<RankProgress> progress;
};

TEST(ClientConversions, ACheckpointHasWhenItWasVerifiedAndWhatIsWrongWithIt) {
  CheckpointRecord checkpoint;
  checkpoint.committed_unix_ms = 70;
  EXPECT_EQ(ToProto(checkpoint).verified_unix_ms(), 0);
  checkpoint.manifest_written = true;
  EXPECT_EQ(ToProto(checkpoint).verified_unix_ms(), 0) << "it is read after that";
  checkpoint.verified_unix_ms = 90;
  checkpoint.refused = "bits";
  EXPECT_EQ(ToProto(checkpoint).verified_unix_ms(), 90);
  EXPECT_EQ(ToProto(checkpoint).refused(), "bits");
  EXPECT_FALSE(ToProto(checkpoint).has_eval_loss());
  checkpoint.evaluated = true;
  checkpoint.eval_loss = 2.5;
  EXPECT_EQ(ToProto(checkpoint).eval_loss(), 2.5);
}

TEST(ClientConversions, ASummaryLeavesTheDetailOut) {
  ViewedJob job;
  JobRecord& record = job.record;
  record.id = JobId{"0123456789"};
  record.state = JobState::kRunning;
  record.spec_yaml = "name: a";
  AttemptRecord attempt;
  attempt.generation = 1;
  attempt.ranks.push_back({0, 0, 0, NodeName{"n1"}, 55, RankState::kExited, {0, 9}});
  job.attempts = {attempt};
  job.checkpoints.resize(2);
  job.checkpoints[0].state = CheckpointState::kPruning;
  job.checkpoints[1].state = CheckpointState::kCommitted;
  job.progress.resize(1);
  job.progress[0].device_bytes = 60;
  job.progress[0].device_capacity_bytes = 80;
  job.progress[0].slowest_step_seconds = 2.5;
  record.step = 9;
  const JobView view = job.View();

  const v1::Job summary = ToProto(view, JobDetail::kSummary, TimePoint());
  EXPECT_EQ(summary.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(summary.step(), 9);
  EXPECT_EQ(summary.ranks_size() + summary.attempts_size() + summary.checkpoints_size(), 0);
  EXPECT_TRUE(summary.spec_yaml().empty());

  const v1::Job full = ToProto(view, JobDetail::kFull, TimePoint());
  ASSERT_EQ(full.ranks_size(), 1);
  EXPECT_EQ(full.ranks(0).exit().signal(), 9);
  EXPECT_EQ(full.attempts_size(), 1);
  EXPECT_EQ(full.checkpoints_size(), 1) << "one that is being pruned is no longer there";
  EXPECT_EQ(full.spec_yaml(), "name: a");
  ASSERT_EQ(full.progress_size(), 1);
  EXPECT_EQ(full.progress(0).device_bytes(), 60u);
  EXPECT_EQ(full.progress(0).device_capacity_bytes(), 80u);
  EXPECT_EQ(full.progress(0).slowest_step_seconds(), 2.5);
}

TEST(ClientConversions, AJobsUsageIsThatOfTheMoment) {
  ViewedJob job;
  TimeLedger ledger;
  const TimePoint begin{std::chrono::hours(1)};
  ledger.Begin({.doing = {TimeState::kQueue, false, 4}}, 0, begin, 1);
  JobView view = job.View();
  view.ledger = &ledger;
  const v1::Goodput goodput =
      ToProto(view, JobDetail::kSummary, begin + std::chrono::seconds(10)).goodput();
  ASSERT_EQ(goodput.states_size(), kTimeStateCount);
  EXPECT_EQ(goodput.states(0).state(), "step");
  EXPECT_EQ(goodput.states(5).state(), "queue");
  EXPECT_DOUBLE_EQ(goodput.states(5).seconds(), 40);
  EXPECT_LT(goodput.ratio(), 0) << "it has had no slots";
  ledger.Transition({TimeState::kStep, true, 4}, 1, begin + std::chrono::seconds(10));
  EXPECT_DOUBLE_EQ(ToProto(view.goodput(begin + std::chrono::seconds(11))).under_way_seconds(), 4);
}

AttemptRecord EndedAttempt() {
  AttemptRecord attempt;
  attempt.generation = 2;
  attempt.tier = Tier::kInPlace;
  attempt.nodes = {NodeName{"n1"}, NodeName{"n2"}};
  attempt.spares = {NodeName{"n3"}};
  attempt.lent = {NodeName{"n2"}};
  attempt.ranks.resize(2);
  attempt.resumed_from = "snapshot";
  attempt.cause_kind = CauseKind::kHung;
  attempt.card = {"no progress for 3.1 s", 41,         "data", 3, "world: 9 enqueued, 8 completed",
                  {"limit 3.0 s"},         "look here"};
  return attempt;
}

TEST(ClientConversions, AnAttemptHasHowItCameUpAndWhyItEnded) {
  ViewedJob job;
  job.record.world_size = 4;
  job.attempts = {EndedAttempt()};
  EXPECT_EQ(ToProto(job.View(), JobDetail::kSummary, TimePoint()).world_size(), 2)
      << "of the newest attempt";
  const v1::AttemptInfo attempt = ToProto(job.View(), JobDetail::kFull, TimePoint()).attempts(0);
  EXPECT_EQ(attempt.tier(), "in_place");
  EXPECT_EQ(attempt.world_size(), 2);
  EXPECT_THAT(attempt.nodes(), ElementsAre("n1", "n2"));
  EXPECT_THAT(attempt.spares(), ElementsAre("n3"));
  EXPECT_THAT(attempt.lent(), ElementsAre("n2"));
  EXPECT_EQ(attempt.resumed_from(), "snapshot");
  EXPECT_EQ(attempt.cause_kind(), "hung");
  EXPECT_EQ(attempt.card().what(), "no progress for 3.1 s");
  EXPECT_EQ(attempt.card().step(), 41);
  EXPECT_EQ(attempt.card().phase(), "data");
  EXPECT_EQ(attempt.card().micro_batch(), 3);
  EXPECT_EQ(attempt.card().last_collective(), "world: 9 enqueued, 8 completed");
  EXPECT_THAT(attempt.card().facts(), ElementsAre("limit 3.0 s"));
  EXPECT_EQ(attempt.card().advice(), "look here");
}

TEST(ClientConversions, AnAttemptThatRunsHasNoCause) {
  ViewedJob job;
  job.attempts.resize(1);
  const v1::AttemptInfo attempt = ToProto(job.View(), JobDetail::kFull, TimePoint()).attempts(0);
  EXPECT_EQ(attempt.cause_kind(), "");
  EXPECT_FALSE(attempt.has_card());
  EXPECT_EQ(attempt.tier(), "launch");
}

TEST(ClientConversions, ANodeHasItsDrainAndItsNotices) {
  NodeRecord record;
  record.name = NodeName{"n1"};
  record.state = NodeState::kDraining;
  record.reason = "";
  record.host_id = "host-a";
  record.drain_reason = "new kernel";
  record.drain_by_unix_ms = 5000;
  record.notices = {{.kind = "memory", .detail = "98 % used"}};
  record.pilot = "p-1";
  record.report = {"between nodes: sockets"};
  NodeView view{&record, 1, true};
  v1::Node node = ToProto(view);
  EXPECT_EQ(node.reason(), "new kernel");
  EXPECT_EQ(node.drain_by_unix_ms(), 5000);
  EXPECT_EQ(node.failure_domain(), "host-a") << "where none was given";
  EXPECT_THAT(node.notices(), ElementsAre("memory: 98 % used"));
  EXPECT_EQ(node.pilot(), "p-1");
  EXPECT_THAT(node.report(), ElementsAre("between nodes: sockets"));
  record.failure_domain = "rack-7";
  record.state = NodeState::kLost;
  record.reason = "not seen";
  node = ToProto(view);
  EXPECT_EQ(node.failure_domain(), "rack-7");
  EXPECT_EQ(node.reason(), "not seen") << "the newer news";
}

// "g0 of filler", ...
std::vector<std::string> Users(const v1::Node& node) {
  std::vector<std::string> users;
  for (const v1::AllocatedDevice& device : node.allocated())
    users.push_back(device.id() + " of " + device.job());
  return users;
}

TEST(ClientConversions, ANodesSharedSpareCountsOnce) {
  NodeRecord record;
  std::map<JobId, HoldLedger::Hold> holds;
  const auto hold = [&holds](const char* job, HeldResources resources) {
    holds[JobId{job}].resources = std::move(resources);
  };
  hold("a", {1, {"g0", "g1"}, 4, 100, HoldUse::kShared});
  hold("b", {1, {"g0"}, 2, 300, HoldUse::kShared});
  hold("filler", {1, {"g0"}, 1, 50, HoldUse::kLent});
  hold("own", {1, {"g2"}, 8, 1000, HoldUse::kOwn});
  NodeView view{&record, 2, true};
  view.holds = &holds;
  const v1::Node node = ToProto(view);
  EXPECT_THAT(Users(node), UnorderedElementsAre("g0 of filler", "g1 of a", "g2 of own"));
  EXPECT_EQ(node.cpus_used(), 12);
  EXPECT_EQ(node.memory_bytes_used(), 1300u);
}

TEST(ClientConversions, ANodeHasTheVersionsOfItsWorker) {
  const NodeRecord record;
  const std::vector<NamedVersions> versions = {{.key = "protocol", .range = {2, 3}}};
  const v1::Node node = ToProto(NodeView{.record = &record, .versions = &versions});
  ASSERT_EQ(node.versions_size(), 1);
  EXPECT_EQ(node.versions(0).key(), "protocol");
  EXPECT_EQ(node.versions(0).min(), 2);
  EXPECT_EQ(node.versions(0).max(), 3);
  EXPECT_EQ(ToProto(NodeView{.record = &record}).versions_size(), 0);
}

TEST(ClientConversions, ADeviceThatNoJobGetsSaysWhy) {
  NodeRecord record;
  record.inventory.devices = {{.id = "g0"}, {.id = "g1"}, {.id = "g2"}, {.id = "g3"}, {.id = "g4"}};
  record.broken_devices = {{.id = "g1", .reason = "Xid 79"}};
  record.notices = {{.kind = "gpu", .detail = "g3 has another job", .in_use = {"g3"}}};
  NodeView view{&record, 0, true};
  view.allocatable = 1;
  view.others = {{"g2", NodeName{"n1"}}};
  const v1::Node node = ToProto(view);
  std::vector<std::string> faults;
  for (const v1::Device& device : node.inventory().devices()) faults.push_back(device.fault());
  EXPECT_THAT(faults, ElementsAre("", "Xid 79", "node n1 has it", "in use elsewhere",
                                  "a job has devices that the node no longer reports"));
}

TEST(ClientConversions, AJobOfManyAttemptsFitsIntoOneMessage) {
  ViewedJob job;
  job.attempts.resize(2000);
  for (AttemptRecord& attempt : job.attempts) attempt.log_tail.assign(20, std::string(1000, 'x'));
  job.attempts.back().notes = {"the newest"};
  const v1::Job full = ToProto(job.View(), JobDetail::kFull, TimePoint());
  EXPECT_EQ(full.attempts_size(), 2000);
  EXPECT_LT(full.ByteSizeLong(), 6u << 20);
  EXPECT_EQ(full.attempts(0).log_tail_size(), 0);
  EXPECT_EQ(full.attempts(1999).log_tail_size(), 20);
  EXPECT_EQ(full.attempts(1999).notes(0), "the newest");
}

class UsageOfQueues : public ::testing::Test {
 protected:
  UsageOfQueues() {
    tree.queues = {
        {.name = "research", .leaf = false}, {.name = "vision", .parent = 0}, {.name = "default"}};
    for (const char* queue : {"vision", "default", "gone"})
      for (const std::int64_t day : {kOlderDays, std::int64_t{100}, std::int64_t{101}})
        days[day][queue] = {.queue = queue,
                            .day = day,
                            .gpus = {.productive = 2'000'000, .lost = 500'000},
                            .slots = {.productive = 4'000'000}};
  }
  // "100 vision", ...
  std::vector<std::string> Rows(const v1::ShowUsageRequest& request) {
    v1::ShowUsageResponse response;
    const Status status = FillUsage(days, tree, request, may_see, &response);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<std::string> rows;
    for (const v1::QueueDay& row : response.days()) {
      rows.push_back(std::to_string(row.day()) + " " + row.queue());
      EXPECT_EQ(row.gpus().productive(), 2);
      EXPECT_EQ(row.gpus().lost(), 0.5);
      EXPECT_EQ(row.slots().productive(), 4);
    }
    return rows;
  }

  QueueTree tree;
  QueueDays days;
  std::function<bool(const QueueDayRecord&)> may_see = [](const auto&) { return true; };
};

TEST_F(UsageOfQueues, AreTheSumOfTheirUsersUnlessTheseAreAskedFor) {
  days.clear();
  for (const char* user : {"bob", "ada", ""})
    for (const char* queue : {"vision", "vision-2"}) {
      QueueDayRecord record{.queue = queue,
                            .day = 100,
                            .gpus = {.productive = 1'000'000},
                            .slots = {.lost = 2'000'000},
                            .user = user};
      days[100][KeyOf(record)] = record;
    }
  const auto rows = [this](const v1::ShowUsageRequest& request) {
    v1::ShowUsageResponse response;
    EXPECT_TRUE(FillUsage(days, tree, request, may_see, &response).ok());
    std::vector<std::string> texts;
    for (const v1::QueueDay& row : response.days())
      texts.push_back(row.queue() + " " + row.user() + " " +
                      std::to_string(static_cast<int>(row.gpus().productive())) + " " +
                      std::to_string(static_cast<int>(row.slots().lost())));
    return texts;
  };
  v1::ShowUsageRequest request;
  EXPECT_THAT(rows(request), ElementsAre("vision  3 6", "vision-2  3 6"));
  request.set_queue("vision");
  request.set_by_user(true);
  EXPECT_THAT(rows(request), ElementsAre("vision  1 2", "vision ada 1 2", "vision bob 1 2"));
  request.set_user("ada");
  EXPECT_THAT(rows(request), ElementsAre("vision ada 1 2"));
  request.set_by_user(false);
  EXPECT_THAT(rows(request), ElementsAre("vision  1 2"));
  request.set_user("nobody");
  EXPECT_THAT(rows(request), ElementsAre());
  request.clear_user();
  may_see = [](const QueueDayRecord& record) { return record.user == "bob"; };
  EXPECT_THAT(rows(request), ElementsAre("vision  1 2")) << "what one may not see is in no sum";
}

TEST_F(UsageOfQueues, AreByDayAndThenByQueueAndOlderDaysAreNone) {
  v1::ShowUsageRequest request;
  EXPECT_THAT(Rows(request), ElementsAre("100 default", "100 gone", "100 vision", "101 default",
                                         "101 gone", "101 vision"));
  request.set_since_day(101);
  EXPECT_EQ(Rows(request).size(), 3u);
  request.set_until_day(100);
  EXPECT_EQ(Rows(request).size(), 0u);
}

TEST_F(UsageOfQueues, AQueueTakesThoseBelowItAlongAndOneThatIsGoneHasItsDays) {
  v1::ShowUsageRequest request;
  request.set_queue("research");
  EXPECT_THAT(Rows(request), ElementsAre("100 vision", "101 vision"));
  request.set_queue("gone");
  EXPECT_THAT(Rows(request), ElementsAre("100 gone", "101 gone"));
  request.set_queue("visoin");
  v1::ShowUsageResponse response;
  const Status status = FillUsage(days, tree, request, may_see, &response);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("unknown queue 'visoin'; did you mean 'vision'?\n"
                                          "  next: muster queues show"));
}

}  // namespace
}  // namespace muster
