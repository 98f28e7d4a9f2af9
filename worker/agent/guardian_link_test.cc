#include "worker/agent/guardian_link.h"

#include <gtest/gtest.h>

#include <utility>

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
