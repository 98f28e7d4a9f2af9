#include "worker/agent/guardian_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace muster::worker {
namespace {

using testing::Each;
using testing::ElementsAre;
using Act = GuardianWatchdog::Act;

std::vector<Act> Ticks(GuardianWatchdog& watch, int count) {
  std::vector<Act> acts;
  for (int i = 0; i < count; ++i) acts.push_back(watch.OnTick());
  return acts;
}

TEST(GuardianWatchdog, OneThatDoesNotAnswerIsKilledAndThenGivenUp) {
  GuardianWatchdog watch(false);
  watch.OnHello(true, kGuardianPackets);
  EXPECT_THAT(Ticks(watch, 7), ElementsAre(Act::kPing, Act::kNothing, Act::kNothing, Act::kKill,
                                           Act::kNothing, Act::kNothing, Act::kGiveUp));
}

TEST(GuardianWatchdog, OneThatAnswersIsAskedAgain) {
  GuardianWatchdog watch(false);
  watch.OnHello(true, kGuardianPackets);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(watch.OnTick(), Act::kPing);
    EXPECT_EQ(watch.OnTick(), Act::kNothing);
    EXPECT_EQ(watch.OnTick(), Act::kNothing);
    watch.OnHeard();  // late, but it does
  }
}

TEST(GuardianWatchdog, OneOfAVersionOutsideTheWindowIsKilledWhateverItSays) {
  GuardianWatchdog watch(true);
  EXPECT_FALSE(watch.refuses());
  watch.OnHeard();
  watch.OnHello(true, {kGuardianPackets.max + 1, kGuardianPackets.max + 2});
  EXPECT_TRUE(watch.refuses());
  EXPECT_EQ(watch.reason(), "speaks packets 2 to 3, this worker 1");
  std::vector<Act> acts;
  for (int i = 0; i < 4; ++i) {
    acts.push_back(watch.OnTick());
    watch.OnHeard();
  }
  EXPECT_THAT(acts, ElementsAre(Act::kKill, Act::kNothing, Act::kNothing, Act::kGiveUp));
  GuardianWatchdog newer(true);
  newer.OnHello(true, {1, kGuardianPackets.max + 2});
  EXPECT_FALSE(newer.refuses()) << "it still speaks ours";
}

TEST(GuardianWatchdog, AGuardianOfAnOlderVersionIsNotAsked) {
  GuardianWatchdog watch(false);
  watch.OnHeard();
  watch.OnHello(false, kGuardianPackets);
  EXPECT_THAT(Ticks(watch, 20), Each(Act::kNothing));
}

TEST(GuardianWatchdog, AStoppedGuardianThatAWorkerFindsIsKilledWithoutItsHello) {
  GuardianWatchdog watch(true);
  EXPECT_THAT(Ticks(watch, 3), ElementsAre(Act::kNothing, Act::kNothing, Act::kKill));
}

TEST(GuardianWatchdog, OneThatIsBeingStartedTakesTheTimeItTakes) {
  GuardianWatchdog watch(false);
  EXPECT_THAT(Ticks(watch, 20), Each(Act::kNothing));
}

}  // namespace
}  // namespace muster::worker
