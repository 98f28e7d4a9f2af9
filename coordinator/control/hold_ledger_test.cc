#include "coordinator/control/hold_ledger.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const NodeName kN1{"n1"};
const NodeName kN2{"n2"};
const JobId kJob{"j1"};
const JobId kOther{"j2"};

TEST(HoldLedgerTest, CountsTheHoldsOfAllJobsOnANode) {
  HoldLedger ledger;
  ledger.Take(kN1, kJob, 1, {.slots = 2});
  ledger.Take(kN2, kJob, 1, {.slots = 2});
  ledger.Take(kN1, kOther, 4, {.slots = 1});
  EXPECT_EQ(ledger.UsedSlots(kN1), 3);
  EXPECT_EQ(ledger.UsedSlots(kN2), 2);
  EXPECT_EQ(ledger.UsedSlots(NodeName{"n3"}), 0);
}

TEST(HoldLedgerTest, AJobThatHasQuiescedWithoutARestHoldsANodeNoMore) {
  HoldLedger ledger;
  ledger.Take(kN1, kJob, 1, {.slots = 2});
  ledger.Orphan(kN1, kOther, 4, {.slots = 1});
  EXPECT_EQ(ledger.Holders(kN1), (std::vector{kJob, kOther}));
  ledger.Quiesce(kN1, kJob, 0);
  EXPECT_EQ(ledger.Holders(kN1), std::vector{kOther});
  EXPECT_TRUE(ledger.Holders(kN2).empty());
}

TEST(HoldLedgerTest, WhatSurvivesAGangIsParkedAndTheRestIsGone) {
  HoldLedger ledger;
  ledger.Take(kN1, kJob, 1, {.slots = 2});
  ledger.Take(kN2, kJob, 1, {.slots = 2});
  ledger.Quiesce(kN1, kJob, 1);
  ledger.Quiesce(kN2, kJob, 0);
  EXPECT_TRUE(ledger.Parked(kJob).empty()) << "the gang has not ended yet";
  ledger.ParkGang(kJob);
  ASSERT_EQ(ledger.Parked(kJob).size(), 1u);
  EXPECT_EQ(ledger.Parked(kJob).at(kN1).resources.slots, 1);
  EXPECT_EQ(ledger.Find(kN2, kJob), nullptr);
}

TEST(HoldLedgerTest, TheNextGangTakesOverWhatIsParkedAndIsCountedOnce) {
  HoldLedger ledger;
  ledger.Take(kN1, kJob, 1, {.slots = 2});
  ledger.ParkGang(kJob);
  ledger.Take(kN1, kJob, 2, {.slots = 2});
  EXPECT_EQ(ledger.UsedSlots(kN1), 2);
  EXPECT_TRUE(ledger.Parked(kJob).empty());
}

TEST(HoldLedgerTest, OnlyAProofOfTheSameOrANewerGenerationGivesBackWhatIsLeftBehind) {
  HoldLedger ledger;
  ledger.Orphan(kN1, kJob, 3, {.slots = 2});
  EXPECT_FALSE(ledger.Prove(kN1, kJob, 2));
  EXPECT_FALSE(ledger.Prove(kN1, kOther, 3));
  ledger.ParkGang(kJob);
  EXPECT_EQ(ledger.UsedSlots(kN1), 2);
  EXPECT_TRUE(ledger.Prove(kN1, kJob, 3));
  EXPECT_EQ(ledger.UsedSlots(kN1), 0);
  EXPECT_FALSE(ledger.Prove(kN1, kJob, 3)) << "a replay gives nothing back";
}

TEST(HoldLedgerTest, NoProofTakesALiveGangsSlots) {
  HoldLedger ledger;
  ledger.Orphan(kN1, kJob, 1, {.slots = 2});
  ledger.Take(kN1, kJob, 2, {.slots = 2});
  EXPECT_FALSE(ledger.Prove(kN1, kJob, 2));
  ledger.ProveTerminated(kN1, kJob);
  ledger.ProveAllGoneBut(kN1, {});
  ledger.Reboot(kN1);
  EXPECT_EQ(ledger.UsedSlots(kN1), 2);
}

TEST(HoldLedgerTest, AHelloProvesGoneWhatItDoesNotName) {
  HoldLedger ledger;
  ledger.Orphan(kN1, kJob, 1, {.slots = 2});
  ledger.Orphan(kN1, kOther, 1, {.slots = 1});
  ledger.ProveAllGoneBut(kN1, {kOther});
  EXPECT_EQ(ledger.UsedSlots(kN1), 1);
  ledger.Reboot(kN1);
  EXPECT_EQ(ledger.UsedSlots(kN1), 0);
}

// A member that was given up for lost does not become parked when its gang ends.
TEST(HoldLedgerTest, WhatWasLeftBehindStaysSoWhenTheGangEnds) {
  HoldLedger ledger;
  ledger.Take(kN1, kJob, 1, {.slots = 2});
  ledger.Take(kN2, kJob, 1, {.slots = 2});
  ledger.Orphan(kN2, kJob, 1, {.slots = 2});
  ledger.Quiesce(kN2, kJob, 0);
  ledger.ParkGang(kJob);
  EXPECT_EQ(ledger.Parked(kJob).count(kN2), 0u);
  EXPECT_EQ(ledger.UsedSlots(kN2), 2);
}

TEST(HoldLedgerTest, DevicesProcessorsAndMemoryStayHeldUntilTheLastSlotIsFree) {
  HoldLedger ledger;
  const HeldResources all{.slots = 2, .devices = {"g0", "g1"}, .cpus = 8, .memory_bytes = 64};
  ledger.Take(kN1, kJob, 1, all);
  ledger.Take(kN1, kOther, 1, {.slots = 1, .devices = {"g2"}, .cpus = 1});
  ledger.Quiesce(kN1, kJob, 1);
  EXPECT_EQ(
      ledger.UsedOf(kN1).own,
      (HeldResources{.slots = 2, .devices = {"g0", "g1", "g2"}, .cpus = 9, .memory_bytes = 64}));
  ledger.Quiesce(kN1, kJob, 0);
  EXPECT_EQ(ledger.UsedOf(kN1).own, (HeldResources{.slots = 1, .devices = {"g2"}, .cpus = 1}));
}

// They were free for other jobs from the moment on when the next gang was placed beside them.
TEST(HoldLedgerTest, DevicesOfOlderGenerationsStayHeldUntilTheNodeIsPrepared) {
  HoldLedger ledger;
  ledger.Take(kN1, kJob, 1, {.slots = 2, .devices = {"g0", "g1"}});
  ledger.Orphan(kN1, kJob, 1, {.slots = 2, .devices = {"g0", "g1"}});
  ledger.Take(kN1, kJob, 2, {.slots = 2, .devices = {"g1", "g2"}});
  EXPECT_EQ(ledger.UsedOf(kN1).own.devices, (std::vector<std::string>{"g1", "g2", "g0"}));
  ledger.Take(kN1, kJob, 3, {.slots = 2, .devices = {"g3", "g4"}});
  EXPECT_EQ(ledger.UsedOf(kN1).own.devices,
            (std::vector<std::string>{"g3", "g4", "g1", "g2", "g0"}));
  ledger.Orphan(kN1, kJob, 3, {.slots = 2, .devices = {"g3", "g4"}});
  EXPECT_EQ(ledger.UsedOf(kN1).own.devices.size(), 5u) << "it never was prepared";
  ledger.Take(kN1, kJob, 4, {.slots = 2, .devices = {"g3", "g4"}});
  ledger.Prepared(kN1, kJob);
  EXPECT_EQ(ledger.UsedOf(kN1).own.devices, (std::vector<std::string>{"g3", "g4"}));
}

TEST(HoldLedgerTest, OfSharedSparesTheLargestIsHeldAndWhatIsLentIsAPartOfIt) {
  HoldLedger ledger;
  ledger.Take(kN1, JobId{"a"}, 1, {.slots = 2, .cpus = 8, .use = HoldUse::kShared});
  ledger.Take(kN1, JobId{"b"}, 1, {.slots = 3, .cpus = 4, .use = HoldUse::kShared});
  ledger.Take(kN1, JobId{"c"}, 1, {.slots = 1, .cpus = 1, .use = HoldUse::kLent});
  ledger.Take(kN1, JobId{"d"}, 1, {.slots = 1, .cpus = 2});
  const HoldLedger::Used used = ledger.UsedOf(kN1);
  EXPECT_EQ(used.shared, (HeldResources{.slots = 3, .cpus = 8}));
  EXPECT_EQ(used.lent, (HeldResources{.slots = 1, .cpus = 1}));
  EXPECT_EQ(used.own, (HeldResources{.slots = 1, .cpus = 2}));
  EXPECT_EQ(ledger.UsedSlots(kN1), 4);
  EXPECT_EQ(ledger.BusySlots(kN1), 2) << "preemptible jobs may have what is shared";
}

TEST(HoldLedgerTest, NoProcessHasADeviceOfASharedSpare) {
  HoldLedger ledger;
  const JobId job{"a"};
  ledger.Take(kN1, job, 1, {.slots = 1, .devices = {"g0"}, .use = HoldUse::kShared});
  ledger.Take(kN1, job, 2, {.slots = 1, .devices = {"g1"}});
  EXPECT_EQ(ledger.UsedOf(kN1).own.devices, std::vector<std::string>{"g1"});
}

}  // namespace
}  // namespace muster
