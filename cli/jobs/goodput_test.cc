#include "cli/jobs/goodput.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

v1::Goodput Of(double ratio, double step, double recovery, double queue, double idle = 0) {
  v1::Goodput goodput;
  goodput.set_ratio(ratio);
  const auto add = [&](const char* state, double seconds) {
    v1::TimeShare& share = *goodput.add_states();
    share.set_state(state);
    share.set_seconds(seconds);
  };
  add("step", step);
  add("recovery", recovery);
  add("queue", queue);
  add("idle", idle);
  goodput.set_under_way_seconds(2.5);
  return goodput;
}

TEST(GoodputText, PrintsTheShareThatCounts) {
  EXPECT_EQ(GoodputText(Of(0.9312, 1, 1, 1)), "93.1 %");
  EXPECT_EQ(GoodputText(Of(-1, 0, 0, 9)), "-") << "it waits";
  EXPECT_EQ(GoodputText({}), "-") << "an older coordinator";
}

TEST(GoodputText, RankTimeIsNotCutAtADay) {
  EXPECT_EQ(RankTimeText(0), "0:00:00");
  EXPECT_EQ(RankTimeText(59.6), "0:01:00");
  EXPECT_EQ(RankTimeText(3600.0 * 412 + 3 * 60 + 22), "412:03:22");
  EXPECT_EQ(RankTimeText(-1), "0:00:00");
}

TEST(GoodputText, WhatWasLostComesInItsOrderAndWithoutTheQueue) {
  EXPECT_EQ(LostText(Of(0.9, 900, 20, 1e6, 80)), "idle 0:01:20 (8.0 %), recovery 0:00:20 (2.0 %)");
  EXPECT_EQ(LostText(Of(1, 900, 0, 10)), "-");
  EXPECT_EQ(LostText(Of(1, 1e6, 1, 0)), "-") << "not worth a word";
  EXPECT_EQ(LostText(Of(-1, 0, 0, 10)), "-");
}

TEST(GoodputText, OneSentenceForAPage) {
  EXPECT_EQ(GoodputSummary(Of(0.9, 900, 100, 0)), "90.0 %; lost to recovery 0:01:40 (10.0 %)");
  EXPECT_EQ(GoodputSummary(Of(1, 900, 0, 0)), "100.0 %");
  EXPECT_EQ(GoodputSummary({}), "");
}

TEST(GoodputJson, HasEveryStateAndTheirSum) {
  const Json json = GoodputJson(Of(0.9, 900, 20, 1000, 80));
  EXPECT_EQ(json.at("total_seconds"), 2000);
  EXPECT_EQ(json.at("under_way_seconds"), 2.5);
  EXPECT_EQ(json.at("ratio"), 0.9);
  EXPECT_EQ(json.at("states").dump(),
            R"({"step":900.0,"recovery":20.0,"queue":1000.0,"idle":80.0})");
  EXPECT_TRUE(GoodputJson(Of(-1, 0, 0, 1)).at("ratio").is_null());
  EXPECT_TRUE(GoodputJson({}).is_null());
}

}  // namespace
}  // namespace muster
