#include "cli/upgrade/upgrade_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "cli/upgrade/build.h"

namespace muster::upgrade {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Build With(const std::string& version, std::map<std::string, VersionRange> changed = {}) {
  Build build = OwnBuild();
  build.version = version;
  for (const auto& [key, range] : changed) build.table[key] = range;
  return build;
}

// Two nodes, of which a job has both, as 0.2.0.
ClusterFacts Cluster(const Build& build = With("0.2.0")) {
  return {.store = "sqlite",
          .coordinators = {{.address = "10.0.0.1:7070", .leads = true, .build = build}},
          .workers = {{"n1", build}, {"n2", build}},
          .jobs = {{.id = "7f3a",
                    .name = "llama",
                    .nodes = {"n1", "n2"},
                    .has_snapshot = true,
                    .checkpoint_step = 50}}};
}

PlannedJob JobOf(const UpgradePlan& plan) {
  EXPECT_EQ(plan.jobs.size(), 1u);
  return plan.jobs.at(0);
}

// The job's action, and from where it is restarted, under a new build that differs in one row.
std::string Under(const std::string& key, VersionRange range,
                  const ClusterFacts& facts = Cluster()) {
  const PlannedJob job = JobOf(PlanUpgrade(With("0.3.0", {{key, range}}), facts));
  EXPECT_EQ(job.why.empty(), job.action == JobAction::kAdopt) << key;
  return Name(job.action) + (job.from.empty() ? "" : " " + job.from);
}

// Around the number of a row: the new build still reads it, and writes the next; it reads the next
// alone; it knows only the one before.
struct Windows {
  VersionRange both, newer, older;
};
Windows Around(const std::string& key) {
  const int now = OwnBuild().table.at(key).max;
  return {{now, now + 1}, {now + 1, now + 1}, {now - 1, now - 1}};
}

TEST(UpgradePlan, WithinTheWindowOfEveryRowRanksGoOn) {
  std::map<std::string, VersionRange> raised;
  for (const VersionRow& row : kVersionTable) {
    const std::string key(row.key);
    EXPECT_EQ(Under(key, Around(key).both), "adopted") << key;
    raised[key] = Around(key).both;
  }
  const UpgradePlan plan = PlanUpgrade(With("0.3.0", raised), Cluster());
  EXPECT_EQ(JobOf(plan).action, JobAction::kAdopt);
  EXPECT_TRUE(plan.possible());
}

TEST(UpgradePlan, OutsideTheWindowOfARowItSaysWhatTheJobGoesOnFrom) {
  const std::map<std::string, std::string> expected = {
      {version_key::kProtocol, "restarted checkpoint"},
      {version_key::kStoreSchema, "refused"},
      {version_key::kJournal, "adopted"},  // this cluster's store is in SQLite
      {version_key::kEtcd, "adopted"},
      {version_key::kGuardianPackets, "restarted checkpoint"},
      {version_key::kLauncherPackets, "adopted"},
      {version_key::kTrainerMessages, "restarted snapshot"},
      {version_key::kProgressPage, "restarted snapshot"},
      {version_key::kTrainingFigures, "adopted"},
      {version_key::kSnapshot, "adopted"},
      {version_key::kShard, "refused"},
      {version_key::kManifest, "refused"}};
  for (const VersionRow& row : kVersionTable) {
    const std::string key(row.key);
    ASSERT_TRUE(expected.contains(key)) << "say here what follows of " << key;
    EXPECT_EQ(Under(key, Around(key).newer), expected.at(key)) << key;
    EXPECT_EQ(Under(key, Around(key).older), expected.at(key)) << key;
  }
}

// What the job has, and what is outside: all combinations, against the rule in words.
TEST(UpgradePlan, AJobLosesAsLittleAsItCanInEachCombination) {
  const auto next = [](const char* key) { return Around(key).newer; };
  for (int bits = 0; bits < 256; ++bits) {
    const auto on = [bits](int bit) { return (bits >> bit & 1) != 0; };
    const bool trains = on(0), has_snapshot = on(1), has_checkpoint = on(2);
    const bool guardian = on(3), messages = on(4), page = on(5), snapshot = on(6), shard = on(7);
    std::map<std::string, VersionRange> changed;
    if (guardian) changed[version_key::kGuardianPackets] = next(version_key::kGuardianPackets);
    if (messages) changed[version_key::kTrainerMessages] = next(version_key::kTrainerMessages);
    if (page) changed[version_key::kProgressPage] = next(version_key::kProgressPage);
    if (snapshot) changed[version_key::kSnapshot] = next(version_key::kSnapshot);
    if (shard) changed[version_key::kShard] = next(version_key::kShard);
    ClusterFacts facts = Cluster();
    facts.jobs[0].trains = trains;
    facts.jobs[0].has_snapshot = has_snapshot;
    facts.jobs[0].checkpoint_step = has_checkpoint ? 50 : 0;
    std::string expected = "adopted";
    if (!trains && guardian) expected = "restarted start";
    if (trains && (guardian || messages || page)) {
      expected = "restarted start";
      if (has_checkpoint) expected = "restarted checkpoint";
      if (has_snapshot && !guardian && !snapshot) expected = "restarted snapshot";
    }
    if (trains && has_checkpoint && shard) expected = "refused";
    const PlannedJob job = JobOf(PlanUpgrade(With("0.3.0", changed), facts));
    EXPECT_EQ(Name(job.action) + (job.from.empty() ? "" : " " + job.from), expected) << bits;
  }
}

TEST(UpgradePlan, ADowngradeOfEachStoreIsRefusedWithBothNumbersAndTheWayOut) {
  for (const auto& [store, key] :
       {std::tuple("sqlite", version_key::kStoreSchema),
        std::tuple("journal", version_key::kJournal), std::tuple("etcd", version_key::kEtcd)}) {
    ClusterFacts facts = Cluster(With("0.3.0", {{key, {5, 8}}}));
    facts.store = store;
    const UpgradePlan plan = PlanUpgrade(With("0.2.0", {{key, {4, 7}}}), facts);
    EXPECT_FALSE(plan.possible());
    EXPECT_EQ(JobOf(plan).action, JobAction::kRefuse);
    ASSERT_EQ(plan.parts.back().kind, "coordinator") << "workers first on the way back";
    EXPECT_EQ(plan.parts.back().action, PartAction::kRefuse);
    const std::string why = plan.parts.back().why.at(0);
    EXPECT_THAT(why, HasSubstr("8 is outside 4 to 7, which 0.2.0 reads"));
    EXPECT_THAT(why, HasSubstr("restore a back-up that a version with"));
    EXPECT_EQ(why.find("state.db.schema-NUMBER") != std::string::npos,
              store == std::string("sqlite"))
        << why;
  }
}

TEST(UpgradePlan, AStoreTooOldForTheNewVersionNeedsOneBetween) {
  const UpgradePlan plan =
      PlanUpgrade(With("0.9.0", {{version_key::kStoreSchema, {8, 9}}}), Cluster());
  EXPECT_FALSE(plan.possible());
  EXPECT_THAT(plan.parts.at(0).why.at(0), HasSubstr("upgrade to a version between the two first"));
}

TEST(UpgradePlan, ACoordinatorIsNeverOlderThanItsWorkers) {
  const auto kinds = [](const UpgradePlan& plan) {
    std::vector<std::string> kinds;
    for (const PlannedPart& part : plan.parts) kinds.push_back(part.kind + " " + part.name);
    return kinds;
  };
  ClusterFacts facts = Cluster();
  facts.coordinators.insert(facts.coordinators.begin(),
                            {.address = "10.0.0.2:7070", .build = With("0.2.0")});
  facts.coordinators.push_back({.address = "10.0.0.3:7070", .build = With("0.2.0")});
  EXPECT_THAT(kinds(PlanUpgrade(With("0.3.0"), facts)),
              ElementsAre("coordinator 10.0.0.2:7070", "coordinator 10.0.0.3:7070",
                          "coordinator 10.0.0.1:7070", "worker n1", "worker n2"))
      << "the leader last of them: the lead changes once";
  EXPECT_THAT(kinds(PlanUpgrade(With("0.1.9"), facts)),
              ElementsAre("worker n1", "worker n2", "coordinator 10.0.0.2:7070",
                          "coordinator 10.0.0.3:7070", "coordinator 10.0.0.1:7070"));
}

TEST(UpgradePlan, WhatHasTheNewVersionIsKept) {
  const Build to = With("0.3.0", {{version_key::kGuardianPackets, {2, 2}}});
  ClusterFacts facts = Cluster();
  facts.coordinators[0].build = facts.workers[0].build = to;
  facts.jobs[0].nodes = {"n1"};
  const UpgradePlan plan = PlanUpgrade(to, facts);
  EXPECT_EQ(plan.parts.at(0).action, PartAction::kKeep);
  EXPECT_EQ(plan.parts.at(1).action, PartAction::kKeep);
  EXPECT_EQ(plan.parts.at(2).action, PartAction::kReplace);
  EXPECT_EQ(JobOf(plan).action, JobAction::kAdopt) << "its node has it already";
  facts.jobs[0].nodes = {"n1", "n2"};
  EXPECT_EQ(JobOf(PlanUpgrade(to, facts)).action, JobAction::kRestart);
}

TEST(UpgradePlan, AWorkerThatSaysNothingIsNotTakenForOneThatCanBeTakenOver) {
  ClusterFacts facts = Cluster();
  facts.workers[1].build.table.clear();
  const UpgradePlan plan = PlanUpgrade(With("0.3.0"), facts);
  EXPECT_EQ(JobOf(plan).action, JobAction::kRestart);
  EXPECT_THAT(JobOf(plan).why, ElementsAre("node n2 does not say its versions"));
  EXPECT_THAT(plan.parts.at(2).why.at(0), HasSubstr("not connected"));
}

TEST(UpgradePlan, WhatAConversionDoesIsSaid) {
  const UpgradePlan plan =
      PlanUpgrade(With("0.3.0", {{version_key::kStoreSchema, {5, 7}}}), Cluster());
  EXPECT_THAT(plan.parts.at(0).why,
              ElementsAre("converts the store: store schema 6 -> 7, a copy is kept as "
                          "state.db.schema-6"));
  EXPECT_THAT(plan.parts.at(1).why, IsEmpty());
}

TEST(UpgradePlan, OrdersVersions) {
  EXPECT_TRUE(IsOlder("0.2.0", "0.10.0"));
  EXPECT_TRUE(IsOlder("0.2.0-alpha", "0.2.0"));
  EXPECT_TRUE(IsOlder("0.2.9", "0.3.0-alpha"));
  EXPECT_FALSE(IsOlder("0.2.0", "0.2.0"));
  EXPECT_FALSE(IsOlder("1.0", "0.9.9"));
}

}  // namespace
}  // namespace muster::upgrade
