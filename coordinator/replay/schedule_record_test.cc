// Passes as messages: every field comes back, and what no scheduler could be given is refused.
// schedule_properties_test.cc compares the plans of random snapshots.

#include "coordinator/replay/schedule_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <limits>

#include "common/job_spec/job_times.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::ElementsAre;
using testing::HasSubstr;

// Every field has another value than its default.
struct Full {
  Full() {
    inventory.devices = {{.id = "GPU-CANARY",
                          .kind = "H100",
                          .memory_bytes = 80,
                          .numa_node = 1,
                          .link_domain = "a",
                          .fault = "CANARY",
                          .fake = true,
                          .shared = true},
                         {.id = "GPU-1"}};
    inventory.cpus = 64;
    inventory.memory_bytes = 1 << 30;
    inventory.labels = {{"pool", "a"}};
    inventory.topology = {.block = "b", .rack = "r", .switch_name = "s"};
    tree.queues.push_back(
        {.name = "q", .parent = 0, .guarantee = {1, 2}, .ceiling = {3, 4}, .weight = 2.5});
    tree.queues[0].leaf = false;
    snapshot.now = TimePoint(hours(5));
    snapshot.queues = &tree;
    snapshot.usage = {0.1, 1e300};
    snapshot.nodes = {{.name = NodeName{"n1"},
                       .inventory = &inventory,
                       .all = {.slots = 2, .devices = 3, .cpus = 64, .memory_bytes = 1 << 30},
                       .free = {.slots = -1, .devices = 2, .cpus = 1, .memory_bytes = 7},
                       .domain = "CANARY",
                       .usable_from = TimePoint(hours(6))},
                      {.name = NodeName{"n2"}, .inventory = &inventory}};
    snapshot.running = {
        {.job = JobId{"6e"},
         .queue = 1,
         .class_value = -7,
         .amounts = {1, 2},
         .ends = TimePoint(hours(7)),
         .parts = {{NodeName{"n1"}, {.slots = 1, .devices = 1, .cpus = 2, .memory_bytes = 3}}},
         .gives_way_to = JobId{"7f"},
         .victim_from = TimePoint(hours(2)),
         .placed = TimePoint(hours(1)),
         .nodes = 4,
         .least_nodes = 3,
         .node_amounts = {5, 6},
         .leaves_in = minutes(8),
         .cost = 9.5}};
    NodeDemand demand{.ranks = 2,
                      .devices = {.per_rank = 1, .kinds = {"H100"}, .min_memory_bytes = 40},
                      .cpus_per_rank = 3,
                      .memory_per_rank = 5};
    demand.labels = {{.key = "pool", .kind = LabelRule::Kind::kIn, .values = {"a", "b"}}};
    demand.topology = {.within = TopologyLevel::kRack, .required = false};
    snapshot.requests = {{.job = JobId{"7f"},
                          .nodes = 3,
                          .min_nodes = 2,
                          .spares = 1,
                          .demand = demand,
                          .queue = 1,
                          .class_value = -5,
                          .priority = 60,
                          .submit_order = 9,
                          .length = minutes(90),
                          .promise = Promise{TimePoint(hours(8)), {NodeName{"n1"}}, {3}},
                          .turn = TimePoint(hours(4)),
                          .collecting = {NodeName{"n2"}},
                          .exclude = {NodeName{"n3"}},
                          .former_nodes = {NodeName{"n1"}},
                          .preferred = {NodeName{"n4"}},
                          .held = {{NodeName{"n1"}, {.slots = 1, .devices = 2, .cpus = 3}, true}},
                          .domains = {"CANARY", "another", ""},
                          .place = "r",
                          .recovering = true},
                         {.job = JobId{"8c"}, .queue = 1}};
  }
  NodeInventory inventory;
  QueueTree tree = DefaultTree();
  SchedulerSnapshot snapshot;
};

// Which limits one may read, and not whose they are.
TEST(ScheduleRecord, UsersAreNumbers) {
  Full full;
  full.tree.queues.push_back({.name = "q/CANARY", .parent = 1, .ceiling = {3, 4, 2}});
  full.snapshot.requests[1].queue = 2;
  full.snapshot.running[0].amounts.jobs = 1;
  SchedulePlan plan;
  plan.waiting.push_back(
      {.job = JobId{"8c"},
       .reason = {
           .over_ceiling = "q/CANARY", .used = {1, 1, 2}, .ceiling = full.tree.queues[2].ceiling}});
  const v1::SchedulePass pass = ToProto(full.snapshot, plan, 17);
  EXPECT_EQ(pass.SerializeAsString().find("CANARY"), std::string::npos);
  EXPECT_EQ(pass.plan().waiting(0).reason(),
            "needs 1 node with 1 free slot; its owner has 2 of the 2 running jobs that one user "
            "may have in queue q");
  const Result<OwnedSnapshot> owned = FromProto(pass.snapshot());
  ASSERT_TRUE(owned.ok()) << owned.status().message();
  EXPECT_EQ(owned->snapshot.queues->queues[2].name, "q/3");
  EXPECT_EQ(owned->snapshot.queues->queues[2].ceiling, (Amounts{3, 4, 2}));
  EXPECT_EQ(owned->snapshot.running[0].amounts.jobs, 1);
  EXPECT_EQ(ToProto(owned->snapshot, plan, 17).SerializeAsString(), pass.SerializeAsString());
}

TEST(ScheduleRecord, EveryFieldComesBack) {
  Full full;
  full.snapshot.nodes[0].shared = {.slots = 2, .cpus = 3};
  full.snapshot.nodes[0].lent = {.slots = 1, .devices = 1};
  full.snapshot.requests[0].share_spares = full.snapshot.requests[0].preemptible = true;
  const v1::SchedulePass pass = ToProto(full.snapshot, {}, 17);
  EXPECT_EQ(pass.unix_ms(), 17);
  const Result<OwnedSnapshot> owned = FromProto(pass.snapshot());
  ASSERT_TRUE(owned.ok()) << owned.status().message();
  EXPECT_EQ(ToProto(owned->snapshot, {}, 17).SerializeAsString(), pass.SerializeAsString());
  const GangRequest& request = owned->snapshot.requests[0];
  EXPECT_EQ(request.demand, full.snapshot.requests[0].demand);
  EXPECT_EQ(request.promise, full.snapshot.requests[0].promise);
  EXPECT_EQ(request.length, minutes(90));
  EXPECT_EQ(owned->snapshot.nodes[0].domain, "0");
  EXPECT_EQ(owned->snapshot.nodes[1].domain, "");
  EXPECT_EQ(request.domains, (std::vector<std::string>{"0", "1", ""}));
  const RunningGang& gang = owned->snapshot.running[0];
  EXPECT_EQ(gang.job, JobId{"6e"});
  EXPECT_EQ(gang.class_value, -7);
  EXPECT_EQ(gang.gives_way_to, JobId{"7f"});
  EXPECT_EQ(gang.victim_from, TimePoint(hours(2)));
  EXPECT_EQ(gang.placed, TimePoint(hours(1)));
  EXPECT_EQ(gang.nodes, 4);
  EXPECT_EQ(gang.least_nodes, 3);
  EXPECT_EQ(gang.node_amounts, (Amounts{5, 6}));
  EXPECT_EQ(gang.leaves_in, minutes(8));
  EXPECT_EQ(gang.cost, 9.5);
  EXPECT_EQ(owned->snapshot.nodes[0].shared.cpus, 3);
  EXPECT_EQ(owned->snapshot.nodes[0].lent.devices, 1u);
  EXPECT_TRUE(request.held[0].lent && request.share_spares && request.preemptible);
  EXPECT_EQ(owned->snapshot.requests[1].turn, kNever);
  EXPECT_EQ(owned->snapshot.requests[1].length, kForever);
  EXPECT_EQ(owned->snapshot.nodes[1].usable_from, TimePoint::min());
  EXPECT_EQ(owned->snapshot.nodes[0].inventory, owned->snapshot.nodes[1].inventory)
      << "nodes of a kind share it";
  EXPECT_EQ(owned->snapshot.queues->queues[1].weight, 2.5);
  EXPECT_EQ(owned->snapshot.usage, full.snapshot.usage);
  EXPECT_EQ(pass.SerializeAsString().find("CANARY"), std::string::npos);
}

// A row for each field that may be wrong.
using Wrongs = std::vector<std::function<void(v1::ScheduleSnapshot&)>>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::min();
constexpr int kTooManyNodes = 16385;

const Wrongs kWrongQueuesAndNodes = {
    [](auto& s) { s.set_now(-1); },
    [](auto& s) { s.set_now(kLast); },
    [](auto& s) { s.mutable_queues(1)->set_parent(1); },
    [](auto& s) { s.mutable_queues(1)->set_parent(-2); },
    [](auto& s) { s.mutable_queues(1)->set_weight(0); },
    [](auto& s) { s.mutable_queues(1)->set_weight(kNan); },
    [](auto& s) { s.mutable_queues(1)->set_weight(kInfinity); },
    [](auto& s) { s.mutable_queues(1)->mutable_guarantee()->set_gpus(-1); },
    [](auto& s) { s.mutable_queues(1)->mutable_ceiling()->set_slots(-1); },
    [](auto& s) { s.clear_queues(); },
    [](auto& s) {
      while (s.queues_size() <= 1 << 18) s.add_queues()->CopyFrom(s.queues(1));
    },
    [](auto& s) {
      for (int parent = 0; parent < 8; ++parent) {
        s.add_queues()->CopyFrom(s.queues(1));
        s.mutable_queues(s.queues_size() - 1)->set_parent(parent + 1);
      }
    },
    [](auto& s) { s.set_usage(0, kNan); },
    [](auto& s) { s.set_usage(1, -1); },
    [](auto& s) { s.mutable_inventories(0)->set_cpus(-1); },
    [](auto& s) { s.mutable_nodes(0)->set_inventory(1); },
    [](auto& s) { s.mutable_nodes(0)->set_inventory(-1); },
    [](auto& s) { s.mutable_nodes(0)->set_name("n2"); },
    [](auto& s) { s.mutable_nodes(0)->mutable_all()->set_slots(4097); },
    [](auto& s) { s.mutable_nodes(0)->mutable_all()->set_cpus(INT_MAX); },
    [](auto& s) { s.mutable_nodes(0)->mutable_all()->set_devices(4); },
    [](auto& s) { s.mutable_nodes(0)->mutable_free()->set_slots(INT_MIN); },
    [](auto& s) { s.mutable_nodes(0)->mutable_free()->set_devices(4); },
    [](auto& s) { s.mutable_nodes(0)->set_usable_from(kFirst + 1); },
    [](auto& s) {
      for (int i = 0; i < kTooManyNodes; ++i) s.add_nodes()->set_name(std::to_string(i));
    },
    [](auto& s) {
      while (s.inventories(0).devices_size() <= 64) s.mutable_inventories(0)->add_devices();
    },
};
const Wrongs kWrongRequests = {
    [](auto& s) { s.mutable_requests(0)->set_job("8c"); },
    [](auto& s) { s.mutable_requests(0)->set_queue(2); },
    [](auto& s) { s.mutable_requests(0)->set_nodes(-1); },
    [](auto& s) { s.mutable_requests(0)->set_nodes(kTooManyNodes); },
    [](auto& s) { s.mutable_requests(0)->set_min_nodes(-1); },
    [](auto& s) { s.mutable_requests(0)->set_min_nodes(kTooManyNodes); },
    [](auto& s) { s.mutable_requests(0)->set_spares(-1); },
    [](auto& s) { s.mutable_requests(0)->set_spares(kTooManyNodes); },
    [](auto& s) { s.mutable_requests(0)->set_class_value(INT_MIN); },
    [](auto& s) { s.mutable_requests(0)->set_priority(101); },
    [](auto& s) { s.mutable_requests(0)->set_length(-1); },
    [](auto& s) { s.mutable_requests(0)->set_length(kLast - 1); },
    [](auto& s) { s.mutable_requests(0)->set_turn(kFirst); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_ranks(0); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_ranks(4097); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_devices_per_rank(-1); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_devices_per_rank(33); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_cpus_per_rank(-1); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_cpus_per_rank(1025); },
    [](auto& s) {
      s.mutable_requests(0)->mutable_demand()->set_memory_per_rank(std::uint64_t{1} << 51);
    },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_within(4); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->mutable_labels(0)->set_kind(4); },
    [](auto& s) { s.mutable_requests(0)->mutable_demand()->mutable_labels(0)->set_kind(-1); },
    [](auto& s) { s.mutable_requests(0)->mutable_promise()->clear_devices(); },
    [](auto& s) { s.mutable_requests(0)->mutable_promise()->set_start(kFirst); },
    [](auto& s) {
      v1::SchedulePromise& promise = *s.mutable_requests(0)->mutable_promise();
      promise.add_nodes("n1");
      promise.add_devices(3);
    },
    [](auto& s) { s.mutable_requests(0)->mutable_held(0)->mutable_parts()->set_slots(-1); },
    [](auto& s) { s.mutable_requests(0)->mutable_held(0)->mutable_parts()->set_cpus(INT_MAX); },
    [](auto& s) {
      for (int i = 0; i < 1000; ++i) {
        v1::ScheduleRequest& more = *s.add_requests();
        more.CopyFrom(s.requests(0));
        more.set_job(std::to_string(i));
        more.set_nodes(16384);
        more.mutable_demand()->set_ranks(64);
      }
    },
};
const Wrongs kWrongGangs = {
    [](auto& s) { s.mutable_running(0)->set_queue(-1); },
    [](auto& s) { s.mutable_running(0)->mutable_amounts()->set_gpus(-1); },
    [](auto& s) {
      s.mutable_running(0)->mutable_amounts()->set_slots(400'000'000);
      s.add_running()->CopyFrom(s.running(0));
    },
    [](auto& s) { s.mutable_running(0)->set_ends(kFirst); },
    [](auto& s) { s.mutable_running(0)->set_victim_from(kFirst); },
    [](auto& s) { s.mutable_running(0)->set_placed(kFirst); },
    [](auto& s) { s.mutable_running(0)->set_nodes(kTooManyNodes); },
    [](auto& s) { s.mutable_running(0)->set_least_nodes(-1); },
    [](auto& s) { s.mutable_running(0)->set_least_nodes(5); },
    [](auto& s) { s.mutable_running(0)->mutable_node_amounts()->set_gpus(65); },
    [](auto& s) { s.mutable_running(0)->mutable_node_amounts()->set_slots(-1); },
    [](auto& s) { s.mutable_running(0)->set_leaves_in(-1); },
    [](auto& s) { s.mutable_running(0)->set_leaves_in(kLast); },
    [](auto& s) { s.mutable_running(0)->set_cost(kNan); },
    [](auto& s) { s.mutable_running(0)->mutable_parts(0)->mutable_parts()->set_slots(-1); },
};

TEST(ScheduleRecord, WhatNoSchedulerCouldBeGivenIsRefused) {
  const Full full;
  const v1::ScheduleSnapshot sound = ToProto(full.snapshot, {}, 0).snapshot();
  for (const Wrongs* wrongs : {&kWrongQueuesAndNodes, &kWrongRequests, &kWrongGangs}) {
    for (const auto& wrong : *wrongs) {
      v1::ScheduleSnapshot snapshot = sound;
      wrong(snapshot);
      const auto read = FromProto(snapshot);
      ASSERT_FALSE(read.ok()) << "row " << &wrong - wrongs->data() << " of " << wrongs->size();
      EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
    }
  }
}

// Jobs of a century each on one node: the last of them that has a planned start is centuries ahead.
TEST(ScheduleRecord, PromisesAtTheEndOfTimeAreReplayed) {
  const NodeInventory inventory;
  const NodeParts slot{.slots = 1};
  SchedulerSnapshot snapshot{.now = TimePoint(hours(5))};
  snapshot.nodes = {
      {.name = NodeName{"n1"}, .inventory = &inventory, .all = slot, .free = {}, .domain = {}}};
  const Duration century = std::chrono::seconds(kMaxSpanSeconds) + minutes(5);
  snapshot.running = {{.job = JobId{"r"},
                       .amounts = {.slots = 1},
                       .ends = snapshot.now + century,
                       .parts = {{NodeName{"n1"}, slot}}}};
  for (int i = 0; i < 4; ++i)
    snapshot.requests.push_back({.job = JobId{"j" + std::to_string(i)},
                                 .submit_order = static_cast<std::uint64_t>(i),
                                 .length = i < 2 ? century : hours(24 * 365 * 80)});
  const SchedulePlan first = Plan(snapshot);
  ASSERT_EQ(first.waiting.size(), snapshot.requests.size());
  for (std::size_t i = 0; i < snapshot.requests.size(); ++i) {
    snapshot.requests[i].promise = first.waiting[i].promise;
    if (first.waiting[i].promise) snapshot.requests[i].turn = first.waiting[i].promise->start;
  }
  ASSERT_TRUE(snapshot.requests[1].promise);
  ASSERT_GT(snapshot.requests[1].promise->start, snapshot.now + 2 * (century - minutes(1)));
  const v1::SchedulePass pass = ToProto(snapshot, Plan(snapshot), 0);
  const Result<v1::SchedulePlan> again = Replan(pass);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->SerializeAsString(), pass.plan().SerializeAsString());
}

TEST(ScheduleRecord, DecisionsAreReadAsSentences) {
  SchedulePlan plan;
  plan.placements = {{.job = JobId{"7f"},
                      .nodes = {NodeName{"n1"}, NodeName{"n2"}},
                      .spares = {NodeName{"n3"}},
                      .node_devices = {3, 4},
                      .spare_devices = {1},
                      .lent = {NodeName{"n2"}}}};
  plan.waiting = {{.job = JobId{"8c"},
                   .promise = Promise{TimePoint(minutes(125)), {NodeName{"n1"}}, {1}},
                   .delayed = DelayCause::kClass,
                   .clears = {NodeName{"n4"}}}};
  plan.reclaims = {{.victim = JobId{"5d"},
                    .to_nodes = 2,
                    .gives_up = {NodeName{"n4"}, NodeName{"n5"}},
                    .claimant = JobId{"8c"},
                    .cause = ReclaimCause::kGuarantee,
                    .cost = 12.5},
                   {.victim = JobId{"4c"}, .claimant = JobId{"8c"}, .cost = 3}};
  plan.again_at = TimePoint(minutes(70));
  const std::int64_t now = TimePoint(minutes(60)).time_since_epoch().count();
  EXPECT_THAT(
      DecisionTexts(ToProto(plan), now),
      ElementsAre("7f starts on n1 [0 1], n2 [2], with spares n3 [0], lent n2",
                  "8c waits: needs 1 node with 1 free slot; no node is ready; starts in "
                  "1h 5m 0s at the latest on n1 [0]; delayed by class; waits for lent n4",
                  "5d gives way to 8c (guarantee), at a cost of 12.5 rank-seconds, and goes "
                  "on with 2 nodes, without n4, n5",
                  "4c gives way to 8c (class), at a cost of 3 rank-seconds",
                  "a gang may give way in 0h 10m 0s"));
}

TEST(ScheduleRecord, DecisionsToTheNanosecondTellPlansApart) {
  SchedulePlan plan;
  plan.waiting = {{.job = JobId{"8c"}, .promise = Promise{TimePoint(minutes(2)), {}, {}}}};
  SchedulePlan later = plan;
  later.waiting[0].promise->start += std::chrono::nanoseconds(1);
  EXPECT_EQ(DecisionTexts(ToProto(plan), 0), DecisionTexts(ToProto(later), 0));
  EXPECT_THAT(DecisionTexts(ToProto(later), 0, Times::kNanoseconds),
              ElementsAre(HasSubstr("starts in 0h 2m 0s 1ns at the latest")));
  EXPECT_NE(DecisionTexts(ToProto(plan), 0, Times::kNanoseconds),
            DecisionTexts(ToProto(later), 0, Times::kNanoseconds));
}

}  // namespace
}  // namespace muster
