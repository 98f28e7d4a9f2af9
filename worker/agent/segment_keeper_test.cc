#include "worker/agent/segment_keeper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace muster::worker {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

const JobId kJob{"00c0ffee00"};
constexpr std::size_t kRanks = 2;

UniqueFd SomeFile() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

std::vector<std::string> Names(const SegmentKeeper& keeper, const JobId& job = kJob) {
  std::vector<std::string> names;
  for (const auto& [name, descriptor] : keeper.Of(job)) {
    EXPECT_TRUE(descriptor.valid());
    names.push_back(name);
  }
  return names;
}

TEST(SegmentKeeper, HoldsWhatTheGuardianHolds) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, SomeFile(), kRanks);
  keeper.Apply(kJob, {"b"}, SomeFile(), kRanks);
  keeper.Apply({"0123456789"}, {"c"}, SomeFile(), kRanks);
  EXPECT_THAT(Names(keeper), ElementsAre("a", "b"));
  keeper.Apply(kJob, {"a", true}, {}, kRanks);
  EXPECT_THAT(Names(keeper), ElementsAre("b"));
  keeper.Forget(kJob);
  EXPECT_THAT(Names(keeper), IsEmpty());
  EXPECT_THAT(Names(keeper, {"0123456789"}), ElementsAre("c"));
}

TEST(SegmentKeeper, OneWithoutADescriptorIsNotHeld) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, {}, kRanks);
  EXPECT_THAT(Names(keeper), IsEmpty());
}

TEST(SegmentKeeper, WhatWasDroppedWhileDisconnectedGoesWithTheReplay) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, SomeFile(), kRanks);
  keeper.Apply(kJob, {"b"}, SomeFile(), kRanks);
  keeper.BeginReplay(kJob);
  keeper.Apply(kJob, {"b"}, SomeFile(), kRanks);
  EXPECT_THAT(Names(keeper), ElementsAre("a", "b"));
  keeper.EndReplay(kJob);
  EXPECT_THAT(Names(keeper), ElementsAre("b"));
}

TEST(SegmentKeeper, AGuardianThatWasJustStartedTakesNothingAway) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, SomeFile(), kRanks);
  keeper.EndReplay(kJob);
  EXPECT_THAT(Names(keeper), ElementsAre("a"));
}

// The owner of a job can put any process in its guardian's place. It ended the worker, which had no
// descriptor left.
TEST(SegmentKeeper, SegmentsWithoutEndAreClosed) {
  SegmentKeeper keeper;
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd readable(ends[0]);
  UniqueFd last(ends[1]);
  for (int i = 0; i < 10'000; ++i)
    keeper.Apply(kJob, {std::to_string(i)}, UniqueFd(::dup(readable.get())), kRanks);
  EXPECT_LE(keeper.Of(kJob).size(), SegmentKeeper::kAlwaysKept);
  keeper.Apply(kJob, {"one more"}, std::move(last), kRanks);
  char byte = 0;
  EXPECT_EQ(::read(readable.get(), &byte, 1), 0) << "it is closed";
  EXPECT_THAT(Names(keeper), Contains("0")) << "those before stay";
  keeper.Apply(kJob, {"0"}, SomeFile(), kRanks);
  keeper.Apply(kJob, {"1", true}, {}, kRanks);
  keeper.Apply(kJob, {"new"}, SomeFile(), kRanks);
  EXPECT_THAT(Names(keeper), Contains("new")) << "there is room again";
}

TEST(SegmentKeeper, HoldsAllThatManyRanksMayHave) {
  constexpr std::size_t kMany = 40;
  SegmentKeeper keeper;
  for (std::size_t i = 0; i < kMany * kSegmentsPerRank; ++i)
    keeper.Apply(kJob, {std::to_string(i)}, SomeFile(), kMany);
  EXPECT_EQ(keeper.Of(kJob).size(), kMany * kSegmentsPerRank);
  keeper.Apply(kJob, {"of fewer"}, SomeFile(), 1);
  EXPECT_THAT(Names(keeper), Contains("of fewer"));
}

}  // namespace
}  // namespace muster::worker
