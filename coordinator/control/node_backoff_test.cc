#include "coordinator/control/node_backoff.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const NodeName kN1{"n1"};
const NodeName kN2{"n2"};

TEST(NodeBackoffTest, EachRefusalInARowDoublesThePauseUpToALimit) {
  NodeBackoff backoff;
  TimePoint now;
  EXPECT_EQ(backoff.Refuse(kN1, "no mount", now), seconds(10));
  EXPECT_EQ(backoff.Refuse(kN1, "no mount", now), seconds(20));
  EXPECT_EQ(backoff.Refuse(kN2, "no mount", now), seconds(10)) << "each node has its own";
  for (int n = 0; n < 40; ++n) backoff.Refuse(kN1, "no mount", now);
  EXPECT_EQ(backoff.Refuse(kN1, "no mount", now), minutes(10));
}

TEST(NodeBackoffTest, ANodeIsLeftAloneUntilItsPauseIsOver) {
  NodeBackoff backoff;
  const TimePoint now;
  backoff.Refuse(kN1, "no mount", now);
  EXPECT_EQ(backoff.Paused(), std::vector{kN1});
  EXPECT_EQ(backoff.NextExpiry(), now + seconds(10));
  EXPECT_FALSE(backoff.Expire(now + seconds(9)));
  EXPECT_TRUE(backoff.Expire(now + seconds(10)));
  EXPECT_TRUE(backoff.Paused().empty());
  EXPECT_FALSE(backoff.Expire(now + seconds(11))) << "once is enough";
  EXPECT_EQ(backoff.Refuse(kN1, "no mount", now), seconds(20)) << "it has not taken part since";
  backoff.Accept(kN1);
  EXPECT_EQ(backoff.Refuse(kN1, "no mount", now), seconds(10));
}

TEST(NodeBackoffTest, WhatMayBeOverInAMomentIsTriedOnceMoreFirst) {
  NodeBackoff backoff;
  const TimePoint now;
  EXPECT_FALSE(backoff.Counts(kN1));
  EXPECT_EQ(backoff.Refuse(kN1, "no guardian", now, false), Duration::zero());
  EXPECT_TRUE(backoff.Paused().empty());
  EXPECT_TRUE(backoff.Counts(kN1));
  EXPECT_EQ(backoff.Refuse(kN1, "no guardian", now, false), seconds(10));
  EXPECT_EQ(backoff.Refuse(kN1, "no guardian", now, false), seconds(20));
  backoff.Accept(kN1);
  EXPECT_FALSE(backoff.Counts(kN1));
  EXPECT_EQ(backoff.Refuse(kN1, "no guardian", now, false), Duration::zero());
  EXPECT_EQ(backoff.Refuse(kN1, "no mount", now), seconds(10)) << "not twice as long for it";
}

TEST(NodeBackoffTest, TheTextNamesTheNodesThatAreLeftAloneAndWhy) {
  NodeBackoff backoff;
  EXPECT_EQ(backoff.Text(), "");
  backoff.Refuse(kN1, "no GPU", TimePoint());
  backoff.Refuse(kN2, "no mount", TimePoint() + seconds(5));
  EXPECT_EQ(backoff.Text(), "n1 cannot run it: no GPU; n2 cannot run it: no mount");
  backoff.Expire(TimePoint() + seconds(12));
  EXPECT_EQ(backoff.Text(), "n2 cannot run it: no mount");
  EXPECT_EQ(backoff.Paused(), std::vector<NodeName>{kN2});
}

}  // namespace
}  // namespace muster
