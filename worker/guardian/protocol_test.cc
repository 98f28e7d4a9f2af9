#include "worker/guardian/protocol.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(GuardianProtocol, EveryCommandSurvivesTheWire) {
  const GuardianCommand commands[] = {
      GuardianPrepare{.generation = 7,
                      .master = MasterSocket::kBindOnly,
                      .bind_address = "127.0.0.1",
                      .spare = true,
                      .devices = {"GPU-1", "GPU-2"},
                      .memory_limit_bytes = 5'000'000'000},
      GuardianLaunch{.generation = 7,
                     .rank = 3,
                     .argv = {"/bin/true", "a b"},
                     .environment = {"A=1"},
                     .working_directory = "/tmp",
                     .log_path = "/tmp/log",
                     .control = true,
                     .listen = true,
                     .node_ranks = {3, 4},
                     .cpus = {0, 8},
                     .memory_node = 1,
                     .rendezvous_token = "aabb",
                     .devices = {"GPU-1"}},
      GuardianAbort{.generation = 7,
                    .grace_seconds = 1.5,
                    .reason = "rank 2 exited",
                    .park_seconds = 0.5,
                    .kill_ranks = {1, 2},
                    .next_master = MasterSocket::kListen,
                    .next_bind_address = "10.0.0.1"},
      GuardianStandby{.count = 2,
                      .at_once = true,
                      .first = 3,
                      .launch = {.argv = {"/bin/true"}, .control = true}},
      GuardianStop{7, "drained"},
      GuardianFault{.generation = 7, .rank = 3, .kind = "slow", .argument = "0.3"},
      GuardianHold{"segment"},
      GuardianSecrets{},
      GuardianPing{},
      GuardianRelease{},
  };
  for (const GuardianCommand& command : commands) {
    const auto decoded = DecodeGuardianCommand(Encode(command));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, command) << Encode(command);
  }
}

TEST(GuardianProtocol, WhatOnlyAnotherVersionKnowsIsNotTakenForMalformed) {
  const char* unknown = R"({"type":"from_the_future"})";
  EXPECT_EQ(DecodeGuardianCommand(unknown).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(DecodeGuardianEvent(unknown).status().code(), StatusCode::kUnimplemented);
  for (const char* malformed : {"7", "{}", R"({"type":"prepare"})"})
    EXPECT_EQ(DecodeGuardianCommand(malformed).status().code(), StatusCode::kInvalidArgument);
  for (const char* malformed : {"7", "{}", R"({"type":"quiesced"})"})
    EXPECT_EQ(DecodeGuardianEvent(malformed).status().code(), StatusCode::kInvalidArgument);
}

TEST(GuardianProtocol, AGuardianThatNamesNoVersionHasTheFirst) {
  const auto hello =
      DecodeGuardianEvent(R"({"type":"hello","pid":7,"job":"00c0ffee10","generation":1})");
  ASSERT_TRUE(hello.ok()) << hello.status().ToString();
  EXPECT_EQ(std::get<GuardianHello>(*hello).packets, (VersionRange{1, 1}));
  EXPECT_TRUE(CommonVersion(kGuardianPackets, std::get<GuardianHello>(*hello).packets));
}

TEST(GuardianProtocol, EveryEventSurvivesTheWire) {
  const GuardianEvent events[] = {
      GuardianHello{.pid = 99,
                    .job = "0123456789",
                    .generation = 4,
                    .answers_pings = true,
                    .packets = {2, 3}},
      GuardianPrepared{.generation = 4, .error = "no address", .master_port = 0},
      GuardianRankStarted{.generation = 4, .rank = 1, .pid = 1234},
      GuardianRankExited{.generation = 4,
                         .rank = 1,
                         .end = {{.signal = 9}, true, true, true, true},
                         .age_seconds = 0.25,
                         .log_tail = {"last", "lines"}},
      GuardianReport{.generation = 4, .rank = 1, .json = R"({"type":"formed"})"},
      GuardianQuiesced{.generation = 4,
                       .unkillable_pids = {17},
                       .parked_ranks = {0, 2},
                       .standbys = 1,
                       .next_master_port = 4711},
      GuardianSegment{"segment", true},
      GuardianSynced{},
      GuardianAlive{},
      GuardianRefused{.generation = 3, .newest = 4, .message = "newer"},
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

TEST(GuardianProtocol, ANumberThatIsNoWholeOneOfItsKindIsAnError) {
  for (const char* number : {"1e300", "1.5", "4294967296", "true"}) {
    const std::string rank = std::string(R"("generation":1,"rank":)") + number;
    EXPECT_FALSE(DecodeGuardianEvent(R"({"type":"rank_started","pid":7,)" + rank + "}").ok());
    EXPECT_FALSE(DecodeGuardianEvent(
                     R"({"type":"quiesced","generation":1,"unkillable_pids":[],"parked_ranks":[)" +
                     std::string(number) + "]}")
                     .ok());
  }
}

// A Hello of the worker with more of them is refused, and with it the node.
TEST(GuardianProtocol, AListThatIsLongerThanTheCoordinatorTakesIsAnError) {
  GuardianQuiesced quiesced{.generation = 1};
  quiesced.parked_ranks.resize(4096);
  EXPECT_TRUE(DecodeGuardianEvent(Encode(GuardianEvent(quiesced))).ok());
  quiesced.parked_ranks.resize(4097);
  EXPECT_FALSE(DecodeGuardianEvent(Encode(GuardianEvent(quiesced))).ok());
  quiesced = {.generation = 1, .unkillable_pids = std::vector<std::int64_t>(4097)};
  EXPECT_FALSE(DecodeGuardianEvent(Encode(GuardianEvent(quiesced))).ok());
}

TEST(GuardianProtocol, BytesThatAreNoTextAreReplaced) {
  const GuardianEvent event =
      GuardianRankExited{.generation = 1, .rank = 0, .end = {}, .log_tail = {"bad \xff byte"}};
  EXPECT_TRUE(DecodeGuardianEvent(Encode(event)).ok());
}

}  // namespace
}  // namespace muster
