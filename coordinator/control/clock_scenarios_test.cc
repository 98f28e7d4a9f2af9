// A clock of the day that is set, by minutes and by days: nothing that is owed to a job, and
// nothing that it has used, changes with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr Duration kSet[] = {-minutes(5), -hours(48), hours(48)};
constexpr Duration kSetBack[] = {-minutes(5), -hours(48)};

constexpr char kTeams[] =
    "half_life: 2m\n"
    "preemption: {after: 1m}\n"
    "classes: {urgent: 10}\n"
    "queues: {default: {}, a: {}, b: {}}\n";

std::string Train(const std::string& name, const std::string& resources,
                  const std::string& more = "") {
  std::string yaml = TrainYaml(name, more);
  return yaml.replace(yaml.find("nodes: 2, "), 10, resources + ", ");
}

struct ClockScenarios : ControlHarness {
  ClockScenarios() {
    Join("n1");
    Join("n2");
    ApplyQueues(kTeams, 0);
  }
  JobId Trains(const std::string& name, const std::string& resources,
               const std::string& more = "") {
    const JobId id = Submit(Train(name, resources, more));
    RunTo(id, 12);
    return id;
  }
  // Trains on for `d`, a step a minute.
  void GoOn(const JobId& id, Duration d) {
    for (; d > Duration::zero(); d -= minutes(1)) {
      Advance(std::min<Duration>(d, minutes(1)));
      StepTo(id, Job(id).record->step + 1);
    }
  }
  void SetBackAndRestart(Duration by, const JobId& on_both) {
    SetWallClock(by);
    Restart();
    for (const char* node : {"n1", "n2"})
      Join(node, {.hosted = {Hosted(node, on_both, AttemptState::kRunning)}});
  }
  std::int64_t PromisedIn(const JobId& id) const {
    return Job(id).record->promise.start_unix_ms - now().unix_ms;
  }
  bool Stops(const JobId& id) const { return State(id) == JobState::kStopping; }
  Reply SetLimit(const JobId& id, std::int64_t limit_seconds) {
    UpdateRequested update{.job = id.value};
    update.time_limit_seconds = limit_seconds;
    return Update(update);
  }
};

TEST(ClockScenariosTest, ANewTimeLimitCountsWhatWasUsed) {
  for (const Duration by : kSet) {
    ClockScenarios c;
    const JobId id = c.Trains("job", "nodes: 2, time_limit: 1h");
    c.GoOn(id, minutes(30));
    c.SetWallClock(by);
    ASSERT_TRUE(c.SetLimit(id, 2400).status.ok());
    c.Advance(minutes(9));
    EXPECT_FALSE(c.Stops(id)) << c.Timeline();
    c.Advance(minutes(2));
    EXPECT_TRUE(c.Stops(id)) << c.Timeline();
  }
}

TEST(ClockScenariosTest, ATimeLimitGoesOnWithTheNextCoordinator) {
  for (const Duration by : kSetBack) {
    ClockScenarios c;
    const JobId id = c.Trains("job", "nodes: 2, time_limit: 40m");
    c.GoOn(id, minutes(30));
    for (int start = 0; start < 2; ++start) c.SetBackAndRestart(by, id);
    c.Advance(minutes(8));
    EXPECT_FALSE(c.Stops(id)) << c.Timeline();
    c.Advance(minutes(3));
    EXPECT_TRUE(c.Stops(id)) << c.Timeline();
  }
}

// A step of the clock in a running coordinator is not found again by the next one.
TEST(ClockScenariosTest, AStepCountsOnce) {
  ClockScenarios c;
  const JobId id = c.Trains("job", "nodes: 2, time_limit: 40m");
  const JobId early = c.Submit(Train("early", "nodes: 1"));
  c.GoOn(id, minutes(30));
  c.SetWallClock(-hours(48));
  c.Advance(seconds(1));
  c.SetBackAndRestart(Duration::zero(), id);
  EXPECT_EQ(c.Job(id).record->started_unix_ms, c.now().unix_ms - 1'801'000) << c.Timeline();
  EXPECT_EQ(c.State(early), JobState::kQueued);
}

TEST(ClockScenariosTest, APromiseHolds) {
  for (const bool restart : {false, true}) {
    for (const Duration by : kSetBack) {
      ClockScenarios c;
      const JobId first = c.Trains("first", "nodes: 2, time_limit: 1h");
      const JobId wide = c.Submit(Train("wide", "nodes: 2, time_limit: 1h"));
      const std::int64_t promised = c.PromisedIn(wide);
      ASSERT_GT(promised, 0);
      c.GoOn(first, minutes(10));
      restart ? c.SetBackAndRestart(by, first) : c.SetWallClock(by);
      c.Submit(Train("another", "nodes: 1, time_limit: 1h"));
      EXPECT_NEAR(c.PromisedIn(wide), promised - 600'000, 2'000) << c.Timeline();
      EXPECT_EQ(c.CountEvents(wide, "delayed"), 0) << c.Timeline();
    }
  }
}

TEST(ClockScenariosTest, AnOldGangGivesWayAtOnceAndAYoungOneDoesNot) {
  for (const bool restart : {false, true}) {
    for (const Duration by : kSetBack) {
      for (const bool old : {false, true}) {
        ClockScenarios c;
        const JobId low = c.Trains("low", "nodes: 2");
        c.GoOn(low, seconds(old ? 90 : 20));
        restart ? c.SetBackAndRestart(by, low) : c.SetWallClock(by);
        c.Submit(Train("high", "nodes: 1", "class: urgent\n"));
        EXPECT_EQ(c.Stops(low), old) << c.Timeline();
        c.Advance(minutes(1));
        EXPECT_TRUE(c.Stops(low) || c.State(low) == JobState::kQueued) << c.Timeline();
      }
    }
  }
}

TEST(ClockScenariosTest, AVictimHasNoMoreTimeToSaveAndItsClaimantWaitsNoLonger) {
  for (const bool restart : {false, true}) {
    for (const Duration by : kSet) {
      if (restart && by > Duration::zero()) continue;  // it is a long time that it was down
      ClockScenarios c;
      const JobId low = c.Trains("low", "nodes: 2");
      c.GoOn(low, minutes(2));
      const JobId high = c.Submit(Train("high", "nodes: 1", "class: urgent\n"));
      ASSERT_TRUE(c.Stops(low)) << c.Timeline();
      c.Advance(seconds(10));
      c.Submit(Train("other", "nodes: 1, time_limit: 1h"));  // what is stored last
      c.Forget();
      restart ? c.SetBackAndRestart(by, low) : c.SetWallClock(by);
      c.Submit(Train("another", "nodes: 1, time_limit: 1h"));
      EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
      EXPECT_LE(c.PromisedIn(high), 120'000) << c.Timeline();
      EXPECT_TRUE(c.Take<Abort>("n1").empty());
      c.Advance(seconds(100));
      EXPECT_EQ(c.Take<Abort>("n1").size(), 1u) << "it has not saved in time\n" << c.Timeline();
      EXPECT_EQ(c.CountEvents(high, "delayed"), 0) << c.Timeline();
    }
  }
}

// By less than before, by what was before, and by so much that 2^(time / half-life) is no number.
TEST(ClockScenariosTest, QueuesKeepTheirShares) {
  for (const bool restart : {false, true}) {
    for (const Duration by :
         {Duration(-minutes(5)), Duration(-hours(48)), Duration(-hours(24 * 365))}) {
      ClockScenarios c;
      const auto had = [&c](const char* queue, Duration d) {
        const JobId id = c.Trains(queue, "nodes: 2", std::string("queue: ") + queue + "\n");
        c.GoOn(id, d);
        c.FinishAll(id);
      };
      had("a", minutes(4));
      const JobId block = c.Trains("block", "nodes: 2");
      c.GoOn(block, seconds(20));
      restart ? c.SetBackAndRestart(by, block) : c.SetWallClock(by);
      c.FinishAll(block);
      had("b", minutes(2));
      const QueuesView queues = c.controller().Queues();
      EXPECT_NEAR(queues.queues[1].usage_share, 0.376, 0.03);
      EXPECT_NEAR(queues.queues[2].usage_share, 0.563, 0.03);
      EXPECT_NEAR(queues.queues[0].usage_share, 0.061, 0.02);
    }
  }
}

TEST(ClockScenariosTest, WhatIsOverLeavesMemoryAfterItsRetention) {
  for (const bool restart : {false, true}) {
    for (const Duration by : kSetBack) {
      ClockScenarios c;
      const JobId id = c.Trains("job", "nodes: 2");
      c.FinishAll(id);
      for (const char* node : {"n1", "n2"}) c.Deliver(node, Released{id});
      c.Leave("n2");
      c.Advance(minutes(2));
      ASSERT_EQ(c.Node("n2").record->state, NodeState::kLost) << c.Timeline();
      c.SetWallClock(by);
      if (restart) c.Restart();
      c.Oversleep(ControllerOptions().retain);
      c.Advance(seconds(1));
      EXPECT_EQ(c.controller().archived_jobs(), 1u) << c.Timeline();
    }
  }
}

TEST(ClockScenariosTest, ADrainIsOverInTime) {
  ClockScenarios c;
  const JobId id = c.Trains("job", "nodes: 2");
  ASSERT_TRUE(c.Drain("n1", 100).status.ok());
  c.Forget();
  c.SetBackAndRestart(-hours(48), id);
  c.Advance(seconds(90));
  EXPECT_TRUE(c.Take<Abort>("n1").empty()) << c.Timeline();
  c.Advance(seconds(15));
  EXPECT_EQ(c.Take<Abort>("n1").size(), 1u) << c.Timeline();
}

TEST(ClockScenariosTest, AnEventSaysSo) {
  ClockScenarios c;
  const auto events = [&c] {
    std::vector<std::string> events;
    for (const EventRecord& event : c.controller().Events())
      if (event.kind == "clock_set") events.push_back(event.message);
    return events;
  };
  c.Oversleep(hours(1));
  c.SetWallClock(-seconds(2));
  c.Advance(seconds(1));
  EXPECT_THAT(events(), ElementsAre());
  c.SetWallClock(-minutes(5));
  c.Advance(seconds(1));
  c.Restart();
  c.SetWallClock(hours(48));
  c.Advance(seconds(1));
  EXPECT_THAT(events(),
              ElementsAre("the clock of the day was set back by 5m; what jobs were promised and "
                          "have used moves along",
                          "the clock of the day was set ahead by 2d; what jobs were promised and "
                          "have used moves along"));
}

}  // namespace
}  // namespace muster
