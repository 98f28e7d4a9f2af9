// What the ranks of queues had by day: divided at midnight, once over restarts, whatever the clock
// does, and after jobs and queues are gone.

#include <gtest/gtest.h>

#include <string>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::int64_t kFirstDay = 19675;      // of the harness's clock
constexpr std::int64_t kBeforeMidnight = 100;  // seconds, when a scenario begins
constexpr std::int64_t kSecond = 1'000'000;
constexpr char kTeams[] = "queues: {default: {}, a: {}, b: {}}\n";

std::string InQueue(const std::string& queue, const std::string& device = "cpu") {
  return "name: j\nworkdir: /jobs\ncommand: [x]\nqueue: " + queue +
         "\nresources: {nodes: 1, ranks_per_node: 2, device: " + device + "}\n";
}

struct UsageScenarios : public ::testing::Test {
  UsageScenarios() {
    c.SetWallClock(seconds(6400 - kBeforeMidnight));
    EXPECT_TRUE(c.ApplyQueues(kTeams, 0).status.ok());
    Join();
  }
  void Join() { c.Join("n1", {.slots = 4, .gpus = 4}); }
  // Back with the job's ranks, which went on.
  void Join(const JobId& id) {
    c.Join("n1", {.slots = 4, .hosted = {c.Hosted("n1", id, AttemptState::kRunning)}, .gpus = 4});
  }
  JobId Begin(const std::string& yaml) {
    const JobId id = c.Submit(yaml);
    c.StartAll(id);
    EXPECT_EQ(c.State(id), JobState::kRunning);
    return id;
  }
  QueueDayRecord On(const std::string& queue, std::int64_t day) const {
    const QueueDays all = c.controller().UsageByDay(c.now());
    const auto records = all.find(day);
    if (records == all.end() || !records->second.contains(queue)) return {};
    return records->second.at(queue);
  }
  UsedMicros Slots() const {
    UsedMicros sum;
    for (const auto& [day, records] : c.controller().UsageByDay(c.now()))
      for (const auto& [queue, record] : records) sum += record.slots;
    return sum;
  }
  // The jobs' ledgers and the days of their queues say the same.
  void ExpectBooksAgree() const {
    UsedMicros sum;
    for (const JobView& job : c.controller().Jobs()) {
      const Goodput goodput = job.stored_goodput(c.now().mono);
      for (int i = 0; i < kTimeStateCount; ++i) {
        const auto state = static_cast<TimeState>(i);
        if (state == TimeState::kQueue) continue;
        (state == TimeState::kStep ? sum.productive : sum.lost) += Figure(goodput.micros, state);
      }
    }
    EXPECT_EQ(Slots(), sum);
    EXPECT_EQ(c.controller().UsageTotals(c.now()), SumOfDays());
  }
  QueueTotals SumOfDays() const {
    QueueTotals totals;
    for (const auto& [day, records] : c.controller().UsageByDay(c.now())) {
      for (const auto& [queue, record] : records) {
        totals[queue].gpus += record.gpus;
        totals[queue].slots += record.slots;
      }
    }
    return totals;
  }

  ControlHarness c{{.retain = minutes(2)}};
};

TEST_F(UsageScenarios, AnAttemptOverMidnightIsDivided) {
  const JobId id = Begin(InQueue("a", "cuda"));
  c.Advance(minutes(5));
  for (int booked = 0; booked < 3; ++booked) {
    SCOPED_TRACE(booked);
    EXPECT_EQ(On("a", kFirstDay).slots.productive, kBeforeMidnight * 2 * kSecond);
    EXPECT_EQ(On("a", kFirstDay + 1).slots.productive, (300 - kBeforeMidnight) * 2 * kSecond);
    EXPECT_EQ(On("a", kFirstDay).gpus.productive, kBeforeMidnight * 2 * kSecond)
        << "a GPU for each rank";
    EXPECT_EQ(On("b", kFirstDay), QueueDayRecord{});
    ExpectBooksAgree();
    booked == 0 ? c.FinishAll(id) : c.Restart();
  }
  EXPECT_EQ(c.stored().queue_days.size(), 2u);
}

TEST_F(UsageScenarios, RanksOnCpusHaveSlotsAndNoGpus) {
  Begin(InQueue("default"));
  c.Advance(minutes(1));
  EXPECT_EQ(On("default", kFirstDay).slots.productive, 60 * 2 * kSecond);
  EXPECT_EQ(On("default", kFirstDay).gpus, UsedMicros{});
}

TEST_F(UsageScenarios, ARestartInTheMiddleCountsNothingTwice) {
  const JobId id = Begin(InQueue("a"));
  c.Advance(minutes(1));
  for (int start = 0; start < 3; ++start) {
    const UsedMicros before = Slots();
    c.Restart();
    EXPECT_EQ(Slots(), before);
    ExpectBooksAgree();
    Join(id);
    c.Advance(minutes(1));
    ExpectBooksAgree();
  }
  EXPECT_EQ(Slots(), (UsedMicros{.productive = 4 * 60 * 2 * kSecond}));
}

TEST_F(UsageScenarios, ACoordinatorThatWasAwayOverMidnightBooksBothDays) {
  const JobId id = Begin(InQueue("a"));
  const MemoryStore before = c.store();
  c.Advance(minutes(5));
  c.RestartFrom(before);
  Join(id);
  EXPECT_EQ(On("a", kFirstDay).slots.productive, kBeforeMidnight * 2 * kSecond);
  EXPECT_EQ(On("a", kFirstDay + 1).slots.productive, (300 - kBeforeMidnight) * 2 * kSecond);
  ExpectBooksAgree();
}

TEST_F(UsageScenarios, AClockThatIsSetBackOverMidnightCountsNothingTwice) {
  const JobId id = Begin(InQueue("a"));
  c.Advance(minutes(3));
  ASSERT_TRUE(c.Update({.job = id.value, .priority = 60}).status.ok());  // books
  ASSERT_GT(On("a", kFirstDay + 1).slots.productive, 0);
  const UsedMicros before = Slots();
  c.SetWallClock(-minutes(2));
  EXPECT_EQ(Slots(), before);
  c.Advance(seconds(10));
  ASSERT_TRUE(c.Update({.job = id.value, .priority = 61}).status.ok());
  const UsedMicros after{.productive = 190 * 2 * kSecond};
  EXPECT_EQ(Slots(), after);
  EXPECT_EQ(On("a", kFirstDay).slots.productive, (kBeforeMidnight + 10) * 2 * kSecond);
  for (int start = 0; start < 2; ++start) {
    c.Restart();
    EXPECT_EQ(Slots(), after);
    ExpectBooksAgree();
    c.SetWallClock(-minutes(1));
  }
}

TEST_F(UsageScenarios, WhatAFaultCostsIsLost) {
  const JobId id = Begin(InQueue("a"));
  c.Advance(minutes(1));
  c.Exited(id, 0, {.exit_code = 1});
  c.Advance(seconds(7));
  EXPECT_EQ(On("a", kFirstDay).slots.productive, 60 * 2 * kSecond);
  EXPECT_EQ(On("a", kFirstDay).slots.lost, 7 * 2 * kSecond);
  ExpectBooksAgree();
}

TEST_F(UsageScenarios, AJobThatMovesLeavesItsOldQueueWhatItHadThere) {
  const JobId id = Begin(InQueue("a"));
  c.Advance(seconds(40));
  ASSERT_TRUE(c.Update({.job = id.value, .queue = "b"}).status.ok());
  c.Advance(seconds(30));
  EXPECT_EQ(On("a", kFirstDay).slots.productive, 40 * 2 * kSecond);
  EXPECT_EQ(On("b", kFirstDay).slots.productive, 30 * 2 * kSecond);
  ExpectBooksAgree();
}

TEST_F(UsageScenarios, JobsAndQueuesThatAreGoneStay) {
  const JobId id = Begin(InQueue("a"));
  c.Advance(minutes(1));
  c.FinishAll(id);
  c.Deliver("n1", Released{id});
  c.Advance(minutes(3));
  ASSERT_EQ(c.controller().archived_jobs(), 1u);
  ASSERT_TRUE(c.ApplyQueues("queues: {default: {}}\n", 1).status.ok());
  c.Restart();
  EXPECT_EQ(On("a", kFirstDay).slots.productive, 60 * 2 * kSecond);
}

TEST_F(UsageScenarios, TheNewestFourHundredDaysAreKeptApartAndTheTotalNeverFalls) {
  const JobId id = Begin(InQueue("a"));
  std::int64_t productive = 0;
  for (int day = 0; day < 405; ++day) {
    c.SetWallClock(hours(24));
    c.Advance(seconds(1));
    ASSERT_TRUE(c.Update({.job = id.value, .priority = day % 2}).status.ok());
    ASSERT_GT(Slots().productive, productive);
    productive = Slots().productive;
  }
  EXPECT_EQ(productive, 405 * 2 * kSecond);
  for (int start = 0; start < 2; ++start) {
    const QueueDays all = c.controller().UsageByDay(c.now());
    EXPECT_EQ(all.size(), 401u);
    EXPECT_EQ(all.begin()->first, kOlderDays);
    EXPECT_EQ(std::prev(all.end())->first - std::next(all.begin())->first, 399);
    EXPECT_EQ(Slots().productive, productive);
    c.Restart();
  }
}

// Which a scrape must not show as a fall.
TEST_F(UsageScenarios, OlderDaysOfAQueueThatIsGoneStayAsLongAsItHasLaterOnes) {
  JobId id = Begin(InQueue("a"));
  std::int64_t of_a = 0;
  const auto pass_a_day = [&](int day) {
    c.SetWallClock(hours(24));
    c.Advance(seconds(1));
    ASSERT_TRUE(c.Update({.job = id.value, .priority = day % 2}).status.ok());
    const QueueTotals totals = c.controller().UsageTotals(c.now());
    EXPECT_EQ(totals, SumOfDays()) << day;
    const auto a = totals.find("a");
    ASSERT_EQ(a != totals.end(), day < 504) << day;
    if (a == totals.end()) return;
    EXPECT_GE(a->second.slots.productive, of_a) << day;
    of_a = a->second.slots.productive;
  };
  for (int day = 0; day < 105; ++day) pass_a_day(day);
  ASSERT_TRUE(c.Update({.job = id.value, .queue = "b"}).status.ok());
  ASSERT_TRUE(c.ApplyQueues("queues: {default: {}, b: {}}\n", 1).status.ok());
  for (int day = 105; day < 510; ++day) pass_a_day(day);
  c.Restart();
  EXPECT_EQ(c.controller().UsageTotals(c.now()), SumOfDays());
}

}  // namespace
}  // namespace muster
