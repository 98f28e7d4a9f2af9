#include "worker/guardian/protocol.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(GuardianProtocol, EveryCommandSurvivesTheWire) {
  const GuardianCommand commands[] = {
      GuardianPrepare{7, MasterSocket::kBindOnly, "127.0.0.1", true},
      GuardianLaunch{7,
                     3,
                     {"/bin/true", "a b"},
                     {"A=1"},
                     "/tmp",
                     "/tmp/log",
                     true,
                     true,
                     {3, 4},
                     {0, 8},
                     1,
                     "aabb"},
      GuardianAbort{7, 1.5, "rank 2 exited", 0.5, {1, 2}, MasterSocket::kListen, "10.0.0.1"},
      GuardianStandby{2, true, 3, {.argv = {"/bin/true"}, .control = true}},
      GuardianStop{7, "drained"},
      GuardianFault{7, 3, "slow", "0.3"},
      GuardianHold{"segment"},
      GuardianPing{},
      GuardianRelease{},
  };
  for (const GuardianCommand& command : commands) {
    const auto decoded = DecodeGuardianCommand(Encode(command));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, command) << Encode(command);
  }
}

TEST(GuardianProtocol, EveryEventSurvivesTheWire) {
  const GuardianEvent events[] = {
      GuardianHello{99, "0123456789", 4, true},
      GuardianPrepared{4, "no address", 0},
      GuardianRankStarted{4, 1, 1234},
      GuardianRankExited{4, 1, {{.signal = 9}, true, true, true, true}, 0.25, {"last", "lines"}},
      GuardianReport{4, 1, R"({"type":"formed"})"},
      GuardianQuiesced{4, {17}, {0, 2}, 1, 4711},
      GuardianSegment{"segment", true},
      GuardianSynced{},
      GuardianAlive{},
      GuardianRefused{3, 4, "newer"},
  };
  for (const GuardianEvent& event : events) {
    const auto decoded = DecodeGuardianEvent(Encode(event));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, event) << Encode(event);
  }
}

TEST(GuardianProtocol, AnOlderGuardianKnowsNoPing) {
  const auto hello =
      DecodeGuardianEvent(R"({"type":"hello","pid":9,"job":"0123456789","generation":4})");
  ASSERT_TRUE(hello.ok());
  EXPECT_FALSE(std::get<GuardianHello>(*hello).answers_pings);
}

TEST(GuardianProtocol, GarbageIsAnErrorAndNoCrash) {
  for (const char* text : {"", "{", "[]", "{}", R"({"type":"launch","generation":1})",
                           R"({"type":"prepare","generation":"x"})", R"({"type":"what"})"}) {
    EXPECT_FALSE(DecodeGuardianCommand(text).ok()) << text;
    EXPECT_FALSE(DecodeGuardianEvent(text).ok()) << text;
  }
}

TEST(GuardianProtocol, BytesThatAreNoTextAreReplaced) {
  const GuardianEvent event = GuardianRankExited{1, 0, {}, 0, {"bad \xff byte"}};
  EXPECT_TRUE(DecodeGuardianEvent(Encode(event)).ok());
}

}  // namespace
}  // namespace muster
