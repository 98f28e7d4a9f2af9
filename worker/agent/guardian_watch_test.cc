#include "worker/agent/guardian_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace muster::worker {
namespace {

using testing::Each;
using testing::ElementsAre;
using Act = GuardianWatch::Act;

std::vector<Act> Ticks(GuardianWatch& watch, int count) {
  std::vector<Act> acts;
  for (int i = 0; i < count; ++i) acts.push_back(watch.OnTick());
  return acts;
}

TEST(GuardianWatch, OneThatDoesNotAnswerIsKilledAndThenGivenUp) {
  GuardianWatch watch(false);
  watch.OnHello(true);
  EXPECT_THAT(Ticks(watch, 7), ElementsAre(Act::kPing, Act::kNothing, Act::kNothing, Act::kKill,
                                           Act::kNothing, Act::kNothing, Act::kGiveUp));
}

TEST(GuardianWatch, OneThatAnswersIsAskedAgain) {
  GuardianWatch watch(false);
  watch.OnHello(true);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(watch.OnTick(), Act::kPing);
    EXPECT_EQ(watch.OnTick(), Act::kNothing);
    EXPECT_EQ(watch.OnTick(), Act::kNothing);
    watch.OnHeard();  // late, but it does
  }
}

TEST(GuardianWatch, AGuardianOfAnOlderVersionIsNotAsked) {
  GuardianWatch watch(false);
  watch.OnHeard();
  watch.OnHello(false);
  EXPECT_THAT(Ticks(watch, 20), Each(Act::kNothing));
}

TEST(GuardianWatch, AStoppedGuardianThatAWorkerFindsIsKilledWithoutItsHello) {
  GuardianWatch watch(true);
  EXPECT_THAT(Ticks(watch, 3), ElementsAre(Act::kNothing, Act::kNothing, Act::kKill));
}

TEST(GuardianWatch, OneThatIsBeingStartedTakesTheTimeItTakes) {
  GuardianWatch watch(false);
  EXPECT_THAT(Ticks(watch, 20), Each(Act::kNothing));
}

}  // namespace
}  // namespace muster::worker
