#include "cli/migrate/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::migrate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MigrateDocument, FlattensMapsListsAndListsOfMaps) {
  const auto document = ReadDocument(
      "a: {b: 1}\nlist: [x, 'y z']\nnothing:\nempty: []\nsets:\n- path: p\n- path: q\n", "f");
  ASSERT_TRUE(document.ok()) << document.status().ToString();
  EXPECT_EQ(document->Find("a.b")->text, "1");
  EXPECT_EQ(document->Find("list")->text, "x, y z");
  EXPECT_THAT(document->Find("list")->elements, ElementsAre("x", "y z"));
  EXPECT_EQ(document->Find("nothing"), nullptr);
  EXPECT_EQ(document->Find("empty"), nullptr);
  EXPECT_TRUE(document->Has("sets"));
  EXPECT_FALSE(document->Has("set"));
  EXPECT_EQ(document->Find("sets.path", 1)->text, "q");
  EXPECT_EQ(document->Find("sets.path", 1)->line, 7);
  EXPECT_EQ(document->sections.at("a"), "{b: 1}");
}

TEST(MigrateDocument, RefusesWhatIsNoMap) {
  EXPECT_EQ(ReadDocument("- 1\n", "f").status().message(), "f:1: expected a map of keys");
  EXPECT_THAT(ReadDocument("a: [1\nb: 2", "f").status().message(),
              HasSubstr("f:2: cannot be read"));
  std::string deep = "1";
  for (int i = 0; i < 40; ++i) deep = "{a: " + deep + "}";
  EXPECT_THAT(ReadDocument(deep, "f").status().message(), HasSubstr("too deeply nested"));
}

TEST(MigrateDocument, ReadsFlags) {
  const auto document = ReadFlags({"--learning-rate", "2e-5", "--packing", "--lora_target_modules",
                                   "q_proj", "v_proj", "--a=b"},
                                  "f");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->Find("learning_rate")->text, "2e-5");
  EXPECT_EQ(document->Find("packing")->text, "true");
  EXPECT_THAT(document->Find("lora_target_modules")->elements, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(document->Find("a")->text, "b");
  EXPECT_FALSE(ReadFlags({"word"}, "f").ok());
}

TEST(MigrateDocument, PutsValuesOfOtherKeysIn) {
  auto document =
      ReadDocument("out: /tmp\nlogs: ${out}/logs\nloop: ${loop}\nnone: ${other}/x\n", "f");
  ASSERT_TRUE(document.ok());
  Interpolate(&*document);
  EXPECT_EQ(document->Find("logs")->text, "/tmp/logs");
  EXPECT_EQ(document->Find("loop")->text, "${loop}");
  EXPECT_EQ(document->Find("none")->text, "${other}/x");
}

bool RunsTrain(const std::vector<std::string>& words) { return words.front() == "train"; }

TEST(MigrateDocument, FindsACommandInAScript) {
  const auto found = FindCommand(
      "#!/bin/sh\nN=2\nexport A=1\ncd work\nB=\"x y\" train --n ${N} \\\n  'it is $N' $M a\\ b # "
      "end\nlater\n",
      RunsTrain);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->words, ElementsAre("train", "--n", "2", "it is $N", "$M", "a b"));
  EXPECT_EQ(found->environment, (std::map<std::string, std::string>{{"A", "1"}, {"B", "x y"}}));
  EXPECT_THAT(found->other_lines, ElementsAre("cd work", "later"));
  EXPECT_FALSE(FindCommand("cd work\n", RunsTrain).has_value());
}

TEST(MigrateDocument, ReadsNumbersAndTruth) {
  EXPECT_EQ(NumberIn("2e-5"), 2e-5);
  EXPECT_EQ(NumberIn("2x"), std::nullopt);
  EXPECT_EQ(NumberIn("inf"), std::nullopt);
  EXPECT_EQ(BooleanIn("True"), true);
  EXPECT_EQ(BooleanIn("no"), false);
  EXPECT_EQ(BooleanIn("auto"), std::nullopt);
}

}  // namespace
}  // namespace muster::migrate
