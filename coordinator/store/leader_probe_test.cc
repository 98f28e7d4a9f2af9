#include "coordinator/store/leader_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>

#include "coordinator/store/testing/listener.h"

namespace muster {
namespace {

class LeaderProbeTest : public ::testing::Test {
 protected:
  void Watch(const std::string& address) {
    probe_.emplace(address, [this] { gone_.set_value(); });
  }
  bool IsGoneWithin(std::chrono::milliseconds time) {
    return gone_future_.wait_for(time) == std::future_status::ready;
  }

 private:
  std::promise<void> gone_;
  std::future<void> gone_future_ = gone_.get_future();
  std::optional<LeaderProbe> probe_;
};

constexpr std::chrono::milliseconds kAnswered{200}, kSoon{5000}, kTwoProbes{1300};

TEST_F(LeaderProbeTest, APortThatAnsweredAndRefusesIsOfAProcessThatHasEnded) {
  ListenerForTest port;
  Watch(port.address());
  port.AwaitClient();
  port.Close();
  EXPECT_TRUE(IsGoneWithin(kSoon));
}

TEST_F(LeaderProbeTest, APortThatAnswersIsOfALiveProcess) {
  const ListenerForTest port;
  Watch(port.address());
  EXPECT_FALSE(IsGoneWithin(kTwoProbes));
}

// As behind a firewall that refuses.
TEST_F(LeaderProbeTest, APortThatNeverAnsweredSaysNothing) {
  ListenerForTest port;
  port.Close();
  Watch(port.address());
  EXPECT_FALSE(IsGoneWithin(kTwoProbes));
}

TEST_F(LeaderProbeTest, NoAddressSaysNothing) {
  for (const char* text : {"", "leader.example:7000", "127.0.0.1"}) Watch(text);
  EXPECT_FALSE(IsGoneWithin(kAnswered));
}

}  // namespace
}  // namespace muster
