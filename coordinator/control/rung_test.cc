#include "coordinator/control/rung.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

std::vector<NodeName> Nodes(std::initializer_list<const char*> names) {
  std::vector<NodeName> nodes;
  for (const char* name : names) nodes.push_back(NodeName{name});
  return nodes;
}

TEST(RungTest, EveryRungHasItsCase) {
  const auto two = Nodes({"n1", "n2"});
  EXPECT_EQ(ChooseRung({true, false, false, two, two}), Rung::kLaunch);
  EXPECT_EQ(ChooseRung({false, false, true, two, two}), Rung::kInPlace);
  EXPECT_EQ(ChooseRung({false, false, true, two, Nodes({"n2", "n1"})}), Rung::kInPlace);
  EXPECT_EQ(ChooseRung({false, false, false, two, two}), Rung::kRespawn);
  EXPECT_EQ(ChooseRung({false, false, true, two, Nodes({"n1", "n3"})}), Rung::kSpare);
  EXPECT_EQ(ChooseRung({false, false, true, two, Nodes({"n1"})}), Rung::kShrink);
  EXPECT_EQ(ChooseRung({false, false, true, two, Nodes({"n1", "n2", "n3"})}), Rung::kGrow);
  EXPECT_EQ(ChooseRung({false, true, true, two, two}), Rung::kRequeue);
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
  for (int r = 0; r < kRungCount; ++r) {
    KeepInput input;
    input.train = true;
    input.formed = true;
    input.rung = static_cast<Rung>(r);
    const bool fresh =
        input.rung == Rung::kLaunch || input.rung == Rung::kRespawn || input.rung == Rung::kRequeue;
    EXPECT_EQ(KeepsProcesses(input), fresh) << Name(input.rung);
    input.stepped = true;
    EXPECT_TRUE(KeepsProcesses(input)) << Name(input.rung);
  }
}

}  // namespace
}  // namespace muster
