#include "worker/allocation/allocation_ending.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const Ending kAgainEnding{
    .exit_code = 75, .action = EndAction::kRequeue, .reason = "time", .exclude = {}};

class AllocationEndingTest : public testing::Test {
 protected:
  // Index 2; the effects of `duration`, with the closer's answers from `answer`.
  enum class Closer { kAnswers, kRefuses, kIsSilent };
  std::vector<EndingEffect> Pass(Duration duration, Closer answer = Closer::kAnswers,
                                 bool closed = false) {
    std::vector<EndingEffect> all;
    for (const TimePoint end = now_ + duration; now_ < end; now_ += milliseconds(20)) {
      ending_.Tick(now_);
      for (const EndingEffect& effect : ending_.TakeEffects()) {
        all.push_back(effect);
        if (const auto* ask = std::get_if<AskCloser>(&effect)) {
          if (answer == Closer::kAnswers)
            ending_.OnAnswer(ask->index);
          else
            ending_.OnSilence(ask->index, answer == Closer::kRefuses, now_);
        }
        if (std::holds_alternative<ReadNote>(effect)) ending_.OnNote(closed, now_);
      }
    }
    return all;
  }
  template <typename Effect>
  static int Count(const std::vector<EndingEffect>& effects) {
    int count = 0;
    for (const EndingEffect& effect : effects) count += std::holds_alternative<Effect>(effect);
    return count;
  }

  TimePoint now_{std::chrono::hours(3)};
  AllocationEnding ending_{AllocationEndingOptions{.index = 2}};
};

TEST_F(AllocationEndingTest, TheCloserInformsTheOthersBeforeTheScheduler) {
  ending_.Decide(kAgainEnding, 2, {3, 4}, now_);
  EXPECT_TRUE(Pass(seconds(1)).empty());
  ending_.OnAsked(3);
  EXPECT_TRUE(Pass(seconds(1)).empty());
  ending_.OnAsked(4);
  const auto effects = Pass(seconds(1));
  EXPECT_EQ(Count<EndPrograms>(effects), 1);
  EXPECT_EQ(Count<NotifyScheduler>(effects), 1);
  ending_.OnSchedulerAnswer(Closing::kDone, now_);
  EXPECT_EQ(Count<Exit>(Pass(seconds(1))), 1);
}

TEST_F(AllocationEndingTest, OneThatDoesNotAskDelaysTheOthersBriefly) {
  ending_.Decide(kAgainEnding, 2, {3}, now_);
  EXPECT_EQ(Count<NotifyScheduler>(Pass(seconds(5))), 1);
}

TEST_F(AllocationEndingTest, ASchedulerThatDoesNotAnswerIsRetriedForMinutes) {
  ending_.Decide(kAgainEnding, 2, {}, now_);
  int told = 0;
  for (int second = 0; second < 500; ++second) {
    const auto effects = Pass(seconds(1));
    ASSERT_EQ(Count<Exit>(effects), 0) << second;
    if (Count<NotifyScheduler>(effects) == 0) continue;
    ++told;
    ending_.OnSchedulerAnswer(Closing::kAgain, now_);
  }
  EXPECT_GE(told, 15);
  EXPECT_LE(told, 30) << "with pauses";
  bool gone = false;
  for (int second = 0; second < 200 && !gone; ++second) {
    const auto effects = Pass(seconds(1));
    if (Count<NotifyScheduler>(effects) > 0) ending_.OnSchedulerAnswer(Closing::kAgain, now_);
    gone = Count<Exit>(effects) > 0;
  }
  EXPECT_TRUE(gone) << "not for ever";
}

TEST_F(AllocationEndingTest, TheOthersStayUntilTheSchedulerWasInformed) {
  ending_.Decide(kAgainEnding, 0, {0, 1}, now_);
  const auto effects = Pass(minutes(5));
  EXPECT_EQ(Count<EndPrograms>(effects), 1) << "their programs end at once";
  EXPECT_EQ(Count<Exit>(effects), 0);
  EXPECT_EQ(Count<NotifyScheduler>(effects), 0);
  EXPECT_EQ(Count<Exit>(Pass(seconds(1), Closer::kAnswers, true)), 1);
}

TEST_F(AllocationEndingTest, WhenTheCloserDiesTheNextLowestInformsTheScheduler) {
  ending_.Decide(kAgainEnding, 0, {0, 3}, now_);
  const auto effects = Pass(seconds(2), Closer::kRefuses);
  EXPECT_EQ(Count<NotifyScheduler>(effects), 1);
  EXPECT_TRUE(ending_.closes());
}

TEST_F(AllocationEndingTest, WhenItsMachineDiesItTakesASecondLonger) {
  ending_.Decide(kAgainEnding, 0, {0, 3}, now_);
  EXPECT_EQ(Count<NotifyScheduler>(Pass(seconds(2), Closer::kIsSilent)), 0);
  EXPECT_EQ(Count<NotifyScheduler>(Pass(seconds(3), Closer::kIsSilent)), 1);
}

TEST_F(AllocationEndingTest, OnesThatAreLowerComeFirst) {
  ending_.Decide(kAgainEnding, 0, {0, 1, 3}, now_);
  Pass(milliseconds(700), Closer::kRefuses);
  const auto effects = Pass(seconds(60));
  EXPECT_EQ(Count<NotifyScheduler>(effects), 0) << "the second does it";
  EXPECT_EQ(std::get<AskCloser>(effects.front()).index, 1);
}

TEST_F(AllocationEndingTest, ACloserThatIsGoneBecauseItIsDoneIsNotReplaced) {
  ending_.Decide(kAgainEnding, 0, {0}, now_);
  const auto effects = Pass(seconds(2), Closer::kRefuses, true);
  EXPECT_EQ(Count<NotifyScheduler>(effects), 0);
  EXPECT_EQ(Count<Exit>(effects), 1);
}

TEST_F(AllocationEndingTest, WhoseAllocationGoesOnWithoutItJustLeaves) {
  ending_.Decide(kAgainEnding, 2, {}, now_);
  Pass(seconds(1));
  ending_.OnSchedulerAnswer(Closing::kLeftOut, now_);
  const auto effects = Pass(seconds(1));
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_TRUE(std::get<Exit>(effects[0]).left_out);
}

TEST_F(AllocationEndingTest, TheFirstDecisionCounts) {
  ending_.Decide(kAgainEnding, 2, {}, now_);
  ending_.Decide({.exit_code = 0, .reason = "done", .exclude = {}}, 0, {0}, now_);
  EXPECT_EQ(ending_.ending(), kAgainEnding);
  EXPECT_TRUE(ending_.closes());
}

}  // namespace
}  // namespace muster::worker
