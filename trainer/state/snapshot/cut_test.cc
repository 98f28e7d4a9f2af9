#include "trainer/state/snapshot/cut.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>

#include "trainer/state/snapshot/testing/snapshot_testing.h"

namespace muster {
namespace {

using testing::AsGang;
using testing::MakeSegment;
using testing::TrainTo;

ShardClaim Claim(Generation lineage, Step step, int shard, int shard_count) {
  return {.state = {.lineage = lineage, .step = step, .shard_count = shard_count, .layout = 1},
          .shard_index = shard};
}

TEST(ChooseCut, NothingWhereNoStateIsWhole) {
  EXPECT_FALSE(ChooseCut({}).has_value());
  EXPECT_FALSE(ChooseCut({{}, {}}).has_value());
  EXPECT_FALSE(ChooseCut({{Claim(1, 5, 0, 2)}, {Claim(1, 4, 1, 2)}}).has_value());
  EXPECT_FALSE(ChooseCut({{Claim(1, 5, 0, 2)}, {Claim(2, 5, 1, 2)}}).has_value());
  EXPECT_FALSE(ChooseCut({{Claim(1, 5, 0, 2)}, {Claim(1, 5, 1, 3)}}).has_value());
}

TEST(ChooseCut, TheHighestStepThatIsWhole) {
  const auto cut =
      ChooseCut({{Claim(1, 4, 0, 2), Claim(1, 5, 0, 2)}, {Claim(1, 3, 1, 2), Claim(1, 4, 1, 2)}});
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->state.step, 4);
  EXPECT_EQ(cut->providers, (std::vector<int>{0, 1}));
}

TEST(ChooseCut, ANewerCourseBeforeAHigherStep) {
  const auto cut = ChooseCut({{Claim(1, 90, 0, 1), Claim(3, 50, 0, 1)}});
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->state.lineage, 3);
  EXPECT_EQ(cut->state.step, 50);
}

TEST(ChooseCut, ReplicasAndBuddiesCountAndTheLowestRankProvides) {
  // Ranks 0 and 1 are new and hold nothing; 2 has its own shard and the lost one.
  const auto cut = ChooseCut(
      {{}, {}, {Claim(1, 7, 1, 3), Claim(1, 7, 0, 3)}, {Claim(1, 7, 2, 3), Claim(1, 7, 1, 3)}});
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->providers, (std::vector<int>{2, 2, 3}));
}

// By rank: the steps that its segment was sealed with, in order.
std::optional<Cut> Agree(const std::vector<std::vector<Step>>& steps) {
  const int world = static_cast<int>(steps.size());
  std::vector<std::unique_ptr<Segment>> segments;
  for (int rank = 0; rank < world; ++rank) {
    segments.push_back(MakeSegment(rank, world));
    for (const Step step : steps[rank]) TrainTo(*segments.back(), step);
  }
  std::vector<std::optional<Cut>> cuts(steps.size());
  AsGang(world, [&](Communicator& communicator) {
    auto cut = AgreeOnCut(communicator, {segments[communicator.rank()].get()});
    ASSERT_TRUE(cut.ok()) << cut.status().ToString();
    cuts[communicator.rank()] = *std::move(cut);
  });
  for (const auto& cut : cuts) EXPECT_EQ(cut, cuts[0]);
  return cuts[0];
}

TEST(AgreeOnCut, IsEqualOnAllRanks) {
  const auto cut = Agree({{6, 7}, {7, 8}, {7}});
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->state.step, 7);
  EXPECT_EQ(cut->providers, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(Agree({{1, 2}, {3, 4}}).has_value());
  EXPECT_FALSE(Agree({{}, {}}).has_value());
}

TEST(AgreeOnCut, AReplacedRanksNewSegmentAndASurvivorsOldOneMakeOneState) {
  // Both trained to 9 in generation 1. In generation 2 rank 1 is new: it got the state of step 9 in
  // a segment of its own, and is lost again before the survivor has entered the lineage.
  const auto survivor = MakeSegment(0, 2, 1);
  TrainTo(*survivor, 8);
  TrainTo(*survivor, 9);
  const auto fresh = MakeSegment(1, 2, 2);
  TrainTo(*fresh, 9);
  const auto lost = MakeSegment(1, 2, 1);  // the guardian still holds it
  TrainTo(*lost, 9);

  auto before = ChooseCut({ClaimsOf(*survivor), ClaimsOf(*fresh)});
  EXPECT_FALSE(before.has_value());
  before = ChooseCut({ClaimsOf(*survivor), ClaimsOf(*lost)});
  ASSERT_TRUE(before.has_value());
  survivor->Continue(2, before->state);
  // Once it has, either of the two will do.
  const auto of_parent = ChooseCut({ClaimsOf(*survivor), ClaimsOf(*lost)});
  ASSERT_TRUE(of_parent.has_value());
  EXPECT_EQ(of_parent->state.lineage, 1);
  const auto of_child = ChooseCut({ClaimsOf(*survivor), ClaimsOf(*fresh)});
  ASSERT_TRUE(of_child.has_value());
  EXPECT_EQ(of_child->state.lineage, 2);
  EXPECT_EQ(of_child->state.step, 9);
}

TEST(AgreeOnCut, WhatALateRankTrainedBeyondTheCutMixesWithNothing) {
  // Rank 1 had sealed 10 when rank 0 was lost at 9, and was away when the gang went on from 9.
  const auto late = MakeSegment(1, 2, 1);
  TrainTo(*late, 9);
  TrainTo(*late, 10);
  const auto went_on = MakeSegment(0, 2, 1);
  TrainTo(*went_on, 9);
  went_on->Continue(2, {.lineage = 1, .step = 9, .shard_count = 2, .layout = 102});
  TrainTo(*went_on, 10);
  const auto cut = ChooseCut({ClaimsOf(*went_on), ClaimsOf(*late)});
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->state.step, 9);
}

}  // namespace
}  // namespace muster
