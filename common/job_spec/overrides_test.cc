#include <gtest/gtest.h>

#include "common/job_spec/parse.h"

namespace muster {
namespace {

constexpr char kJob[] =
    "name: '5'   # a comment\ncommand: [python, 1, '2']\nenv:\n  A: \"1\"\n  B: true\npriority: "
    "3\n";

TEST(ApplyOverrides, WithoutAnyKeepsEveryType) {
  const auto out = ApplyOverrides(kJob, {});
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_EQ(*out,
            "name: \"5\"\ncommand: [\"python\", 1, \"2\"]\nenv:\n  A: \"1\"\n  B: true\n"
            "priority: 3\n");
  EXPECT_TRUE(ParseJobSpec(*out).ok());
}

TEST(ApplyOverrides, ReplacesAddsAndIsYamlItself) {
  const auto out = ApplyOverrides(kJob, {"priority=9", "resources.nodes=2", "env.A=x y",
                                         "resources.exclude=[n1, n2]", "env.C="});
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  const auto spec = ParseJobSpec(*out);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->priority, 9);
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_EQ(spec->resources.exclude, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(spec->env.at("A"), "x y");
  EXPECT_EQ(spec->env.at("C"), "");
}

TEST(ApplyOverrides, LaterOneWins) {
  const auto out = ApplyOverrides(kJob, {"priority=9", "priority=10"});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(ParseJobSpec(*out)->priority, 10);
}

TEST(ApplyOverrides, UnknownKeysAreLeftToTheParser) {
  const auto out = ApplyOverrides(kJob, {"prioritty=9"});
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(ParseJobSpec(*out).ok());
}

TEST(ApplyOverrides, RefusesWhatIsNoOverride) {
  const std::pair<const char*, const char*> cases[] = {
      {"priority", "override 'priority' is not KEY=VALUE, such as train.optimizer.lr=1e-4"},
      {"=3", "override '=3' is not KEY=VALUE, such as train.optimizer.lr=1e-4"},
      {"a..b=3", "override 'a..b=3': empty part in its key"},
      {"a.=3", "override 'a.=3': empty part in its key"},
      {"priority.x=3", "override 'priority.x=3': 'priority' is no map, so it has no key 'x'"},
      {"command.x=3", "override 'command.x=3': 'command' is no map, so it has no key 'x'"},
      {"priority=[3", "override 'priority=[3': is no valid YAML: end of sequence flow not found"},
  };
  for (const auto& [override, message] : cases) {
    const auto out = ApplyOverrides(kJob, {override});
    ASSERT_FALSE(out.ok()) << override;
    EXPECT_EQ(out.status().message(), message);
  }
}

TEST(ApplyOverrides, BoundsWhatAliasesMultiply) {
  std::string yaml = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 8; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) yaml += before + ", ";
    yaml += before + "]\n";
  }
  EXPECT_FALSE(ApplyOverrides(yaml, {}).ok());
}

}  // namespace
}  // namespace muster
