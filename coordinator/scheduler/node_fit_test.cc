#include "coordinator/scheduler/node_fit.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace muster {
namespace {

// Devices of two link domains of four.
NodeInventory TwoDomains() {
  NodeInventory inventory;
  for (int i = 0; i < 8; ++i)
    inventory.devices.push_back({.id = "GPU-" + std::to_string(i),
                                 .kind = i < 4 ? "NVIDIA A100" : "NVIDIA H100",
                                 .memory_bytes = 80'000'000'000,
                                 .link_domain = i < 4 ? "a" : "b"});
  return inventory;
}

Lack LackIn(const NodeDemand& demand, const NodeInventory& inventory, const NodeParts& parts) {
  return LackOf(demand, inventory, Match(demand, inventory), parts);
}

TEST(LackOf, NamesTheFirstConditionThatIsNotMet) {
  const NodeInventory inventory = [] {
    NodeInventory made = TwoDomains();
    made.cpus = 16;
    made.memory_bytes = 100;
    made.labels = {{"pool", "a"}};
    return made;
  }();
  const NodeParts all{.slots = 8, .devices = 0xff, .cpus = 16, .memory_bytes = 100};
  NodeDemand demand{.ranks = 4, .devices = {.per_rank = 1}, .cpus_per_rank = 4};
  demand.memory_per_rank = 25;
  EXPECT_EQ(LackIn(demand, inventory, all), Lack::kNothing);

  NodeDemand wants = demand;
  wants.labels = {{"pool", LabelRule::Kind::kIn, {"b"}}};
  EXPECT_EQ(LackIn(wants, inventory, all), Lack::kLabels);
  wants = demand;
  wants.topology = {.within = TopologyLevel::kRack};
  EXPECT_EQ(LackIn(wants, inventory, all), Lack::kPlace) << "its rack is not known";
  wants.topology.required = false;
  EXPECT_EQ(LackIn(wants, inventory, all), Lack::kNothing);
  wants = demand;
  wants.devices.kinds = {"H100"};
  EXPECT_EQ(LackIn(wants, inventory, all), Lack::kNothing);
  NodeParts few = all;
  few.devices = 0x7f;
  EXPECT_EQ(LackIn(wants, inventory, few), Lack::kDeviceKind) << "three H100 are left";
  few.devices = 0x07;
  EXPECT_EQ(LackIn(wants, inventory, few), Lack::kDevices);
  wants = demand;
  wants.devices.min_memory_bytes = 80'000'000'001;
  EXPECT_EQ(LackIn(wants, inventory, all), Lack::kDeviceKind);
  few = all;
  few.slots = 3;
  EXPECT_EQ(LackIn(demand, inventory, few), Lack::kSlots);
  few = all;
  few.cpus = 15;
  EXPECT_EQ(LackIn(demand, inventory, few), Lack::kCpus);
  few = all;
  few.memory_bytes = 99;
  EXPECT_EQ(LackIn(demand, inventory, few), Lack::kMemory);
}

TEST(LackOf, WhatANodeDoesNotReportIsNotCounted) {
  const NodeDemand demand{.ranks = 1, .cpus_per_rank = 64, .memory_per_rank = 1'000'000'000'000};
  EXPECT_EQ(LackIn(demand, NodeInventory{}, {.slots = 1}), Lack::kNothing);
}

TEST(ChooseDevices, StaysWithinOneLinkDomainAndLeavesLargeGapsWhole) {
  const NodeInventory inventory = TwoDomains();
  EXPECT_EQ(ChooseDevices(2, inventory, 0xff, 0), 0x03u);
  EXPECT_EQ(ChooseDevices(2, inventory, 0xf3, 0), 0x03u) << "the smaller gap";
  EXPECT_EQ(ChooseDevices(2, inventory, 0x31, 0), 0x30u) << "one domain rather than two";
  EXPECT_EQ(ChooseDevices(4, inventory, 0xf7, 0), 0xf0u);
  EXPECT_EQ(ChooseDevices(6, inventory, 0xff, 0), 0x3fu);
}

TEST(ChooseDevices, KeepsWhatTheJobHasThere) {
  const NodeInventory inventory = TwoDomains();
  EXPECT_EQ(ChooseDevices(2, inventory, 0xff, 0xc0), 0xc0u);
  EXPECT_EQ(ChooseDevices(2, inventory, 0xff, 0x80), 0x90u) << "next to the one that it has";
  EXPECT_EQ(ChooseDevices(2, inventory, 0x7f, 0x80), 0x30u) << "the one that it had is gone";
}

TEST(ChooseDevices, TakesAsManyAsAreWantedOfThoseThatThereAre) {
  std::mt19937 random(7);
  const NodeInventory inventory = TwoDomains();
  for (int round = 0; round < 2000; ++round) {
    const DeviceMask among = random() & 0xff;
    const DeviceMask preferred = random() & 0xff;
    const int count = static_cast<int>(random() % (std::popcount(among) + 1));
    const DeviceMask chosen = ChooseDevices(count, inventory, among, preferred);
    ASSERT_EQ(std::popcount(chosen), count);
    ASSERT_EQ(chosen & ~among, 0u);
    const int kept = std::min(count, std::popcount(among & preferred));
    ASSERT_EQ(std::popcount(chosen & preferred) >= kept, true);
  }
}

}  // namespace
}  // namespace muster
