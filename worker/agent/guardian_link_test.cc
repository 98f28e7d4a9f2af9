#include "worker/agent/guardian_link.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace muster::worker {
namespace {

// With each packet that is read another one waits, as of a peer that is faster than this one.
TEST(GuardianLink, APeerThatSendsWithoutPauseLeavesTheLoopItsOtherWork) {
  EventLoop loop;
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  const Deadline limit = Deadline::After(std::chrono::seconds(3));
  bool fired = false;
  const auto send = [&peer = pair->second] {
    EXPECT_TRUE(peer.Send(Encode(GuardianEvent(GuardianAlive{}))).ok());
  };
  const GuardianLink link(loop, std::move(pair->first),
                          {.on_event =
                               [&](const GuardianEvent&, UniqueFd) {
                                 if (fired) return;
                                 limit.Expired() ? loop.Stop() : send();
                               },
                           .on_closed = [&](const Status&) { loop.Stop(); }});
  for (int i = 0; i < 8; ++i) send();
  Timer timer(loop);
  timer.Start(std::chrono::milliseconds(10), [&] {
    fired = !limit.Expired();
    loop.Stop();
  });
  loop.Run();
  EXPECT_TRUE(fired);
}

TEST(GuardianLink, WhatIsLeftOfATurnIsReadInTheNext) {
  EventLoop loop;
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  int received = 0;
  const GuardianLink link(loop, std::move(pair->first),
                          {.on_event = [&](const GuardianEvent&, UniqueFd) { ++received; },
                           .on_closed = [&](const Status&) { loop.Stop(); }});
  for (int i = 0; i < 150; ++i)
    ASSERT_TRUE(pair->second.Send(Encode(GuardianEvent(GuardianAlive{}))).ok());
  pair->second.Close();
  loop.Run();
  EXPECT_EQ(received, 150);
}

// The worker lost its connection to a guardian of the next version, and again with each new one.
TEST(GuardianLink, AnEventThatOnlyANewerGuardianKnowsIsTakenForASignOfLife) {
  EventLoop loop;
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  std::vector<GuardianEvent> received;
  const GuardianLink link(
      loop, std::move(pair->first),
      {.on_event = [&](const GuardianEvent& event, UniqueFd) { received.push_back(event); },
       .on_closed = [&](const Status&) { loop.Stop(); }});
  ASSERT_TRUE(pair->second.Send(R"({"type":"from_the_future","anything":[1]})").ok());
  ASSERT_TRUE(pair->second.Send(Encode(GuardianEvent(GuardianSynced{}))).ok());
  pair->second.Close();
  loop.Run();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<GuardianAlive>(received[0]));
  EXPECT_TRUE(std::holds_alternative<GuardianSynced>(received[1]));
}

TEST(GuardianLink, WhatIsNoEventEndsIt) {
  EventLoop loop;
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok());
  Status why;
  const GuardianLink link(loop, std::move(pair->first),
                          {.on_event = [](const GuardianEvent&, UniqueFd) {},
                           .on_closed =
                               [&](const Status& status) {
                                 why = status;
                                 loop.Stop();
                               }});
  EXPECT_TRUE(pair->second.Send("7").ok());
  loop.Run();
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::worker
