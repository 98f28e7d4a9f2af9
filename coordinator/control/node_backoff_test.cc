#include "coordinator/control/node_backoff.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const NodeName kN1{"n1"};
const NodeName kN2{"n2"};

TEST(NodeBackoffTest, EachRefusalInARowDoublesThePauseUpToALimit) {
  NodeBackoff refusals;
  TimePoint now;
  EXPECT_EQ(refusals.Refuse(kN1, "no mount", now), seconds(10));
  EXPECT_EQ(refusals.Refuse(kN1, "no mount", now), seconds(20));
  EXPECT_EQ(refusals.Refuse(kN2, "no mount", now), seconds(10)) << "each node has its own";
  for (int n = 0; n < 40; ++n) refusals.Refuse(kN1, "no mount", now);
  EXPECT_EQ(refusals.Refuse(kN1, "no mount", now), minutes(10));
}

TEST(NodeBackoffTest, ANodeIsLeftAloneUntilItsPauseIsOver) {
  NodeBackoff refusals;
  const TimePoint now;
  refusals.Refuse(kN1, "no mount", now);
  EXPECT_EQ(refusals.Paused(), std::vector{kN1});
  EXPECT_EQ(refusals.NextExpiry(), now + seconds(10));
  EXPECT_FALSE(refusals.Expire(now + seconds(9)));
  EXPECT_TRUE(refusals.Expire(now + seconds(10)));
  EXPECT_TRUE(refusals.Paused().empty());
  EXPECT_FALSE(refusals.Expire(now + seconds(11))) << "once is enough";
  EXPECT_EQ(refusals.Refuse(kN1, "no mount", now), seconds(20)) << "it has not taken part since";
  refusals.Accept(kN1);
  EXPECT_EQ(refusals.Refuse(kN1, "no mount", now), seconds(10));
}

TEST(NodeBackoffTest, WhatMayBeOverInAMomentIsTriedOnceMoreFirst) {
  NodeBackoff refusals;
  const TimePoint now;
  EXPECT_FALSE(refusals.Counts(kN1));
  EXPECT_EQ(refusals.Refuse(kN1, "no guardian", now, false), Duration::zero());
  EXPECT_TRUE(refusals.Paused().empty());
  EXPECT_TRUE(refusals.Counts(kN1));
  EXPECT_EQ(refusals.Refuse(kN1, "no guardian", now, false), seconds(10));
  EXPECT_EQ(refusals.Refuse(kN1, "no guardian", now, false), seconds(20));
  refusals.Accept(kN1);
  EXPECT_FALSE(refusals.Counts(kN1));
  EXPECT_EQ(refusals.Refuse(kN1, "no guardian", now, false), Duration::zero());
  EXPECT_EQ(refusals.Refuse(kN1, "no mount", now), seconds(10)) << "not twice as long for it";
}

TEST(NodeBackoffTest, TheTextNamesTheNodesThatAreLeftAloneAndWhy) {
  NodeBackoff refusals;
  EXPECT_EQ(refusals.Text(), "");
  refusals.Refuse(kN1, "no GPU", TimePoint());
  refusals.Refuse(kN2, "no mount", TimePoint() + seconds(5));
  EXPECT_EQ(refusals.Text(), "n1 cannot run it: no GPU; n2 cannot run it: no mount");
  refusals.Expire(TimePoint() + seconds(12));
  EXPECT_EQ(refusals.Text(), "n2 cannot run it: no mount");
  EXPECT_EQ(refusals.Paused(), std::vector<NodeName>{kN2});
}

}  // namespace
}  // namespace muster
