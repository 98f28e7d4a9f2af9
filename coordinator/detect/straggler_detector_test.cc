#include "coordinator/detect/straggler_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::HasSubstr;

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

  // Steps go by, and a sample is taken after every `per_sample` of them.
  std::vector<Straggler> Steps(int count, int per_sample = 1) {
    std::vector<Straggler> told;
    for (int i = 1; i <= count; ++i) {
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        ++ranks[r].steps_done;
        ranks[r].busy_seconds += busy[r];
        ranks[r].phase_seconds[kData] += data[r];
        ranks[r].phase_seconds[kForward] += 0.05;
      }
      if (i % per_sample != 0) continue;
      for (Straggler& straggler : detector.Observe(ranks)) told.push_back(straggler);
    }
    return told;
  }
  void Slow(std::size_t rank, double by) {
    busy[rank] += by;
    data[rank] += by;
  }

  StragglerDetector detector;
  std::vector<RankProgress> ranks;
  std::vector<double> busy;  // per step
  std::vector<double> data;
};

TEST(StragglerDetector, NamesRankNodeAndPhaseAfterTwentySteps) {
  Gang gang(4);
  gang.Steps(11);
  gang.Slow(2, 0.03);
  EXPECT_TRUE(gang.Steps(15).empty());
  const auto told = gang.Steps(15);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].rank, 2);
  EXPECT_EQ(told[0].node.value, "n2");
  EXPECT_EQ(told[0].phase, "data");
  EXPECT_NEAR(told[0].seconds / told[0].others_seconds, 1.3, 0.001);
  EXPECT_THAT(told[0].message, HasSubstr("rank 2 on n2"));
  EXPECT_THAT(told[0].message, HasSubstr("1.30 times"));
  EXPECT_THAT(told[0].message, HasSubstr("in phase data"));
}

TEST(StragglerDetector, FastStepsBetweenTwoSamplesAreCountedToo) {
  Gang gang(2);
  gang.Slow(1, 0.02);
  EXPECT_EQ(gang.Steps(90, 9).size(), 1u);
}

TEST(StragglerDetector, TellsAgainOnlyAfterItWasGone) {
  Gang gang(3);
  gang.Slow(1, 0.05);
  EXPECT_EQ(gang.Steps(200).size(), 1u);
  gang.Slow(1, -0.05);
  EXPECT_TRUE(gang.Steps(40).empty());
  gang.Slow(1, 0.05);
  EXPECT_EQ(gang.Steps(40).size(), 1u);
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
    EXPECT_TRUE(gang.Steps(15).empty());
    gang.Slow(1, -0.05);
    EXPECT_TRUE(gang.Steps(10).empty());
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
  const auto told = gang.Steps(40);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].rank, 4);
  EXPECT_EQ(told[1].rank, 1);
}

TEST(StragglerDetector, ASingleRankHasNobodyToBeBehind) {
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
  EXPECT_EQ(gang.Steps(10).size(), 1u);
}

TEST(StragglerDetector, RanksOutOfRangeAreIgnored) {
  Gang gang(2);
  gang.ranks[1].rank = 9;
  EXPECT_TRUE(gang.Steps(100).empty());
}

}  // namespace
}  // namespace muster
