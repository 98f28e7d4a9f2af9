#include "coordinator/detect/hang_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kSampleSeconds = 0.05;

// A gang whose ranks are sampled at 20 Hz on a clock of its own.
class Gang {
 public:
  explicit Gang(int size, HangOptions options = {}) : detector(options) {
    std::vector<NodeName> nodes;
    for (int r = 0; r < size; ++r) nodes.push_back(NodeName{"n" + std::to_string(r)});
    detector.Begin(std::move(nodes), now);
    ranks.resize(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      RankProgress& rank = ranks[static_cast<std::size_t>(r)];
      rank.rank = r;
      rank.phase = TrainPhase::kForward;
      rank.process_state = "S";
      rank.stores = 1;
      rank.collectives = {{.group = "world", .enqueued = 0, .completed = 0}};
    }
  }

  // Every rank finishes a step of `seconds`, which are sampled as they go by.
  std::optional<HangVerdict> Step(double seconds) {
    std::optional<HangVerdict> verdict = Stand(seconds);
    for (RankProgress& rank : ranks) {
      ++rank.step;
      ++rank.steps_done;
      ++rank.stores;
      rank.step_seconds = seconds;
      rank.collectives[0].enqueued += 3;
      rank.collectives[0].completed += 3;
    }
    const auto after = Sample();
    return verdict ? verdict : after;
  }
  void Steps(int count, double seconds) {
    for (int i = 0; i < count; ++i) EXPECT_FALSE(Step(seconds));
  }
  // Nothing changes for so long. The first verdict, and how long it took.
  std::optional<HangVerdict> Stand(double seconds) {
    std::optional<HangVerdict> first;
    const TimePoint begin = now;
    for (double t = 0; t < seconds; t += kSampleSeconds) {
      now += FromSeconds(kSampleSeconds);
      const auto verdict = Sample();
      if (!verdict || first) continue;
      first = verdict;
      took = ToSeconds(now - begin);
    }
    return first;
  }
  std::optional<HangVerdict> Sample() { return detector.Observe(ranks, now); }
  // No rank has a sample.
  void Freeze(double seconds) { now += FromSeconds(seconds); }

  HangDetector detector;
  TimePoint now;
  std::vector<RankProgress> ranks;
  double took = -1;
};

TEST(HangDetector, ARankThatNeverJoinsIsNamedAfterTheFloor) {
  Gang gang(3);
  gang.Steps(50, 0.1);
  gang.ranks[0].collectives[0].enqueued += 1;
  gang.ranks[2].collectives[0].enqueued += 1;
  gang.ranks[1].phase = TrainPhase::kData;
  const auto verdict = gang.Stand(4);
  ASSERT_TRUE(verdict);
  EXPECT_GE(gang.took, 2.8);
  EXPECT_LE(gang.took, 3.0) << "as promised";
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(verdict->what, "no progress for 2.8 s");
  EXPECT_THAT(verdict->reason, HasSubstr("rank 1 on n1 has not joined"));
  EXPECT_THAT(verdict->reason, HasSubstr("in phase data"));
  EXPECT_THAT(verdict->reason, HasSubstr("rank 0 waits for rank 1 in an all-gather of weights"));
  EXPECT_THAT(verdict->facts, Contains(HasSubstr("world: 151 enqueued, 150 completed")));
}

// Two nodes whose workers sample at 20 Hz and report what ProgressGate lets through: one message a
// second while a rank of theirs moves, every sample of a standstill from 0.9 s on.
class ReportedGang {
 public:
  ReportedGang() {
    detector.Begin({NodeName{"n0"}, NodeName{"n1"}}, now);
    for (int r = 0; r < 2; ++r)
      ranks.push_back(
          {.progress = {.rank = r, .phase = TrainPhase::kForward, .process_state = "S"}});
    ranks[1].reported_at = now - FromSeconds(0.45);  // not in step with the other
  }
  void Move(std::size_t rank) {
    ++ranks[rank].progress.stores;
    ranks[rank].moved_at = now;
    ranks[rank].progress.quiet_samples = 0;
  }
  // Steps of `seconds` for so long.
  void Train(double duration, double seconds) {
    const TimePoint end = now + FromSeconds(duration);
    for (TimePoint step_end = now + FromSeconds(seconds); now < end;) {
      for (std::size_t r = 0; r < 2; ++r) Move(r);
      for (; step_end <= now; step_end += FromSeconds(seconds)) {
        for (Rank& rank : ranks) {
          ++rank.progress.step;
          ++rank.progress.steps_done;
          rank.progress.step_seconds = seconds;
          rank.progress.slowest_step_seconds = seconds;
          rank.progress.busy_seconds += seconds;
        }
      }
      EXPECT_FALSE(Sample());
    }
  }
  // The seconds until a verdict.
  double UntilVerdict(double at_most) {
    const TimePoint begin = now;
    while (ToSeconds(now - begin) < at_most) {
      if (Sample()) return ToSeconds(now - begin);
    }
    return HUGE_VAL;
  }
  bool Sample() {
    now += FromSeconds(kSampleSeconds);
    bool verdict = false;
    for (Rank& rank : ranks) {
      ++rank.progress.quiet_samples;
      rank.progress.quiet_seconds = ToSeconds(now - rank.moved_at);
      const double pause = rank.progress.quiet_seconds < 0.9 ? 0.9 : 0;
      if (silent == rank.progress.rank || ToSeconds(now - rank.reported_at) < pause) continue;
      rank.reported_at = now;
      verdict = detector.Observe({rank.progress}, now).has_value() || verdict;
    }
    return verdict;
  }

  struct Rank {
    RankProgress progress;
    TimePoint moved_at;
    TimePoint reported_at;
  };
  HangDetector detector;
  TimePoint now;
  std::vector<Rank> ranks;
  int silent = -1;  // its node is silent
};

TEST(HangDetector, AHangIsNamedInTimeWhereMovingRanksAreReportedOnceASecond) {
  for (const double step : {0.014, 0.22, 0.9}) {
    for (double trained = 30; trained < 31; trained += 0.15) {
      ReportedGang gang;
      gang.Train(trained, step);
      const double took = gang.UntilVerdict(4);
      EXPECT_GE(took, 2.75) << step << ", " << trained;
      EXPECT_LE(took, 2.9) << step << ", " << trained;
    }
  }
}

TEST(HangDetector, FastStepsAreTrustedAsSoonAsThereAreEnoughOfThem) {
  ReportedGang gang;
  gang.Train(0.5, 0.5);
  gang.Train(2, 0.014);
  EXPECT_LE(gang.UntilVerdict(4), 2.9) << "and not ten times the first";
}

TEST(HangDetector, ASlowStepAmongFastOnesIsLearnedFrom) {
  Gang gang(1);
  gang.Steps(3, 0.1);
  RankProgress& rank = gang.ranks[0];
  for (int message = 0; message < 20; ++message) {
    rank.steps_done += 50;
    rank.step += 50;
    rank.busy_seconds += 49 * 0.01 + 4;
    rank.slowest_step_seconds = 4;
    rank.step_seconds = 0.01;
    EXPECT_FALSE(gang.Sample());
  }
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 11.6) << "one in fifty";
  for (int message = 0; message < 20; ++message) {
    rank.steps_done += 50;
    rank.step += 50;
    rank.busy_seconds += 50 * 0.01;
    rank.slowest_step_seconds = 0.01;
    EXPECT_FALSE(gang.Sample());
  }
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 2.8);
}

TEST(HangDetector, ANodeThatFallsSilentInAStandstillOfTheOtherIsNoHang) {
  ReportedGang gang;
  gang.Train(30, 0.1);
  // Rank 0 waits for rank 1, which still computes in the last report of its node.
  for (int i = 0; i < 100; ++i) {
    gang.Move(1);
    EXPECT_FALSE(gang.Sample());
  }
  gang.silent = 1;
  EXPECT_EQ(gang.UntilVerdict(60), HUGE_VAL);
}

TEST(HangDetector, ARankThatHasWaitedForLongIsSampledInTheStandstillToo) {
  ReportedGang gang;
  gang.Train(30, 0.1);
  for (int i = 0; i < 200; ++i) {
    gang.Move(1);
    EXPECT_FALSE(gang.Sample());
  }
  EXPECT_LE(gang.UntilVerdict(4), 2.9);
}

TEST(HangDetector, QuietTimeWithoutSamplesIsNoStandstill) {
  ReportedGang gang;
  gang.Train(30, 0.1);
  gang.now += FromSeconds(10);  // the machines were frozen
  EXPECT_GE(gang.UntilVerdict(4), 1.4) << "30 samples";
}

TEST(HangDetector, AVerdictIsGivenOnceForEachStandstill) {
  Gang gang(2);
  gang.Steps(30, 0.1);
  ASSERT_TRUE(gang.Stand(4));
  EXPECT_FALSE(gang.Stand(20));
  gang.Steps(1, 0.1);
  EXPECT_TRUE(gang.Stand(4));
}

TEST(HangDetector, TheLimitFollowsTheStepsOfTheJob) {
  Gang gang(2);
  gang.Steps(30, 4);
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 11.6);
  EXPECT_FALSE(gang.Stand(11.5));
  EXPECT_TRUE(gang.Stand(0.5));
}

TEST(HangDetector, StepsOfTheWarmUpAreNotLearnedFrom) {
  Gang gang(2);
  gang.Steps(2, 20);
  gang.Steps(40, 0.5);
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 2.8);
}

TEST(HangDetector, WithFewStepsTheSlowestCountsTenfold) {
  Gang gang(2);
  gang.Steps(3, 1);
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 10);
  EXPECT_FALSE(gang.Stand(9.5));
  EXPECT_TRUE(gang.Stand(1));
}

TEST(HangDetector, ANewGangKeepsWhatTheFormerHadLearned) {
  Gang gang(2);
  gang.Steps(30, 2);
  gang.detector.Begin({NodeName{"n0"}, NodeName{"n1"}}, gang.now);
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 5.8);
  // A smaller gang takes longer for a step; that is not held against it.
  for (RankProgress& rank : gang.ranks) rank.steps_done = 0;
  gang.Steps(1, 4);
  EXPECT_DOUBLE_EQ(gang.detector.OrdinaryLimit(), 11.6);
}

// --- what must not be taken for a hang ---

TEST(HangDetector, AMachineFrozenForTenSecondsIsNoHang) {
  Gang gang(4);
  gang.Steps(50, 0.1);
  gang.Freeze(10);
  // Samples that show the same picture come before the ranks have moved again.
  for (int i = 0; i < 25; ++i) EXPECT_FALSE(gang.Sample()) << i;
  gang.Steps(50, 0.1);
}

TEST(HangDetector, ASilentNodeIsNoHang) {
  Gang gang(2);
  gang.Steps(50, 0.1);
  // Rank 0 waits for rank 1, whose node is silent: it may well go on.
  for (int i = 0; i < 600; ++i) {
    gang.now += FromSeconds(kSampleSeconds);
    EXPECT_FALSE(gang.detector.Observe({gang.ranks[0]}, gang.now));
  }
}

TEST(HangDetector, WildlyVaryingStepsUnderOverloadAreNoHang) {
  std::mt19937 random(7);
  // From 20 ms to 2.9 s, and now and then one of 7 s, as a starved machine shows them.
  std::uniform_real_distribution<double> usual(-3.9, 1.06);
  Gang gang(4);
  for (int i = 0; i < 2000; ++i) {
    const double seconds = i % 50 == 49 ? 7 : std::exp(usual(random));
    ASSERT_FALSE(gang.Step(seconds)) << "step " << i << " of " << seconds << " s";
  }
}

TEST(HangDetector, OneRankThatStillComputesKeepsTheGangAlive) {
  Gang gang(3);
  gang.Steps(50, 0.1);
  for (int i = 0; i < 100; ++i) {
    ++gang.ranks[2].micro_batch;
    EXPECT_FALSE(gang.Stand(2.5));
  }
}

struct QuietPhase {
  TrainPhase phase;
  std::int64_t steps_done;
};
class QuietPhases : public ::testing::TestWithParam<QuietPhase> {};

TEST_P(QuietPhases, HaveABudgetOfTheirOwn) {
  Gang gang(2);
  gang.Steps(50, 0.1);
  gang.ranks[0].collectives[0].enqueued += 1;
  gang.ranks[1].phase = GetParam().phase;
  gang.ranks[1].steps_done = GetParam().steps_done;
  EXPECT_FALSE(gang.Stand(590));
  EXPECT_TRUE(gang.Stand(20));
}

INSTANTIATE_TEST_SUITE_P(Phases, QuietPhases,
                         ::testing::Values(QuietPhase{TrainPhase::kForming, 0},
                                           QuietPhase{TrainPhase::kLoading, 0},
                                           QuietPhase{TrainPhase::kReadingRows, 0},
                                           QuietPhase{TrainPhase::kLoadingFrozen, 0},
                                           QuietPhase{TrainPhase::kForward, 0},
                                           QuietPhase{TrainPhase::kCheckpoint, 50},
                                           QuietPhase{TrainPhase::kExporting, 50},
                                           QuietPhase{TrainPhase::kEvaluating, 50}));

TEST(HangDetector, AnEvaluationMayTakeTenTimesAsLongAsTheOneBefore) {
  Gang gang(2);
  gang.Steps(50, 0.1);
  for (RankProgress& rank : gang.ranks) rank.phase = TrainPhase::kEvaluating;
  EXPECT_FALSE(gang.Stand(2));
  for (RankProgress& rank : gang.ranks) rank.phase = TrainPhase::kForward;
  gang.Steps(5, 0.1);
  for (RankProgress& rank : gang.ranks) rank.phase = TrainPhase::kEvaluating;
  EXPECT_FALSE(gang.Stand(19));
  EXPECT_TRUE(gang.Stand(2));
}

TEST(HangDetector, AStoppedProcessIsExcusedByNoBudget) {
  Gang gang(2);
  gang.Steps(50, 0.1);
  gang.ranks[1].phase = TrainPhase::kCheckpoint;
  gang.ranks[1].process_state = "T";
  const auto verdict = gang.Stand(4);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_LE(gang.took, 3.0);
}

TEST(HangDetector, AStopIsNoticedAlsoWhereTheLimitWasAskedForBefore) {
  Gang gang(2);
  gang.Steps(50, 0.1);
  gang.ranks[1].phase = TrainPhase::kCheckpoint;
  EXPECT_FALSE(gang.Stand(10));
  gang.ranks[1].process_state = "T";
  EXPECT_TRUE(gang.Stand(1));
}

TEST(HangDetector, ProgramsWithoutAPageAreNotJudged) {
  Gang gang(2);
  for (RankProgress& rank : gang.ranks) rank = RankProgress{.rank = rank.rank};
  EXPECT_FALSE(gang.Stand(1000));
}

TEST(HangDetector, NothingIsExpectedOfARankThatHasEnded) {
  Gang gang(3);
  gang.Steps(50, 0.1);
  EXPECT_FALSE(gang.Stand(2));
  gang.detector.RankEnded(2);
  gang.detector.RankEnded(2);
  gang.ranks.pop_back();
  gang.ranks[0].collectives[0].enqueued += 1;
  const auto verdict = gang.Stand(4);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  gang.detector.RankEnded(0);
  gang.detector.RankEnded(1);
  EXPECT_FALSE(gang.Stand(1000));
}

TEST(HangDetector, RanksOutOfRangeAreIgnored) {
  Gang gang(1);
  gang.ranks[0].rank = 5;
  gang.detector.RankEnded(-1);
  gang.detector.RankEnded(7);
  EXPECT_FALSE(gang.Stand(1000));
}

TEST(StepTimes, ForgetsOldStepsAndLeavesOneInAHundredOut) {
  StepTimes times;
  EXPECT_EQ(times.Percentile99(), 0);
  for (int i = 0; i < 600; ++i) times.Add(100);
  for (int i = 1; i <= 512; ++i) times.Add(i);
  EXPECT_EQ(times.size(), 512u);
  EXPECT_EQ(times.Percentile99(), 507);
  times.Add(600, 6);
  EXPECT_EQ(times.Percentile99(), 600) << "one in a hundred and more";
  times.Add(1, 1'000'000'000'000);
  EXPECT_EQ(times.size(), 512u);
  EXPECT_EQ(times.Percentile99(), 1);
}

}  // namespace
}  // namespace muster
