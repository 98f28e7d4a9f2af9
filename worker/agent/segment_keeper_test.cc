#include "worker/agent/segment_keeper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const JobId kJob{"00c0ffee00"};

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
  keeper.Apply(kJob, {"a"}, SomeFile());
  keeper.Apply(kJob, {"b"}, SomeFile());
  keeper.Apply({"0123456789"}, {"c"}, SomeFile());
  EXPECT_THAT(Names(keeper), ElementsAre("a", "b"));
  keeper.Apply(kJob, {"a", true}, {});
  EXPECT_THAT(Names(keeper), ElementsAre("b"));
  keeper.Forget(kJob);
  EXPECT_THAT(Names(keeper), IsEmpty());
  EXPECT_THAT(Names(keeper, {"0123456789"}), ElementsAre("c"));
}

TEST(SegmentKeeper, OneWithoutADescriptorIsNotHeld) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, {});
  EXPECT_THAT(Names(keeper), IsEmpty());
}

TEST(SegmentKeeper, WhatWasDroppedWhileDisconnectedGoesWithTheReplay) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, SomeFile());
  keeper.Apply(kJob, {"b"}, SomeFile());
  keeper.BeginReplay(kJob);
  keeper.Apply(kJob, {"b"}, SomeFile());
  EXPECT_THAT(Names(keeper), ElementsAre("a", "b"));
  keeper.EndReplay(kJob);
  EXPECT_THAT(Names(keeper), ElementsAre("b"));
}

TEST(SegmentKeeper, AGuardianThatWasJustStartedTakesNothingAway) {
  SegmentKeeper keeper;
  keeper.Apply(kJob, {"a"}, SomeFile());
  keeper.EndReplay(kJob);
  EXPECT_THAT(Names(keeper), ElementsAre("a"));
}

}  // namespace
}  // namespace muster::worker
