#include "coordinator/control/slot_ledger.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const NodeName kN1{"n1"};
const NodeName kN2{"n2"};
const JobId kJob{"j1"};
const JobId kOther{"j2"};

TEST(SlotLedgerTest, CountsTheHoldsOfAllJobsOnANode) {
  SlotLedger ledger;
  ledger.Take(kN1, kJob, 1, 2);
  ledger.Take(kN2, kJob, 1, 2);
  ledger.Take(kN1, kOther, 4, 1);
  EXPECT_EQ(ledger.Used(kN1), 3);
  EXPECT_EQ(ledger.Used(kN2), 2);
  EXPECT_EQ(ledger.Used(NodeName{"n3"}), 0);
}

TEST(SlotLedgerTest, AJobThatHasQuiescedWithoutARestHoldsANodeNoMore) {
  SlotLedger ledger;
  ledger.Take(kN1, kJob, 1, 2);
  ledger.Orphan(kN1, kOther, 4, 1);
  EXPECT_EQ(ledger.Holders(kN1), (std::vector{kJob, kOther}));
  ledger.Quiesce(kN1, kJob, 0);
  EXPECT_EQ(ledger.Holders(kN1), std::vector{kOther});
  EXPECT_TRUE(ledger.Holders(kN2).empty());
}

TEST(SlotLedgerTest, WhatSurvivesAGangIsParkedAndTheRestIsGone) {
  SlotLedger ledger;
  ledger.Take(kN1, kJob, 1, 2);
  ledger.Take(kN2, kJob, 1, 2);
  ledger.Quiesce(kN1, kJob, 1);
  ledger.Quiesce(kN2, kJob, 0);
  EXPECT_TRUE(ledger.Parked(kJob).empty()) << "the gang has not ended yet";
  ledger.ParkGang(kJob);
  ASSERT_EQ(ledger.Parked(kJob).size(), 1u);
  EXPECT_EQ(ledger.Parked(kJob).at(kN1).slots, 1);
  EXPECT_EQ(ledger.Find(kN2, kJob), nullptr);
}

TEST(SlotLedgerTest, TheNextGangTakesOverWhatIsParkedAndIsCountedOnce) {
  SlotLedger ledger;
  ledger.Take(kN1, kJob, 1, 2);
  ledger.ParkGang(kJob);
  ledger.Take(kN1, kJob, 2, 2);
  EXPECT_EQ(ledger.Used(kN1), 2);
  EXPECT_TRUE(ledger.Parked(kJob).empty());
}

TEST(SlotLedgerTest, OnlyAProofOfTheSameOrANewerGenerationGivesBackWhatIsLeftBehind) {
  SlotLedger ledger;
  ledger.Orphan(kN1, kJob, 3, 2);
  EXPECT_FALSE(ledger.Prove(kN1, kJob, 2));
  EXPECT_FALSE(ledger.Prove(kN1, kOther, 3));
  ledger.ParkGang(kJob);
  EXPECT_EQ(ledger.Used(kN1), 2);
  EXPECT_TRUE(ledger.Prove(kN1, kJob, 3));
  EXPECT_EQ(ledger.Used(kN1), 0);
  EXPECT_FALSE(ledger.Prove(kN1, kJob, 3)) << "a replay gives nothing back";
}

TEST(SlotLedgerTest, NoProofTakesALiveGangsSlots) {
  SlotLedger ledger;
  ledger.Orphan(kN1, kJob, 1, 2);
  ledger.Take(kN1, kJob, 2, 2);
  EXPECT_FALSE(ledger.Prove(kN1, kJob, 2));
  ledger.ProveTerminated(kN1, kJob);
  ledger.ProveAllGoneBut(kN1, {});
  ledger.Reboot(kN1);
  EXPECT_EQ(ledger.Used(kN1), 2);
}

TEST(SlotLedgerTest, AHelloProvesGoneWhatItDoesNotName) {
  SlotLedger ledger;
  ledger.Orphan(kN1, kJob, 1, 2);
  ledger.Orphan(kN1, kOther, 1, 1);
  ledger.ProveAllGoneBut(kN1, {kOther});
  EXPECT_EQ(ledger.Used(kN1), 1);
  ledger.Reboot(kN1);
  EXPECT_EQ(ledger.Used(kN1), 0);
}

// A member that was given up for lost does not become parked when its gang ends.
TEST(SlotLedgerTest, WhatWasLeftBehindStaysSoWhenTheGangEnds) {
  SlotLedger ledger;
  ledger.Take(kN1, kJob, 1, 2);
  ledger.Take(kN2, kJob, 1, 2);
  ledger.Orphan(kN2, kJob, 1, 2);
  ledger.Quiesce(kN2, kJob, 0);
  ledger.ParkGang(kJob);
  EXPECT_EQ(ledger.Parked(kJob).count(kN2), 0u);
  EXPECT_EQ(ledger.Used(kN2), 2);
}

}  // namespace
}  // namespace muster
