#include "common/telemetry/handshake_limit.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster {
namespace {

using namespace std::chrono_literals;

class HandshakeLimitTest : public testing::Test {
 protected:
  std::uint64_t Begin(bool speaks) {
    const int number = begun_++;
    return limit_.Begin({.has_spoken = [speaks] { return speaks; },
                         .hang_up = [this, number] { ended_.push_back(number); }},
                        now_);
  }
  void Fill(bool speaks) {
    while (!limit_.full()) Begin(speaks);
  }

  HandshakeLimit limit_;
  TimePoint now_ = TimePoint(1h);
  int begun_ = 0;
  std::vector<int> ended_;
};

TEST_F(HandshakeLimitTest, WhileThereIsRoomNoneGivesWay) {
  for (std::size_t i = 0; i + 1 < HandshakeLimit::kMax; ++i) Begin(false);
  now_ += 1h;
  EXPECT_EQ(limit_.MakeRoom(now_), Duration::zero());
  EXPECT_TRUE(ended_.empty());
}

TEST_F(HandshakeLimitTest, TheOldestSilentOneGivesWayAfterItsPatience) {
  Begin(false);
  now_ += 5ms;
  Fill(false);
  EXPECT_EQ(limit_.MakeRoom(now_), HandshakeLimit::kSilentTimeout - 5ms);
  now_ += HandshakeLimit::kSilentTimeout - 5ms;
  EXPECT_EQ(limit_.MakeRoom(now_), Duration::zero());
  EXPECT_EQ(ended_, std::vector<int>{0});
  EXPECT_FALSE(limit_.full());
  Begin(false);
  EXPECT_EQ(limit_.MakeRoom(now_), 5ms) << "the second one began 5 ms after the first";
  EXPECT_EQ(limit_.displaced(), 1u);
}

TEST_F(HandshakeLimitTest, OneThatSpeaksHasTimeForTheWholeHandshake) {
  for (std::size_t i = 0; i + 1 < HandshakeLimit::kMax; ++i) Begin(true);
  now_ += 1ms;
  Begin(false);
  now_ += HandshakeLimit::kSilentTimeout;
  EXPECT_EQ(limit_.MakeRoom(now_), Duration::zero());
  EXPECT_EQ(ended_, std::vector<int>{static_cast<int>(HandshakeLimit::kMax) - 1});
  Begin(true);
  EXPECT_NE(limit_.MakeRoom(now_), Duration::zero());
  EXPECT_EQ(limit_.displaced(), 1u);
  now_ += HandshakeLimit::kTimeout;
  EXPECT_EQ(limit_.MakeRoom(now_), Duration::zero());
  EXPECT_EQ(ended_.back(), 0);
}

TEST_F(HandshakeLimitTest, OneThatIsDoneMakesRoomAndIsNotHungUpOn) {
  const std::uint64_t first = Begin(false);
  Fill(false);
  limit_.End(first);
  EXPECT_FALSE(limit_.full());
  now_ += 1h;
  EXPECT_EQ(limit_.MakeRoom(now_), Duration::zero());
  EXPECT_TRUE(ended_.empty());
  limit_.End(first);
  EXPECT_EQ(limit_.displaced(), 0u);
}

}  // namespace
}  // namespace muster
