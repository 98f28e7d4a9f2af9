#include "coordinator/detect/straggler_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace muster {
namespace {

constexpr std::size_t kData = 3;  // in the order of TrainPhase
constexpr std::size_t kForward = 4;

class Gang {
 public:
  explicit Gang(std::size_t size) : ranks(size), busy(size, 0.1), data(size, 0) {
    std::vector<NodeName> nodes;
    for (std::size_t r = 0; r < size; ++r) {
      nodes.push_back(NodeName{"n" + std::to_string(r)});
      ranks[r].rank = static_cast<int>(r);
      ranks[r].phase_seconds.resize(13);
    }
    detector.Begin(nodes);
  }

  // A step of all ranks; ranks that finish their own work before `longest` wait for the others.
  void Step(double longest) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ++ranks[r].steps_done;
      ranks[r].busy_seconds += busy[r];
      ranks[r].wait_seconds += longest - busy[r];
      ranks[r].phase_seconds[kData] += data[r];
      ranks[r].phase_seconds[kForward] += 0.05;
    }
  }
  // Steps go by, and a sample is taken after every `per_sample` of them.
  std::vector<Straggler> Steps(int count, int per_sample = 1) {
    std::vector<Straggler> named;
    for (int i = 1; i <= count; ++i) {
      Step(*std::max_element(busy.begin(), busy.end()));
      if (i % per_sample != 0) continue;
      const StragglerNews news = detector.Observe(ranks);
      named.insert(named.end(), news.named.begin(), news.named.end());
      cleared.insert(cleared.end(), news.cleared.begin(), news.cleared.end());
    }
    return named;
  }
  void Slow(std::size_t rank, double by) {
    busy[rank] += by;
    data[rank] += by;
  }

  StragglerDetector detector;
  std::vector<RankProgress> ranks;
  std::vector<double> busy;  // per step
  std::vector<double> data;
  std::vector<Straggler> cleared;
};

TEST(StragglerDetector, NamesRankNodeAndPhaseWithinFortySteps) {
  Gang gang(4);
  gang.Steps(11);
  gang.Slow(2, 0.03);
  EXPECT_TRUE(gang.Steps(20).empty());
  EXPECT_EQ(gang.detector.worst(), nullptr);
  const auto named = gang.Steps(20);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].rank, 2);
  EXPECT_EQ(named[0].node.value, "n2");
  EXPECT_EQ(named[0].phase, "data");
  EXPECT_NEAR(named[0].ratio(), 1.3, 0.001);
  EXPECT_EQ(NamedText(named[0]),
            "rank 2 on n2 holds the others up: its own work takes 1.30 times as long as theirs "
            "(130 ms a step, 100 ms elsewhere), most of it in phase data");
  ASSERT_NE(gang.detector.worst(), nullptr);
  EXPECT_EQ(gang.detector.worst()->rank, 2);
}

TEST(StragglerDetector, FastStepsBetweenTwoSamplesAreCountedToo) {
  Gang gang(2);
  gang.Slow(1, 0.03);
  EXPECT_EQ(gang.Steps(90, 9).size(), 1u);
}

TEST(StragglerDetector, IsNamedOnceAndClearedOnce) {
  Gang gang(3);
  gang.Slow(1, 0.05);
  EXPECT_EQ(gang.Steps(200).size(), 1u);
  EXPECT_TRUE(gang.cleared.empty());
  gang.Slow(1, -0.05);
  EXPECT_TRUE(gang.Steps(50).empty());
  EXPECT_TRUE(gang.cleared.empty()) << "it may be slow again at once";
  EXPECT_EQ(gang.detector.worst()->rank, 1);
  EXPECT_TRUE(gang.Steps(60).empty());
  ASSERT_EQ(gang.cleared.size(), 1u);
  EXPECT_EQ(ClearedText(gang.cleared[0]), "rank 1 on n1 no longer holds the others up");
  EXPECT_EQ(gang.detector.worst(), nullptr);
}

TEST(StragglerDetector, AVerdictThatDidNotLastMakesTheNextOneTakeTwiceAsLong) {
  Gang gang(3);
  std::vector<int> steps;
  for (int i = 0; i < 7; ++i) {
    gang.Slow(1, 0.05);
    int needed = 0;
    for (; gang.detector.worst() == nullptr && needed < 1000; needed += 5) gang.Steps(5);
    steps.push_back(needed);
    gang.Slow(1, -0.05);
    gang.Steps(1500);
    ASSERT_EQ(gang.detector.worst(), nullptr);
  }
  EXPECT_EQ(steps, (std::vector<int>{30, 55, 105, 205, 405, 405, 405}));
}

TEST(StragglerDetector, OneLongPauseIsNothing) {
  Gang gang(3);
  gang.Steps(50);
  gang.Slow(1, 60);
  EXPECT_TRUE(gang.Steps(1).empty());
  gang.Slow(1, -60);
  EXPECT_TRUE(gang.Steps(50).empty());
}

TEST(StragglerDetector, ANewGangForgetsTheStragglerOfTheLast) {
  Gang gang(2);
  gang.Slow(1, 0.05);
  EXPECT_EQ(gang.Steps(60).size(), 1u);
  gang.detector.Begin({NodeName{"n0"}, NodeName{"n1"}});
  EXPECT_EQ(gang.detector.worst(), nullptr);
}

TEST(StragglerDetector, LessThanATenthIsNothing) {
  Gang gang(4);
  gang.Slow(3, 0.009);
  EXPECT_TRUE(gang.Steps(500).empty());
}

TEST(StragglerDetector, BeingSlowNowAndThenIsNothing) {
  Gang gang(4);
  gang.Steps(1);
  for (int i = 0; i < 20; ++i) {
    gang.Slow(1, 0.05);
    EXPECT_TRUE(gang.Steps(10).empty());
    gang.Slow(1, -0.05);
    EXPECT_TRUE(gang.Steps(20).empty());
  }
}

TEST(StragglerDetector, AllEquallySlowIsNothing) {
  Gang gang(4);
  gang.Steps(20);
  for (std::size_t r = 0; r < 4; ++r) gang.Slow(r, 1);
  EXPECT_TRUE(gang.Steps(100).empty());
}

TEST(StragglerDetector, TheWorseOfTwoComesFirst) {
  Gang gang(5);
  gang.Slow(1, 0.03);
  gang.Slow(4, 0.08);
  const auto named = gang.Steps(40);
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0].rank, 4);
  EXPECT_EQ(named[1].rank, 1);
  EXPECT_EQ(gang.detector.worst()->rank, 4);
}

// Own work per step in seconds, by rank, of processes with equal work on a machine that others used
// too; testdata says how it was recorded.
std::vector<std::vector<double>> Recorded(const std::string& name) {
  std::ifstream file(MUSTER_TESTDATA "/" + name);
  std::vector<std::vector<double>> ranks(4);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream numbers(line);
    for (std::vector<double>& rank : ranks) numbers >> rank.emplace_back();
    for (std::vector<double>& rank : ranks) rank.back() /= 1000;
  }
  return ranks;
}

struct Slowed {
  std::size_t rank = 0;
  std::size_t from_step = 0;
  std::size_t to_step = 0;
};

struct Verdict {
  std::size_t step = 0;
  int rank = 0;
  bool named = false;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// The steps of a recording as their workers report them: each lasts as long as its slowest rank.
std::vector<Verdict> Replay(const std::vector<std::vector<double>>& recorded, double interval,
                            Slowed slowed = {}) {
  Gang gang(recorded.size());
  std::vector<Verdict> verdicts;
  double now = 0;
  double sample_at = interval;
  for (std::size_t step = 1; step <= recorded[0].size(); ++step) {
    double longest = 0;
    for (std::size_t r = 0; r < recorded.size(); ++r) {
      const bool slow = r == slowed.rank && step > slowed.from_step && step <= slowed.to_step;
      gang.busy[r] = recorded[r][step - 1] * (slow ? 1.3 : 1);
      longest = std::max(longest, gang.busy[r]);
    }
    gang.Step(longest);
    now += longest;
    if (now < sample_at) continue;
    while (sample_at <= now) sample_at += interval;
    const StragglerNews news = gang.detector.Observe(gang.ranks);
    for (const Straggler& each : news.named) verdicts.push_back({step, each.rank, true});
    for (const Straggler& each : news.cleared) verdicts.push_back({step, each.rank, false});
  }
  return verdicts;
}

struct Noise {
  const char* file;
  double interval;           // of reports, in seconds
  std::size_t named_within;  // steps
};

class RecordedNoise : public testing::TestWithParam<Noise> {};

// A step's work varies by half of itself; over 20 steps the slowest rank needs up to 1.34 times the
// median of the others, and that is another rank each time.
TEST_P(RecordedNoise, IsNoStraggler) {
  const auto recorded = Recorded(GetParam().file);
  ASSERT_EQ(recorded[3].size(), 400u);
  EXPECT_TRUE(Replay(recorded, GetParam().interval).empty());
}

TEST_P(RecordedNoise, ARankSlowedByAThirdIsNamedOnceAndClearedOnceAmidIt) {
  const auto recorded = Recorded(GetParam().file);
  for (const std::size_t rank : {0u, 1u, 2u, 3u}) {
    const std::vector<Verdict> verdicts = Replay(recorded, GetParam().interval, {rank, 50, 200});
    ASSERT_EQ(verdicts.size(), 2u) << "rank " << rank;
    const Verdict named{verdicts[0].step, static_cast<int>(rank), true};
    const Verdict cleared{verdicts[1].step, static_cast<int>(rank), false};
    EXPECT_EQ(verdicts, (std::vector{named, cleared}));
    EXPECT_LE(named.step, 50 + GetParam().named_within);
    EXPECT_GT(cleared.step, 200u + 20) << "it may be slow again at once";
    EXPECT_LE(cleared.step, 200u + 170);
  }
}

INSTANTIATE_TEST_SUITE_P(
    StragglerDetector, RecordedNoise,
    testing::Values(Noise{"noise_220ms.txt", 0.05, 40}, Noise{"noise_220ms.txt", 0.9, 40},
                    Noise{"noise_220ms.txt", 1, 40}, Noise{"noise_38ms.txt", 0.05, 70},
                    Noise{"noise_38ms.txt", 0.9, 70}, Noise{"noise_38ms.txt", 1, 70}));

// Two nodes report once a second in turn; rank 1 becomes slow after `slow_at` seconds.
std::size_t StepsUntilNamed(double step_seconds, double slow_at) {
  Gang gang(2);
  gang.busy = {step_seconds, step_seconds};
  std::size_t slow_steps = 0;
  double report_at[] = {0.45, 0.9};
  for (double now = 0; now < 10 * slow_at;) {
    if (now > slow_at && slow_steps == 0) gang.Slow(1, 0.3 * step_seconds);
    const double longest = std::max(gang.busy[0], gang.busy[1]);
    gang.Step(longest);
    now += longest;
    if (gang.busy[1] > gang.busy[0]) ++slow_steps;
    for (std::size_t r = 0; r < 2; ++r) {
      if (now < report_at[r]) continue;
      report_at[r] = now + 0.9;
      if (!gang.detector.Observe({gang.ranks[r]}).named.empty()) return slow_steps;
    }
  }
  return 0;
}

TEST(StragglerDetector, StepsOfATenthOfASecondAndMoreNeedFortyOfThem) {
  for (const double step_seconds : {0.1, 0.22, 0.4, 1.0, 3.0}) {
    for (double slow_at = 30; slow_at < 31; slow_at += 0.1) {
      const std::size_t steps = StepsUntilNamed(step_seconds, slow_at);
      EXPECT_GE(steps, 20u) << step_seconds << " at " << slow_at;
      EXPECT_LE(steps, 40u) << step_seconds << " at " << slow_at;
    }
  }
}

// 64 steps of 14 ms pass between two reports of a node.
TEST(StragglerDetector, FasterStepsNeedFourSeconds) {
  for (const double step_seconds : {0.014, 0.03, 0.05, 0.07}) {
    for (double slow_at = 30; slow_at < 31; slow_at += 0.1) {
      const std::size_t steps = StepsUntilNamed(step_seconds, slow_at);
      EXPECT_GE(steps, 20u) << step_seconds << " at " << slow_at;
      EXPECT_LE(static_cast<double>(steps) * 1.3 * step_seconds, 4)
          << step_seconds << " at " << slow_at;
    }
  }
}

TEST(StragglerDetector, ASingleRankIsNeverBehind) {
  Gang gang(1);
  EXPECT_TRUE(gang.Steps(100).empty());
}

TEST(StragglerDetector, AReplacedProcessBeginsAnew) {
  Gang gang(2);
  gang.Slow(1, 0.05);
  EXPECT_TRUE(gang.Steps(18).empty());
  gang.ranks[1].steps_done = 0;
  gang.ranks[1].busy_seconds = 0;
  EXPECT_TRUE(gang.Steps(18).empty());
  EXPECT_EQ(gang.Steps(20).size(), 1u);
}

TEST(StragglerDetector, RanksOutOfRangeAreIgnored) {
  Gang gang(2);
  gang.ranks[1].rank = 9;
  EXPECT_TRUE(gang.Steps(100).empty());
}

}  // namespace
}  // namespace muster
