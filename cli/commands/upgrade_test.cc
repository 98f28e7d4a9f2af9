// `muster upgrade plan` and `muster version`, against a coordinator that answers from a script.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"
#include "cli/upgrade/build.h"
#include "common/base/version.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class UpgradeTest : public CommandsTest {
 protected:
  // The cluster runs this build on two nodes, of which one hosts both ranks of the canned job.
  void SetUp() override {
    Serve();
    coordinator_.version.set_version(kVersion);
    coordinator_.version.set_store("sqlite");
    for (const VersionRow& row : kVersionTable) AddRow(row, coordinator_.version.add_versions());
    coordinator_.node.set_name("node-1");
    coordinator_.node.set_version(kVersion);
    for (const VersionRow& row : kVersionTable) AddRow(row, coordinator_.node.add_versions());
    for (auto& rank : *coordinator_.job.mutable_ranks()) rank.set_node("node-1");
    for (auto& rank : *coordinator_.job.mutable_progress()) rank.set_snapshot_step(120);
    context_->output = OutputFormat::kJson;
  }

  // A file with the table of a build that differs from this one in a row.
  std::string Release(const std::string& version, const std::string& key, VersionRange range) {
    upgrade::Build build = upgrade::OwnBuild();
    build.table.at(key) = range;
    const Json json = {{"version", version}, {"versions", upgrade::TableJson(build)}};
    const std::string path = dir_ + "/release.json";
    EXPECT_TRUE(WriteFileAtomically(path, json.dump()).ok());
    return path;
  }

  Json Plan(const std::string& release, int exit_code) {
    const CommandResult result = Run({"upgrade", "plan", "--to", release});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(*result, exit_code);
    const Json json = Json::parse(out_.str());
    out_.str("");
    return json;
  }

 private:
  static void AddRow(const VersionRow& row, v1::VersionRange* to) {
    to->set_key(std::string(row.key));
    to->set_min(row.range.min);
    to->set_max(row.range.max);
  }
};

TEST_F(UpgradeTest, ThePlanIsMadeOfWhatTheClusterSaysOfItself) {
  const Json plan =
      Plan(Release("9.0.0", version_key::kProgressPage, {kProgressPages.max, 99}), kExitSuccess);
  EXPECT_EQ(plan["from"], kVersion);
  EXPECT_EQ(plan["to"], "9.0.0");
  EXPECT_EQ(plan["possible"], true);
  ASSERT_EQ(plan["parts"].size(), 2u);
  EXPECT_EQ(plan["parts"][0]["part"], "coordinator");
  EXPECT_EQ(plan["parts"][1]["name"], "node-1");
  ASSERT_EQ(plan["jobs"].size(), 1u);
  EXPECT_EQ(plan["jobs"][0]["id"], "7f3a9c1e2b");
  EXPECT_EQ(plan["jobs"][0]["nodes"], Json{"node-1"});
  EXPECT_EQ(plan["jobs"][0]["action"], "adopted");
  const Json other = Plan(Release("9.0.0", version_key::kProgressPage, {99, 99}), kExitSuccess);
  EXPECT_EQ(other["jobs"][0]["action"], "restarted");
  EXPECT_EQ(other["jobs"][0]["from"], "snapshot");
}

TEST_F(UpgradeTest, ARefusedDowngradeIsAConflict) {
  const std::string release = Release("0.1.0", version_key::kStoreSchema, {1, 2});
  const Json plan = Plan(release, kExitConflict);
  EXPECT_EQ(plan["possible"], false);
  EXPECT_EQ(plan["jobs"][0]["action"], "refused");
  context_->output = OutputFormat::kTable;
  EXPECT_EQ(*Run({"upgrade", "plan", "--to", release}), kExitConflict);
  EXPECT_THAT(out_.str(), HasSubstr("store schema 6 is outside 1 to 2, which 0.1.0 reads"));
  EXPECT_THAT(out_.str(), HasSubstr("0.2.0 -> 0.1.0: refused\n"));
}

TEST_F(UpgradeTest, ACoordinatorWithoutATableIsRefusedByName) {
  coordinator_.version.clear_versions();
  coordinator_.version.set_version("0.2.0-alpha");
  const CommandResult result =
      Run({"upgrade", "plan", "--to", Release("9.0.0", version_key::kEtcd, {1, 1})});
  EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(result.status().message(), HasSubstr("version 0.2.0-alpha"));
}

TEST_F(UpgradeTest, VersionPrintsBothTables) {
  ASSERT_TRUE(Run({"version"}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["versions"], upgrade::TableJson(upgrade::OwnBuild()));
  EXPECT_EQ(json["coordinator"]["versions"], json["versions"]);
  EXPECT_EQ(json["coordinator"]["store"], "sqlite");
  EXPECT_EQ(json["versions"]["journal"]["max"], kJournalVersions.max);
}

}  // namespace
}  // namespace muster
