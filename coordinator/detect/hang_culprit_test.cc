#include "coordinator/detect/hang_culprit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::HasSubstr;

struct Sketch {
  TrainPhase phase = TrainPhase::kForward;
  std::string state = "S";
  std::vector<CollectiveCounts> collectives;
};

CollectiveCounts World(std::uint64_t enqueued, std::uint64_t completed) {
  return {.group = "world", .enqueued = enqueued, .completed = completed};
}
CollectiveCounts Group(const char* name, std::uint64_t enqueued, std::uint64_t completed) {
  return {.group = name, .enqueued = enqueued, .completed = completed};
}

struct Case {
  std::string name;
  std::vector<Sketch> ranks;
  std::vector<int> culprits;
  std::string says;
};

class Culprits : public ::testing::TestWithParam<Case> {};

TEST_P(Culprits, AreFound) {
  std::vector<RankProgress> ranks;
  std::vector<NodeName> nodes;
  for (const Sketch& sketch : GetParam().ranks) {
    RankProgress rank;
    rank.rank = static_cast<int>(ranks.size());
    rank.phase = sketch.phase;
    rank.process_state = sketch.state;
    rank.collectives = sketch.collectives;
    ranks.push_back(rank);
    nodes.push_back(NodeName{"n" + std::to_string(rank.rank)});
  }
  const HangCulprits found = FindCulprits(ranks, nodes);
  EXPECT_EQ(found.ranks, GetParam().culprits) << found.reason;
  EXPECT_THAT(found.reason, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Pictures, Culprits,
    ::testing::Values(
        Case{"StoppedProcess",
             {{.collectives = {World(9, 8)}},
              {.phase = TrainPhase::kBackward, .state = "T", .collectives = {World(8, 8)}},
              {.collectives = {World(9, 8)}}},
             {1},
             "rank 1 on n1 is stopped by a signal (process state T) in phase backward; rank 0 "
             "waits for rank 1 in an all-gather of weights (group world, operation 9)"},
        Case{"StoppedThoughAheadOfAnother",
             {{.collectives = {World(8, 8)}}, {.state = "T", .collectives = {World(9, 8)}}},
             {1},
             "stopped"},
        Case{"NeverJoined",
             {{.phase = TrainPhase::kOptimizer, .collectives = {World(9, 8)}},
              {.phase = TrainPhase::kData, .collectives = {World(8, 8)}}},
             {1},
             "has not joined the next collective of group world in phase data; rank 0 waits for "
             "rank 1 in the sum of gradient norms"},
        Case{"TwoNeverJoined",
             {{.collectives = {World(9, 8)}},
              {.collectives = {World(8, 8)}},
              {.collectives = {World(8, 8)}}},
             {1, 2},
             "rank 1 on n1 and rank 2 on n2 have not joined"},
        Case{"BehindInItsOwnGroupOfANode",
             {{.collectives = {World(2, 2), Group("shard", 41, 40)}},
              {.collectives = {World(2, 2), Group("shard", 40, 40)}},
              {.collectives = {World(3, 2), Group("shard", 44, 44)}},
              {.collectives = {World(3, 2), Group("shard", 44, 44)}}},
             {1},
             "group shard"},
        Case{"NotCompleted",
             {{.collectives = {World(9, 9)}}, {.collectives = {World(9, 8)}}},
             {1},
             "has not completed a collective of group world that others have: its link or device"},
        Case{"BehindInStartingUp",
             {{.phase = TrainPhase::kForming},
              {.phase = TrainPhase::kStarting},
              {.phase = TrainPhase::kForming}},
             {1},
             "has not got beyond phase starting"},
        Case{"TokenizesWhileOthersWait",
             {{.phase = TrainPhase::kReadingRows, .collectives = {World(3, 2)}},
              {.phase = TrainPhase::kReadingRows, .collectives = {World(2, 2)}}},
             {1},
             "rank 1 on n1 has not joined the next collective of group world in phase "
             "reading_rows; rank 0 waits for rank 1 in the meeting after rows are read and "
             "tokenized (group world, operation 3)"},
        Case{"BehindInLoadingFrozenWeights",
             {{.phase = TrainPhase::kLoadingFrozen, .collectives = {World(9, 8)}},
              {.phase = TrainPhase::kLoadingFrozen, .collectives = {World(8, 8)}}},
             {1},
             "rank 0 waits for rank 1 in sharing the frozen weights"},
        Case{"StillReadsRowsWhileOthersLoad",
             {{.phase = TrainPhase::kLoading},
              {.phase = TrainPhase::kReadingRows},
              {.phase = TrainPhase::kLoadingFrozen}},
             {1},
             "has not got beyond phase reading_rows, unlike the others"},
        Case{"StillLoadsFrozenWeights",
             {{.phase = TrainPhase::kForward}, {.phase = TrainPhase::kLoadingFrozen}},
             {1},
             "has not got beyond phase loading_frozen"},
        Case{"StillLoadsItsState",
             {{.phase = TrainPhase::kLoadingFrozen}, {.phase = TrainPhase::kLoading}},
             {1},
             "has not got beyond phase loading"},
        Case{"NotInACollectiveWhileOthersAre",
             {{.collectives = {World(1, 0)}}, {.phase = TrainPhase::kData, .collectives = {}}},
             {1},
             "has not come to a collective in phase data"},
        Case{"AllAtOnce",
             {{.phase = TrainPhase::kData, .collectives = {World(9, 9)}},
              {.phase = TrainPhase::kData, .collectives = {World(9, 9)}}},
             {0, 1},
             "rank 0 on n0 and rank 1 on n1 stand still in phase data"},
        Case{"ASingleRank",
             {{.phase = TrainPhase::kData}},
             {0},
             "rank 0 on n0 stands still in phase data"}),
    [](const auto& each) { return each.param.name; });

TEST(DescribeLastCollective, PrefersTheGroupThatIsWaitedIn) {
  RankProgress rank;
  EXPECT_EQ(DescribeLastCollective(rank), "");
  rank.collectives = {Group("shard", 900, 900), World(12, 11)};
  EXPECT_EQ(DescribeLastCollective(rank), "world: 12 enqueued, 11 completed");
  rank.collectives[1].completed = 12;
  EXPECT_EQ(DescribeLastCollective(rank), "shard: 900 enqueued, 900 completed");
}

}  // namespace
}  // namespace muster
