#include "coordinator/goodput/time_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace muster {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr TimeUse kTraining{TimeState::kStep, true, 4};
constexpr TimeUse kRecovering{TimeState::kRecovery, false, 4};
constexpr TimeUse kOver{TimeState::kIdle, false, 0};

constexpr TimeUse Doing(TimeState state, int ranks = 4) { return {state, false, ranks}; }

// A ledger and its clock.
struct Booked {
  explicit Booked(TimeUse doing = Doing(TimeState::kQueue)) {
    ledger.Begin({.doing = doing}, 0, now, unix_ms);
  }
  void Pass(Duration d) {
    now += d;
    unix_ms += std::chrono::round<milliseconds>(d).count();
  }
  bool Transition(TimeUse doing, Step step = 0) { return ledger.Transition(doing, step, now); }
  void Finish(Step step, Step furthest = 0) { ledger.ObserveStep(step, furthest, now); }
  // Rank-seconds by state, in the order of the enum.
  std::vector<double> Seconds() const {
    std::vector<double> figures;
    for (const TimeShare& share : ledger.At(now).Shares()) figures.push_back(share.seconds);
    return figures;
  }
  double UnderWay() const { return ledger.At(now).under_way_seconds(); }

  TimePoint now = TimePoint(std::chrono::hours(1));
  std::int64_t unix_ms = 1'700'000'000'000;
  TimeLedger ledger;
};

// step, recompute, checkpoint, recovery, hang, queue, idle
TEST(TimeLedgerTest, ACalmJobWaitsIsSetUpTrainsAndEnds) {
  Booked b;
  b.Pass(seconds(10));
  EXPECT_TRUE(b.Transition(Doing(TimeState::kIdle)));
  b.Pass(seconds(5));
  EXPECT_TRUE(b.Transition(kTraining, 1));
  EXPECT_FALSE(b.Transition(kTraining, 1)) << "nothing new";
  b.Pass(seconds(2));
  EXPECT_DOUBLE_EQ(b.UnderWay(), 8);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 0, 0, 40, 20)) << "no step has ended yet";
  b.Finish(2);
  EXPECT_DOUBLE_EQ(b.UnderWay(), 0);
  b.Pass(seconds(1));
  b.Transition(Doing(TimeState::kIdle));
  b.Pass(seconds(1));
  b.Transition(kOver);
  b.Pass(seconds(1000));
  EXPECT_THAT(b.Seconds(), ElementsAre(8, 0, 0, 0, 0, 40, 8 + 20));
  EXPECT_DOUBLE_EQ(b.ledger.At(b.now).ratio(), 8.0 / 36) << "the queue is nobody's time";
}

TEST(TimeLedgerTest, AJobThatHasHadNoSlotsHasNoGoodput) {
  Booked b;
  b.Pass(seconds(10));
  EXPECT_LT(b.ledger.At(b.now).ratio(), 0);
}

TEST(TimeLedgerTest, StepsThatAnAttemptBeforeHadFinishedAreRecomputed) {
  Booked b(kTraining);
  b.Pass(seconds(1));
  b.Finish(11, 13);  // furthest: 13; from 0 on all are done again
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 4, 0, 0, 0, 0, 0));
  b.Pass(seconds(4));
  b.Finish(15, 13);  // 12 and 13 again, 14 and 15 for the first time
  EXPECT_THAT(b.Seconds(), ElementsAre(8, 4 + 8, 0, 0, 0, 0, 0));
  b.Pass(seconds(1));
  b.Finish(15, 13);
  b.Finish(14, 13);
  EXPECT_DOUBLE_EQ(b.UnderWay(), 4) << "no news";
}

TEST(TimeLedgerTest, WaitingForACheckpointIsNoStep) {
  Booked b(kTraining);
  for (const double s : {0.5, 0.25, 0.25, 1.0}) b.ledger.ObserveCheckpoint(s);
  b.Pass(seconds(10));
  b.Finish(1);
  EXPECT_THAT(b.Seconds(), ElementsAre(38, 0, 2, 0, 0, 0, 0));
}

TEST(TimeLedgerTest, CheckpointsThatWereReportedLateAreBookedWithTheNextStep) {
  Booked b(kTraining);
  b.ledger.ObserveCheckpoint(6);
  b.Pass(seconds(1));
  b.Finish(1);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 4, 0, 0, 0, 0)) << "never more than there was";
  b.Pass(seconds(1));
  b.Finish(2);
  EXPECT_THAT(b.Seconds(), ElementsAre(2, 0, 6, 0, 0, 0, 0));
}

TEST(TimeLedgerTest, AFaultTakesTheStepThatWasUnderWay) {
  Booked b(kTraining);
  b.Pass(seconds(1));
  b.Finish(1);
  b.Pass(seconds(2));
  b.ledger.ObserveCheckpoint(1);
  b.Transition(kRecovering);
  b.Pass(seconds(3));
  b.Transition(kTraining, 1);
  EXPECT_THAT(b.Seconds(), ElementsAre(4, 0, 1, 7 + 12, 0, 0, 0));
}

TEST(TimeLedgerTest, AHangIsWhatTheDetectorMeasured) {
  Booked b(kTraining);
  b.Pass(seconds(5));
  b.ledger.ObserveHang(3);
  b.Transition(kRecovering);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 8, 12, 0, 0));
  b.Transition(kTraining, 1);
  b.Pass(seconds(1));
  b.Transition(kRecovering);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 12, 12, 0, 0)) << "each fault has its own";
}

TEST(TimeLedgerTest, AHangIsNoLongerThanTheTimeThatPassed) {
  Booked b(kTraining);
  b.Pass(seconds(2));
  b.ledger.ObserveHang(1e300);
  b.Transition(kRecovering);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 0, 8, 0, 0));
}

TEST(TimeLedgerTest, FiguresWithoutSenseCountNothing) {
  Booked b(kTraining);
  b.ledger.ObserveCheckpoint(-5);
  b.ledger.ObserveCheckpoint(std::numeric_limits<double>::quiet_NaN());
  b.Pass(seconds(1));
  b.Finish(1);
  EXPECT_THAT(b.Seconds(), ElementsAre(4, 0, 0, 0, 0, 0, 0));
}

TEST(TimeLedgerTest, CheckpointsAndHangsCountOnlyWhileItTrains) {
  Booked b(Doing(TimeState::kIdle));
  b.ledger.ObserveCheckpoint(1);
  b.ledger.ObserveHang(1);
  b.Transition(kTraining, 1);
  b.Pass(seconds(1));
  b.Transition(kRecovering);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 4, 0, 0, 0));
}

TEST(TimeLedgerTest, AGangThatShrinksHasFewerRankSeconds) {
  Booked b(Doing(TimeState::kRecovery, 4));
  b.Pass(seconds(1));
  b.Transition(Doing(TimeState::kRecovery, 3));
  b.Pass(seconds(1));
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 7, 0, 0, 0));
}

TEST(TimeLedgerTest, WhatIsLessThanAMicrosecondIsNotLost) {
  Booked b;
  for (int i = 0; i < 1000; ++i) {
    b.Pass(std::chrono::nanoseconds(1500));
    b.Transition(Doing(TimeState::kQueue));
  }
  EXPECT_DOUBLE_EQ(b.Seconds()[5], 4 * 1.5e-3);
}

TEST(TimeLedgerTest, ATimeThatLiesBeforeBooksNothing) {
  Booked b(kTraining);
  b.Pass(seconds(1));
  b.Finish(1);
  b.ledger.ObserveStep(2, 0, b.now - seconds(30));
  b.Pass(seconds(1));
  b.Finish(3);
  EXPECT_THAT(b.Seconds(), ElementsAre(8, 0, 0, 0, 0, 0, 0));
}

// --- over a restart ---

TEST(TimeLedgerTest, TheTimeOfAnOutageIsBookedWhenItIsKnownWhatItWas) {
  Booked before(kTraining);
  before.Pass(seconds(10));
  before.Finish(7);
  before.Pass(seconds(1));
  const GoodputUsage usage = before.ledger.Usage(before.now, before.unix_ms);
  EXPECT_EQ(usage.until_unix_ms, before.unix_ms - 1000) << "the step under way is not booked";

  Booked after;
  after.now = TimePoint(seconds(5));  // another boot
  after.unix_ms = before.unix_ms + 20000;
  after.ledger.Begin(usage, 7, after.now, after.unix_ms);
  EXPECT_FALSE(after.Transition(kTraining, 7)) << "it trains on";
  EXPECT_DOUBLE_EQ(after.UnderWay(), 4 * 21);
  after.Finish(30);
  EXPECT_THAT(after.Seconds(), ElementsAre(4 * 31, 0, 0, 0, 0, 0, 0));
}

TEST(TimeLedgerTest, AFaultOfTheOutageIsARecovery) {
  Booked b;
  b.ledger.Begin({{}, b.unix_ms - 5000, kTraining}, 7, b.now, b.unix_ms);
  b.Transition(kRecovering);
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 20, 0, 0, 0));
}

TEST(TimeLedgerTest, TheTimeOfAnOutageBelongsToWhatWasDoneBefore) {
  Booked b;
  b.ledger.Begin({{}, b.unix_ms - 5000, Doing(TimeState::kQueue)}, 0, b.now, b.unix_ms);
  EXPECT_TRUE(b.Transition(kRecovering));
  EXPECT_THAT(b.Seconds(), ElementsAre(0, 0, 0, 0, 0, 20, 0));
}

TEST(TimeLedgerTest, AClockThatWasSetBackBooksNothingTwice) {
  Booked b;
  b.ledger.Begin({{1, 2, 3, 4, 5, 6, 7}, b.unix_ms + 60'000, kRecovering}, 0, b.now, b.unix_ms);
  EXPECT_EQ(b.ledger.At(b.now).micros, (RankMicros{1, 2, 3, 4, 5, 6, 7}));
}

TEST(TimeLedgerTest, UsageThatWasNeverKeptBeginsNow) {
  Booked b;
  b.ledger.Begin({}, 0, b.now, b.unix_ms);
  b.Transition(kRecovering);
  EXPECT_EQ(b.ledger.At(b.now).micros, RankMicros{});
}

TEST(TimeLedgerTest, StoredUsageIsShownAsAnotherCoordinatorWouldContinueIt) {
  Booked b(kTraining);
  b.Pass(seconds(1));
  b.Finish(1);
  const GoodputUsage stored = b.ledger.Usage(b.now, b.unix_ms);
  b.Pass(seconds(1));
  b.Finish(2);
  EXPECT_EQ(Figure(b.ledger.StoredAt(stored, b.now).micros, TimeState::kStep), 4'000'000);
  b.Transition(kRecovering);
  const GoodputUsage turned = b.ledger.Usage(b.now, b.unix_ms);
  b.Pass(seconds(1));
  EXPECT_EQ(b.ledger.StoredAt(turned, b.now).micros, b.ledger.At(b.now).micros);
}

// --- whatever happens ---

std::int64_t Known(const Goodput& goodput) {
  return std::accumulate(goodput.micros.begin(), goodput.micros.end(), goodput.under_way_micros);
}

// Every rank-microsecond is in exactly one state, and no figure ever falls.
class TimeLedgerPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(TimeLedgerPropertyTest, TheStatesSumToTheTotalAndOnlyRise) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto any = [&random](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  Booked b(Doing(TimeState::kQueue, 3));
  std::int64_t total = 0;
  Step step = 0;
  Step furthest = 0;
  RankMicros before = {};
  for (int i = 0; i < 2000; ++i) {
    const microseconds passed(any(4) == 0 ? 0 : any(3'000'000));
    b.Pass(passed);
    total += passed.count() * b.ledger.doing().ranks;
    const int what = any(12);
    if (what < 3) {
      const auto state = static_cast<TimeState>(any(kTimeStateCount));
      b.Transition(Doing(state, any(6)));
    } else if (what < 5) {
      step = any(50);
      b.Transition({TimeState::kStep, true, 1 + any(5)}, step);
    } else if (what < 9) {
      step += any(4);
      b.Finish(step, furthest);
      furthest = std::max(furthest, any(2) == 0 ? step : furthest);
    } else if (what == 9) {
      b.ledger.ObserveCheckpoint(any(1000) / 100.0);
    } else if (what == 10) {
      b.ledger.ObserveHang(any(1000) / 100.0);
    } else {
      // Killed, and started again at once.
      const GoodputUsage usage = b.ledger.Usage(b.now, b.unix_ms);
      TimeLedger again;
      again.Begin(usage, step, b.now, b.unix_ms);
      const std::int64_t lost = std::abs(Known(again.At(b.now)) - total);
      EXPECT_LE(lost, 3000 * b.ledger.doing().ranks) << "the wall's clock has milliseconds";
    }
    const Goodput now = b.ledger.At(b.now);
    EXPECT_EQ(Known(now), total);
    EXPECT_GE(now.under_way_micros, 0);
    for (std::size_t s = 0; s < before.size(); ++s) EXPECT_GE(now.micros[s], before[s]);
    before = now.micros;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TimeLedgerPropertyTest, ::testing::Range(1, 21));

}  // namespace
}  // namespace muster
