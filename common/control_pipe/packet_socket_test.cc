#include "common/control_pipe/packet_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace muster {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(5)); }
Deadline Past() { return Deadline::At(TimePoint{}); }

class PacketSocketTest : public testing::Test {
 protected:
  PacketSocketTest() {
    auto pair = PacketSocket::Pair();
    EXPECT_TRUE(pair.ok());
    a_ = std::move(pair->first);
    b_ = std::move(pair->second);
  }

  PacketSocket a_, b_;
};

TEST_F(PacketSocketTest, KeepsTheBoundsOfMessages) {
  ASSERT_TRUE(a_.Send("one").ok());
  ASSERT_TRUE(a_.Send(std::string(kMaxPacketBytes, 'x')).ok());
  EXPECT_EQ(b_.Receive(Soon())->data, "one");
  EXPECT_EQ(b_.Receive(Soon())->data.size(), kMaxPacketBytes);
  ASSERT_TRUE(b_.Send("back").ok());
  EXPECT_EQ(a_.Receive(Soon())->data, "back");
}

TEST_F(PacketSocketTest, CarriesDescriptors) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  const UniqueFd read_end(pipe_fds[0]);
  UniqueFd write_end(pipe_fds[1]);
  ASSERT_TRUE(a_.Send("fds", {read_end.get(), write_end.get()}, Soon()).ok());
  write_end.reset();
  const auto packet = b_.Receive(Soon());
  ASSERT_TRUE(packet.ok());
  ASSERT_EQ(packet->fds.size(), 2u);
  EXPECT_NE(::fcntl(packet->fds[1].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(packet->fds[1].get(), "!", 1), 1);
  char c = 0;
  ASSERT_EQ(::read(read_end.get(), &c, 1), 1);
  EXPECT_EQ(c, '!');
}

TEST_F(PacketSocketTest, AnExpiredDeadlineMakesReceiveAPoll) {
  EXPECT_EQ(b_.Receive(Past()).status().code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(a_.Send("x").ok());
  EXPECT_EQ(b_.Receive(Past())->data, "x");
}

TEST_F(PacketSocketTest, AClosedPeerIsUnavailableAfterItsLastMessage) {
  ASSERT_TRUE(a_.Send("last").ok());
  a_.Close();
  EXPECT_EQ(b_.Receive(Soon())->data, "last");
  EXPECT_EQ(b_.Receive(Soon()).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(b_.Send("x").code(), StatusCode::kUnavailable);
}

TEST_F(PacketSocketTest, ATooLargeMessageIsRefusedAndNothingIsSent) {
  EXPECT_EQ(a_.Send(std::string(kMaxPacketBytes + 1, 'x')).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(b_.Receive(Past()).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(PacketSocketTest, AFullQueueEndsAtTheDeadlineAndALaterReaderGetsAll) {
  int sent = 0;
  const std::string large(32 << 10, 'x');
  while (a_.Send(large, {}, Past()).ok()) ASSERT_LT(++sent, 10'000);
  EXPECT_GT(sent, 0);
  std::thread reader([&] {
    for (int i = 0; i < sent; ++i) EXPECT_TRUE(b_.Receive(Soon()).ok());
  });
  EXPECT_TRUE(a_.Send("after", {}, Soon()).ok());
  reader.join();
  EXPECT_EQ(b_.Receive(Soon())->data, "after");
}

TEST_F(PacketSocketTest, ReceiveWaitsForTheSender) {
  std::thread sender([&] { EXPECT_TRUE(a_.Send("late").ok()); });
  EXPECT_EQ(b_.Receive(Soon())->data, "late");
  sender.join();
}

}  // namespace
}  // namespace muster
