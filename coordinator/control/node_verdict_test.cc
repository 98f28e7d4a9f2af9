#include "coordinator/control/node_verdict.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Case {
  const char* name;
  Duration silence;
  int answered, refused, silent, unreachable;
  bool complete, asked, all_silent, lost_peer;
  NodeVerdict verdict;
};

TEST(NodeVerdictTest, Table) {
  using enum NodeVerdict;
  const std::vector<Case> cases = {
      {"somebody reaches it", seconds(100), 1, 0, 0, 2, true, true, false, true, kWait},
      {"one answer outweighs a refusal", seconds(100), 1, 2, 0, 0, true, true, false, true, kWait},
      {"worker gone, jobs well", seconds(59), 0, 3, 0, 0, true, true, false, false, kWait},
      {"worker gone for long", seconds(60), 0, 1, 0, 0, true, true, false, false, kLost},
      {"worker gone, a peer lost", milliseconds(10), 0, 1, 0, 0, true, true, false, true,
       kLostToJobs},
      {"a refusal is a living host", seconds(5), 0, 1, 0, 2, true, true, false, false, kWait},
      {"a stopped worker, jobs well", seconds(59), 0, 0, 3, 0, true, true, false, false, kWait},
      {"a host that only takes connections", seconds(60), 0, 0, 1, 0, true, true, false, false,
       kLost},
      {"late once, a peer lost", milliseconds(2499), 0, 0, 1, 0, true, true, false, true, kWait},
      {"stopped, a peer lost", milliseconds(2500), 0, 0, 1, 0, true, true, false, true,
       kLostToJobs},
      {"one answer outweighs silence", seconds(100), 1, 0, 2, 0, true, true, false, true, kWait},
      {"silence is a living host", seconds(5), 0, 0, 1, 2, true, true, false, false, kWait},
      {"unreachable, not for long", milliseconds(2499), 0, 0, 0, 3, true, true, false, true, kWait},
      {"unreachable", milliseconds(2500), 0, 0, 0, 3, true, true, false, false, kLost},
      {"another may still reach it", seconds(4), 0, 0, 0, 2, false, true, false, false, kWait},
      {"nobody to ask", milliseconds(9999), 0, 0, 0, 0, true, false, false, true, kWait},
      {"nobody to ask, lease over", seconds(10), 0, 0, 0, 0, true, false, false, false, kLost},
      {"asked in vain", seconds(9), 0, 0, 0, 0, false, true, false, false, kWait},
      {"asked a moment ago", seconds(10), 0, 0, 0, 0, false, true, false, false, kWait},
      {"asked in vain, lease over", seconds(10), 0, 0, 0, 0, true, true, false, false, kLost},
      {"all are silent", seconds(1000), 0, 0, 0, 0, true, false, true, true, kWait},
  };
  for (const Case& c : cases) {
    const SilenceVerdict verdict =
        DecideSilence({c.silence, c.answered, c.refused, c.silent, c.unreachable, c.complete,
                       c.asked, c.all_silent, c.lost_peer, seconds(10)});
    EXPECT_EQ(verdict.verdict, c.verdict) << c.name;
    EXPECT_EQ(verdict.reason.empty(), c.verdict == NodeVerdict::kWait) << c.name;
  }
}

TEST(NodeVerdictTest, MoreSilenceNeverTakesAVerdictBack) {
  for (int bits = 0; bits < 256; ++bits) {
    NodeVerdictInput input;
    input.answered = bits & 1;
    input.refused = (bits >> 1) & 1;
    input.unreachable = (bits >> 2) & 1;
    input.complete = (bits >> 3) & 1;
    input.asked = (bits >> 4) & 1;
    input.all_silent = (bits >> 5) & 1;
    input.lost_peer = (bits >> 6) & 1;
    input.silent = (bits >> 7) & 1;
    NodeVerdict before = NodeVerdict::kWait;
    for (input.silence = seconds(0); input.silence < seconds(70);
         input.silence += milliseconds(250)) {
      const NodeVerdict now = DecideSilence(input).verdict;
      ASSERT_GE(static_cast<int>(now), static_cast<int>(before)) << bits;
      before = now;
    }
  }
}

}  // namespace
}  // namespace muster
