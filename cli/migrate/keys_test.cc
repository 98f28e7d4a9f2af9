// Every key that the pinned version of a tool has, as tests/migrate/list_keys.py lists them, has a
// verdict; and every verdict is on a key of the list, or on one that is said to be of other
// versions.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "cli/migrate/migrate.h"

namespace muster::migrate {
namespace {

std::set<std::string> Listed(const std::string& tool) {
  std::ifstream file(std::string(MUSTER_SOURCE_DIR) + "/tests/migrate/testdata/keys/" + tool +
                     ".txt");
  std::set<std::string> keys;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) keys.insert(line);
  return keys;
}

bool IsBelow(const std::string& key, const std::string& section) {
  return key.size() > section.size() && key[section.size()] == '.' && key.starts_with(section);
}

class MigrateKeys : public ::testing::TestWithParam<const char*> {
 protected:
  const VerdictTable table_ = *TableOfTool(GetParam());
  const std::set<std::string> listed_ = Listed(GetParam());
};

TEST_P(MigrateKeys, ThatTheToolHasHaveAVerdict) {
  EXPECT_GT(listed_.size(), 100u);
  const auto rules = table_.keys();
  for (const std::string& key : listed_) {
    const bool section =
        std::ranges::any_of(rules, [&](const auto& rule) { return IsBelow(rule, key); });
    EXPECT_TRUE(table_.Find(key) != nullptr || section) << key << " has no verdict";
  }
}

TEST_P(MigrateKeys, WithAVerdictBelongToTheTool) {
  for (const auto& [rule, what] : table_.rules()) {
    if (what.other_version) continue;
    const std::string key = rule.ends_with(".*") ? rule.substr(0, rule.size() - 2) : rule;
    const bool known = std::ranges::any_of(listed_, [&](const std::string& each) {
      return each == key || IsBelow(each, key) || IsBelow(key, each);
    });
    EXPECT_TRUE(known) << key << " is no key of " << GetParam();
  }
}

TEST_P(MigrateKeys, ThatAreNotTakenSayWhy) {
  for (const auto& [key, rule] : table_.rules()) {
    EXPECT_TRUE(rule.verdict == Verdict::kTaken ? !rule.field.empty() : rule.reason.size() > 10)
        << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, MigrateKeys,
                         ::testing::Values("axolotl", "determined", "llamafactory", "torchtune",
                                           "trl"),
                         [](const auto& test) { return std::string(test.param); });

TEST(MigrateKeysTest, AToolWithoutATableIsSaid) { EXPECT_FALSE(TableOfTool("torchrun").ok()); }

}  // namespace
}  // namespace muster::migrate
