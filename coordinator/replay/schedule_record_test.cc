// Passes as messages: every field comes back, and what no scheduler could be given is refused.
// schedule_properties_test.cc compares the plans of random snapshots.

#include "coordinator/replay/schedule_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

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
                       .domain = "d",
                       .usable_from = TimePoint(hours(6))},
                      {.name = NodeName{"n2"}, .inventory = &inventory}};
    snapshot.running = {{.queue = 1,
                         .amounts = {1, 2},
                         .ends = TimePoint(hours(7)),
                         .parts = {{NodeName{"n1"}, {.slots = 1, .devices = 1}}}}};
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
                          .held = {{NodeName{"n1"}, {.slots = 1}}},
                          .domains = {"d"},
                          .place = "r",
                          .recovering = true},
                         {.job = JobId{"8c"}, .queue = 1}};
  }
  NodeInventory inventory;
  QueueTree tree = DefaultTree();
  SchedulerSnapshot snapshot;
};

TEST(ScheduleRecord, EveryFieldComesBack) {
  const Full full;
  const v1::SchedulePass pass = ToProto(full.snapshot, {}, 17);
  EXPECT_EQ(pass.unix_ms(), 17);
  const Result<OwnedSnapshot> owned = FromProto(pass.snapshot());
  ASSERT_TRUE(owned.ok()) << owned.status().message();
  EXPECT_EQ(ToProto(owned->snapshot, {}, 17).SerializeAsString(), pass.SerializeAsString());
  const GangRequest& request = owned->snapshot.requests[0];
  EXPECT_EQ(request.demand, full.snapshot.requests[0].demand);
  EXPECT_EQ(request.promise, full.snapshot.requests[0].promise);
  EXPECT_EQ(request.length, minutes(90));
  EXPECT_EQ(owned->snapshot.requests[1].turn, kNever);
  EXPECT_EQ(owned->snapshot.requests[1].length, kForever);
  EXPECT_EQ(owned->snapshot.nodes[1].usable_from, TimePoint::min());
  EXPECT_EQ(owned->snapshot.nodes[0].inventory, owned->snapshot.nodes[1].inventory)
      << "nodes of a kind share it";
  EXPECT_EQ(owned->snapshot.queues->queues[1].weight, 2.5);
  EXPECT_EQ(owned->snapshot.usage, full.snapshot.usage);
  EXPECT_EQ(pass.SerializeAsString().find("CANARY"), std::string::npos);
}

TEST(ScheduleRecord, WhatNoSchedulerCouldBeGivenIsRefused) {
  const Full full;
  const v1::ScheduleSnapshot sound = ToProto(full.snapshot, {}, 0).snapshot();
  const std::vector<std::function<void(v1::ScheduleSnapshot&)>> wrongs = {
      [](auto& s) { s.mutable_queues(1)->set_parent(1); },
      [](auto& s) { s.mutable_queues(1)->set_weight(0); },
      [](auto& s) { s.clear_queues(); },
      [](auto& s) { s.mutable_nodes(0)->set_inventory(1); },
      [](auto& s) { s.mutable_nodes(0)->set_name("n2"); },
      [](auto& s) { s.mutable_requests(0)->set_queue(2); },
      [](auto& s) { s.mutable_requests(0)->mutable_demand()->set_ranks(0); },
      [](auto& s) { s.mutable_requests(0)->mutable_promise()->clear_devices(); },
      [](auto& s) { s.mutable_running(0)->set_queue(-1); },
      [](auto& s) {
        while (s.inventories(0).devices_size() <= 64) s.mutable_inventories(0)->add_devices();
      },
  };
  for (const auto& wrong : wrongs) {
    v1::ScheduleSnapshot snapshot = sound;
    wrong(snapshot);
    const auto read = FromProto(snapshot);
    ASSERT_FALSE(read.ok()) << &wrong - wrongs.data();
    EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
  }
}

TEST(ScheduleRecord, DecisionsAreReadAsSentences) {
  SchedulePlan plan;
  plan.placements = {{.job = JobId{"7f"},
                      .nodes = {NodeName{"n1"}, NodeName{"n2"}},
                      .spares = {NodeName{"n3"}},
                      .node_devices = {3, 4},
                      .spare_devices = {1}}};
  plan.waiting = {{.job = JobId{"8c"},
                   .promise = Promise{TimePoint(minutes(125)), {NodeName{"n1"}}, {1}},
                   .delayed = DelayCause::kClass}};
  const std::int64_t now = TimePoint(minutes(60)).time_since_epoch().count();
  EXPECT_THAT(DecisionTexts(ToProto(plan), now),
              ElementsAre("7f starts on n1 [0 1], n2 [2], with spares n3 [0]",
                          "8c waits: needs 1 node with 1 free slot; no node is ready; starts in "
                          "1h 5m 0s at the latest on n1 [0]; delayed by class"));
}

}  // namespace
}  // namespace muster
