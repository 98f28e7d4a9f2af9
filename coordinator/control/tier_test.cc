#include "coordinator/control/tier.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

std::vector<NodeName> Nodes(std::initializer_list<const char*> names) {
  std::vector<NodeName> nodes;
  for (const char* name : names) nodes.push_back(NodeName{name});
  return nodes;
}

TEST(TierTest, EveryTierHasItsCase) {
  const auto two = Nodes({"n1", "n2"});
  EXPECT_EQ(ChooseTier({true, false, false, two, two}), Tier::kLaunch);
  EXPECT_EQ(ChooseTier({false, false, true, two, two}), Tier::kInPlace);
  EXPECT_EQ(ChooseTier({false, false, true, two, Nodes({"n2", "n1"})}), Tier::kInPlace);
  EXPECT_EQ(ChooseTier({false, false, false, two, two}), Tier::kRespawn);
  EXPECT_EQ(ChooseTier({false, false, true, two, Nodes({"n1", "n3"})}), Tier::kSpare);
  EXPECT_EQ(ChooseTier({false, false, true, two, Nodes({"n1"})}), Tier::kShrink);
  EXPECT_EQ(ChooseTier({false, false, true, two, Nodes({"n1", "n2", "n3"})}), Tier::kGrow);
  EXPECT_EQ(ChooseTier({false, true, true, two, two}), Tier::kRequeue);
}

TEST(KeepTest, EachConditionIsNeeded) {
  KeepInput good;
  good.train = true;
  good.formed = true;
  EXPECT_TRUE(KeepsProcesses(good));
  for (int condition = 0; condition < 5; ++condition) {
    KeepInput input = good;
    if (condition == 0) input.train = false;
    if (condition == 1) input.in_place = false;
    if (condition == 2) input.retryable = false;
    if (condition == 3) input.stopping = true;
    if (condition == 4) input.formed = false;
    EXPECT_FALSE(KeepsProcesses(input)) << condition;
  }
}

TEST(KeepTest, ProcessesThatGotNowhereAreNotKeptTwice) {
  for (int r = 0; r < kTierCount; ++r) {
    KeepInput input;
    input.train = true;
    input.formed = true;
    input.tier = static_cast<Tier>(r);
    const bool fresh =
        input.tier == Tier::kLaunch || input.tier == Tier::kRespawn || input.tier == Tier::kRequeue;
    EXPECT_EQ(KeepsProcesses(input), fresh) << Name(input.tier);
    input.stepped = true;
    EXPECT_TRUE(KeepsProcesses(input)) << Name(input.tier);
  }
}

}  // namespace
}  // namespace muster
