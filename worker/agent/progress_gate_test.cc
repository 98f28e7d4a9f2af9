#include "worker/agent/progress_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace muster::worker {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSample = 50ms;
constexpr Duration kInterval = 900ms;

// A node's ranks, sampled at 20 Hz on a clock of its own.
class Node {
 public:
  explicit Node(int size) : ranks(static_cast<std::size_t>(size)) {
    for (int r = 0; r < size; ++r) {
      RankProgress& rank = ranks[static_cast<std::size_t>(r)];
      rank = {.rank = r, .phase = TrainPhase::kForward, .stores = 1, .process_state = "S"};
    }
    EXPECT_TRUE(Sample()) << "they are new";
  }

  bool Sample() {
    now += kSample;
    shown = ranks;
    const bool send = gate.Observe(&shown, now, kInterval);
    if (!send) return false;
    longest_pause = std::max(longest_pause, now - sent_at);
    sent_at = now;
    return true;
  }
  // The messages of this duration, in which the ranks move between any two samples.
  int Train(Duration duration) {
    return Watch(duration, [this] {
      for (RankProgress& rank : ranks) ++rank.stores;
    });
  }
  int Stand(Duration duration) {
    return Watch(duration, [] {});
  }
  template <typename Act>
  int Watch(Duration duration, Act act) {
    int messages = 0;
    longest_pause = {};
    for (const TimePoint end = now + duration; now < end;) {
      act();
      messages += Sample();
    }
    return messages;
  }

  ProgressGate gate;
  TimePoint now = TimePoint() + 1h;
  TimePoint sent_at = now;
  Duration longest_pause{};
  std::vector<RankProgress> ranks;
  std::vector<RankProgress> shown;
};

TEST(ProgressGate, ATrainingNodeSendsOneMessagePerInterval) {
  Node node(8);
  EXPECT_EQ(node.Train(90s), 100);
  EXPECT_EQ(node.longest_pause, kInterval);
}

TEST(ProgressGate, PhasesWithinAStepAreNoNews) {
  Node node(1);
  for (const TrainPhase phase : {TrainPhase::kData, TrainPhase::kForward, TrainPhase::kBackward,
                                 TrainPhase::kOptimizer, TrainPhase::kData}) {
    node.ranks[0].phase = phase;
    EXPECT_FALSE(node.Sample()) << TrainPhaseName(phase);
  }
}

TEST(ProgressGate, ALifecyclePhaseIsSentAtOnceAndOnce) {
  Node node(2);
  for (const TrainPhase phase :
       {TrainPhase::kStarting, TrainPhase::kForming, TrainPhase::kReadingRows, TrainPhase::kLoading,
        TrainPhase::kData, TrainPhase::kEvaluating, TrainPhase::kCheckpoint, TrainPhase::kExporting,
        TrainPhase::kDone}) {
    node.ranks[1].phase = phase;
    EXPECT_TRUE(node.Sample()) << TrainPhaseName(phase);
    EXPECT_EQ(node.shown[1].phase, phase);
    EXPECT_FALSE(node.Sample()) << TrainPhaseName(phase);
  }
}

TEST(ProgressGate, AnotherProcessStateIsSentAtOnce) {
  Node node(2);
  for (const char* state : {"T", "S", "D", "R", "Z", ""}) {
    node.ranks[1].process_state = state;
    EXPECT_TRUE(node.Sample()) << state;
    EXPECT_FALSE(node.Sample()) << state;
  }
}

TEST(ProgressGate, RunningAndSleepingAreOneState) {
  Node node(1);
  for (const char* state : {"R", "S", "I", "R"}) {
    node.ranks[0].process_state = state;
    EXPECT_FALSE(node.Sample()) << state;
  }
}

TEST(ProgressGate, AStandstillIsSentFromAThirdOfTheShortestHangLimitOn) {
  Node node(2);
  node.Train(5s);
  const TimePoint moved_at = node.now;
  EXPECT_LE(node.Stand(850ms), 1) << "a regular one";
  EXPECT_EQ(node.Stand(2150ms), 43) << "every sample, up to 3 s";
  EXPECT_EQ(node.now, moved_at + 3s);
  for (const RankProgress& rank : node.shown) {
    EXPECT_DOUBLE_EQ(rank.quiet_seconds, 3);
    EXPECT_EQ(rank.quiet_samples, 61u);
  }
}

TEST(ProgressGate, ALongStandstillIsSentEverLessOften) {
  Node node(1);
  node.Stand(8s);
  node.Stand(4s);
  EXPECT_LE(node.longest_pause, 200ms + kSample);
  node.Stand(60s);
  EXPECT_LE(node.Stand(90s), 100);
  EXPECT_EQ(node.longest_pause, kInterval);
}

TEST(ProgressGate, OneRankThatMovesKeepsTheNodeQuiet) {
  Node node(2);
  const int messages = node.Watch(90s, [&] { ++node.ranks[1].micro_batch; });
  EXPECT_EQ(messages, 100);
  EXPECT_DOUBLE_EQ(node.shown[0].quiet_seconds, 90);
  EXPECT_EQ(node.shown[1].quiet_samples, 1u);
  EXPECT_EQ(node.shown[1].quiet_seconds, 0);
}

TEST(ProgressGate, AProgramThatHasNeverStoredIsNotExpectedTo) {
  Node node(1);
  node.ranks[0].stores = 0;
  node.Sample();
  EXPECT_EQ(node.Stand(90s), 100);
  node.ranks[0].process_state = "T";
  EXPECT_TRUE(node.Sample());
  EXPECT_EQ(node.Stand(1s), 1) << "it has stood for long already";
}

TEST(ProgressGate, AnEndedRankIsSentAtOnceAndExpectedToDoNothing) {
  Node node(2);
  node.gate.EndRank(1);
  node.ranks[1].process_state = "";
  EXPECT_TRUE(node.Sample());
  EXPECT_EQ(node.Train(90s), 100);
  node.Watch(3s, [] {});
  EXPECT_EQ(node.shown[0].quiet_samples, 61u) << "the other one alone stands still";
  EXPECT_EQ(node.shown[1].quiet_samples, 0u);
  node.gate.EndRank(0);
  EXPECT_TRUE(node.Sample());
  EXPECT_EQ(node.Stand(90s), 0);
}

TEST(ProgressGate, AReplacedProcessBeginsAnew) {
  Node node(1);
  node.gate.EndRank(0);
  node.Stand(2s);
  node.gate.BeginRank(0);
  EXPECT_TRUE(node.Sample());
  EXPECT_EQ(node.shown[0].quiet_samples, 1u);
  EXPECT_EQ(node.Train(90s), 100);
}

// Finishes a step of so long.
void FinishStep(RankProgress& rank, double seconds) {
  ++rank.stores;
  ++rank.step;
  ++rank.steps_done;
  rank.step_seconds = seconds;
  rank.busy_seconds += 0.75 * seconds;
  rank.wait_seconds += 0.25 * seconds;
}

TEST(ProgressGate, TheSlowestStepBetweenTwoMessagesIsNotLost) {
  Node node(1);
  FinishStep(node.ranks[0], 0.02);
  node.Sample();
  // Between two samples: only the newest of these steps is seen.
  FinishStep(node.ranks[0], 0.5);
  FinishStep(node.ranks[0], 0.02);
  FinishStep(node.ranks[0], 0.02);
  node.Sample();
  const auto step = [&] { FinishStep(node.ranks[0], 0.02); };
  EXPECT_EQ(node.Watch(800ms, step), 1);
  EXPECT_NEAR(node.shown[0].slowest_step_seconds, 0.5, 1e-9);
  EXPECT_EQ(node.Watch(900ms, step), 1);
  EXPECT_NEAR(node.shown[0].slowest_step_seconds, 0.02, 1e-9);
}

TEST(ProgressGate, StepsOfDifferentDurationsAreEstimatedByTheirSum) {
  Node node(1);
  FinishStep(node.ranks[0], 0.1);
  FinishStep(node.ranks[0], 0.3);
  node.Sample();
  EXPECT_DOUBLE_EQ(node.shown[0].slowest_step_seconds, 0.3);
}

}  // namespace
}  // namespace muster::worker
