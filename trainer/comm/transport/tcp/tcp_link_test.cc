#include "trainer/comm/transport/tcp/tcp_link.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr int kLeft = 3;
constexpr int kRight = 5;

Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

// Both ends of a connection; `room`: bytes that either end's kernel may keep, about.
std::pair<UniqueFd, UniqueFd> Connect(int room = 0) {
  const auto open = [&] {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const int side : {SO_SNDBUF, SO_RCVBUF}) {
      if (room > 0) ::setsockopt(fd.get(), SOL_SOCKET, side, &room, sizeof(room));
    }
    return fd;
  };
  const UniqueFd listener = open();
  UniqueFd one = open();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  MUSTER_CHECK(::bind(listener.get(), generic, length) == 0, "bind");
  MUSTER_CHECK(::listen(listener.get(), 1) == 0, "listen");
  MUSTER_CHECK(::getsockname(listener.get(), generic, &length) == 0, "getsockname");
  MUSTER_CHECK(::connect(one.get(), generic, length) == 0, "connect");
  UniqueFd other(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  MUSTER_CHECK(other.valid(), "accept");
  return {std::move(one), std::move(other)};
}

std::vector<std::byte> Bytes(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) % 251);
  return bytes;
}

// Two links as a ring of two.
struct Ring {
  explicit Ring(int room = 0) {
    auto [a_sends, b_hears] = Connect(room);
    auto [b_sends, a_hears] = Connect(room);
    links[0] = std::make_unique<TcpLink>(TcpNeighbour{std::move(a_hears), 1},
                                         TcpNeighbour{std::move(a_sends), 1});
    links[1] = std::make_unique<TcpLink>(TcpNeighbour{std::move(b_hears), 0},
                                         TcpNeighbour{std::move(b_sends), 0});
  }
  // Both ranks at once; what they return.
  std::pair<Status, Status> Run(const std::function<Status(TcpLink&, unsigned rank)>& body) {
    Status other;
    std::thread thread([&] { other = body(*links[1], 1); });
    Status one = body(*links[0], 0);
    thread.join();
    return {one, other};
  }
  std::unique_ptr<TcpLink> links[2];
};

// A link between two neighbours that the test plays.
struct Middle {
  explicit Middle(int room = 0) {
    auto [from_left, left_end] = Connect(room);
    auto [to_right, right_end] = Connect(room);
    left = std::move(left_end);
    right = std::move(right_end);
    link = std::make_unique<TcpLink>(TcpNeighbour{std::move(from_left), kLeft},
                                     TcpNeighbour{std::move(to_right), kRight});
  }
  void LeftSends(const TcpMessageHead& head, const std::vector<std::byte>& bytes) const {
    MUSTER_CHECK(::send(left.get(), &head, sizeof(head), 0) == sizeof(head), "send");
    MUSTER_CHECK(
        ::send(left.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "send");
  }
  // What the link says to the left, until it says no more.
  std::string WordsToLeft() const {
    std::string words;
    for (char word; ::recv(left.get(), &word, 1, 0) == 1;) words += word;
    return words;
  }
  UniqueFd left;
  UniqueFd right;
  std::unique_ptr<TcpLink> link;
};

void Reset(UniqueFd& fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  fd.reset();
}

// Sends messages of those sizes and receives as many, all posted before any is waited for.
Status Exchange(TcpLink& link, unsigned rank, const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<std::byte>> sent, received;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(Bytes(sizes[i], static_cast<unsigned>(i) + rank));
    received.emplace_back(sizes[i]);
  }
  for (auto& each : received) MUSTER_RETURN_IF_ERROR(link.PostReceive(each.data(), each.size()));
  for (const auto& each : sent) MUSTER_RETURN_IF_ERROR(link.PostSend(each.data(), each.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(link.WaitReceive(Soon()));
    if (received[i] != Bytes(sizes[i], static_cast<unsigned>(i) + 1 - rank))
      return Internal("message " + std::to_string(i) + " differs");
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) MUSTER_RETURN_IF_ERROR(link.WaitSend(Soon()));
  return OkStatus();
}

TEST(TcpLink, CarriesMessagesOfAllSizesBothWaysAtOnce) {
  const std::vector<std::size_t> sizes = {0, 1, 15, 16, 17, 0, 0, 70'000, 2'000'000, 3, 20'000'000};
  const auto [one, other] =
      Ring().Run([&](TcpLink& link, unsigned rank) { return Exchange(link, rank, sizes); });
  EXPECT_EQ(one.ToString(), "OK");
  EXPECT_EQ(other.ToString(), "OK");
}

// Neither the kernel nor a call of it takes a message whole, nor a head.
TEST(TcpLink, PartialWritesAndReadsAreGoneOnWith) {
  const std::vector<std::size_t> sizes = {1'000, 100'000, 7, 0, 500'000, 1, 1, 1, 65'536};
  const auto [one, other] = Ring(/*room=*/2'000).Run([&](TcpLink& link, unsigned rank) {
    return Exchange(link, rank, sizes);
  });
  EXPECT_EQ(one.ToString(), "OK");
  EXPECT_EQ(other.ToString(), "OK");
}

TEST(TcpLink, ManySmallMessagesKeepTheirOrder) {
  const std::vector<std::size_t> sizes(5'000, 9);
  const auto [one, other] =
      Ring().Run([&](TcpLink& link, unsigned rank) { return Exchange(link, rank, sizes); });
  EXPECT_EQ(one.ToString(), "OK");
  EXPECT_EQ(other.ToString(), "OK");
}

TEST(TcpLink, ASlowReaderGetsEveryByteAndKeepsNothingElseUp) {
  Middle middle(/*room=*/4'000);
  const std::vector<std::byte> big = Bytes(200'000, 1);
  std::string read;
  std::thread reader([&] {
    char piece[97];
    while (read.size() < sizeof(TcpMessageHead) + big.size()) {
      const ssize_t n = ::recv(middle.right.get(), piece, sizeof(piece), 0);
      if (n <= 0) break;
      read.append(piece, static_cast<std::size_t>(n));
    }
  });
  ASSERT_TRUE(middle.link->PostSend(big.data(), big.size()).ok());
  // What the left one says comes in while the big message is on its way.
  std::vector<std::byte> small(10);
  middle.LeftSends({0, small.size()}, Bytes(small.size(), 2));
  ASSERT_TRUE(middle.link->PostReceive(small.data(), small.size()).ok());
  EXPECT_EQ(middle.link->WaitReceive(Soon()).ToString(), "OK");
  EXPECT_EQ(middle.link->WaitSend(Soon()).ToString(), "OK");
  reader.join();
  EXPECT_EQ(small, Bytes(small.size(), 2));
  EXPECT_EQ(read.substr(sizeof(TcpMessageHead)),
            std::string(reinterpret_cast<const char*>(big.data()), big.size()));
}

// A right neighbour that says nothing and reads nothing.
TEST(TcpLink, ALeftNeighbourThatDiesInAMessageEndsTheWait) {
  for (const bool resets : {false, true}) {
    Middle middle;
    middle.LeftSends({0, 100'000}, Bytes(50'000, 0));
    std::vector<std::byte> data(100'000);
    ASSERT_TRUE(middle.link->PostReceive(data.data(), data.size()).ok());
    if (resets) {
      Reset(middle.left);
    } else {
      middle.left.reset();
    }
    const Status status = middle.link->WaitReceive(Soon());
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("lost rank 3: "));
  }
}

TEST(TcpLink, ARightNeighbourThatDiesEndsAnyWait) {
  const std::vector<std::byte> big = Bytes(30'000'000, 0);
  std::vector<std::byte> data(10);
  for (const bool sends : {false, true}) {
    Middle middle;
    std::thread neighbour([&] {
      // In the middle of the message, with bytes that were not read.
      std::byte some[1000];
      if (sends) (void)::recv(middle.right.get(), some, sizeof(some), 0);
      middle.right.reset();
    });
    Status status = OkStatus();
    if (sends) {
      status = middle.link->PostSend(big.data(), big.size());
      if (status.ok()) status = middle.link->WaitSend(Soon());
    } else {
      ASSERT_TRUE(middle.link->PostReceive(data.data(), data.size()).ok());
      status = middle.link->WaitReceive(Soon());
    }
    neighbour.join();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("lost rank 5: "));
    // The left one is alarmed.
    EXPECT_EQ(middle.WordsToLeft(), "a");
  }
}

// Only the left connection shows it; the right neighbour reads nothing.
TEST(TcpLink, ALeftNeighbourThatDiesWhileNothingIsAwaitedFromItEndsAWaitToo) {
  Middle middle;
  const std::vector<std::byte> big = Bytes(30'000'000, 0);
  ASSERT_TRUE(middle.link->PostSend(big.data(), big.size()).ok());
  std::thread neighbour([&] { Reset(middle.left); });
  const Status status = middle.link->WaitSend(Soon());
  neighbour.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("lost rank 3: "));
}

TEST(TcpLink, WhoLeavesInOrderAlarmsNoNeighbour) {
  Middle middle;
  std::vector<std::byte> data(1'000);
  const std::vector<std::byte> big = Bytes(3'000'000, 0);
  ASSERT_TRUE(middle.link->PostReceive(data.data(), data.size()).ok());
  // The right one has had all that it needs, and so goes before the left one has sent.
  ASSERT_EQ(::send(middle.right.get(), &kTcpGoodbyeWord, 1, 0), 1);
  middle.right.reset();
  std::thread neighbour([&] { middle.LeftSends({0, data.size()}, data); });
  EXPECT_EQ(middle.link->WaitReceive(Soon()).ToString(), "OK");
  neighbour.join();
  middle.link.reset();
  EXPECT_EQ(middle.WordsToLeft(), "g");

  // The left one goes while the link still sends.
  Middle sending;
  ASSERT_TRUE(sending.link->PostSend(big.data(), big.size()).ok());
  sending.left.reset();
  std::thread reader([&] {
    std::vector<std::byte> all(sizeof(TcpMessageHead) + big.size());
    (void)::recv(sending.right.get(), all.data(), all.size(), MSG_WAITALL);
  });
  EXPECT_EQ(sending.link->WaitSend(Soon()).ToString(), "OK");
  reader.join();
}

TEST(TcpLink, AnAlarmIsPassedOnWithTheRankThatGaveUp) {
  {
    Ring ring;
    std::byte byte{};
    ASSERT_TRUE(ring.links[0]->PostReceive(&byte, 1).ok());
    ring.links[1]->Close();
    EXPECT_EQ(ring.links[0]->WaitReceive(Soon()).ToString(),
              "UNAVAILABLE: lost rank 1: it gave up its generation");
  }
  Middle middle;
  std::byte byte{};
  middle.LeftSends(kTcpAlarm, {});
  ASSERT_TRUE(middle.link->PostReceive(&byte, 1).ok());
  EXPECT_EQ(middle.link->WaitReceive(Soon()).ToString(),
            "UNAVAILABLE: lost rank 3: it gave up its generation");
  TcpMessageHead head;
  ASSERT_EQ(::recv(middle.right.get(), &head, sizeof(head), MSG_WAITALL), sizeof(head));
  EXPECT_EQ(head, kTcpAlarm);
}

// No alarm may fall into the message that the right neighbour is reading.
TEST(TcpLink, AbortInAMessageWakesTheWaitAndEndsTheMessage) {
  Middle middle;
  const std::vector<std::byte> big = Bytes(30'000'000, 0);
  ASSERT_TRUE(middle.link->PostSend(big.data(), big.size()).ok());
  std::thread supervisor([&] { middle.link->Close(); });
  const TimePoint begin = SystemClock().Now();
  EXPECT_EQ(middle.link->WaitSend(Soon()).code(), StatusCode::kCancelled);
  EXPECT_LT(SystemClock().Now() - begin, std::chrono::seconds(1));
  supervisor.join();
  middle.link->Drop();
  EXPECT_EQ(middle.WordsToLeft(), "a");
  std::size_t read = 0;
  std::vector<std::byte> piece(1 << 20);
  for (ssize_t n; (n = ::recv(middle.right.get(), piece.data(), piece.size(), 0)) > 0;) {
    read += static_cast<std::size_t>(n);
  }
  EXPECT_LT(read, sizeof(TcpMessageHead) + big.size());
}

TEST(TcpLink, AMessageOfAnotherNumberOrSizeIsAMixUp) {
  for (const TcpMessageHead& head :
       {TcpMessageHead{1, 8}, TcpMessageHead{0, 7}, TcpMessageHead{0, 9}, TcpMessageHead{0, 0}}) {
    Middle middle;
    middle.LeftSends(head, {});
    std::vector<std::byte> data(8);
    ASSERT_TRUE(middle.link->PostReceive(data.data(), data.size()).ok());
    const Status status = middle.link->WaitReceive(Soon());
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("rank 3 sent message "));
    EXPECT_THAT(status.message(), HasSubstr("this one receives message 0 of 8 bytes"));
  }
}

TEST(TcpLink, AWaitEndsAtItsDeadlineThoughBytesTrickleIn) {
  Middle middle;
  std::atomic<bool> over = false;
  std::vector<std::byte> data(30'000'000);
  std::thread neighbour([&] {
    const TcpMessageHead head{0, data.size()};
    (void)::send(middle.left.get(), &head, sizeof(head), 0);
    while (!over) (void)::send(middle.left.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  ASSERT_TRUE(middle.link->PostReceive(data.data(), data.size()).ok());
  const TimePoint begin = SystemClock().Now();
  const Status status = middle.link->WaitReceive(Deadline::After(std::chrono::milliseconds(30)));
  EXPECT_LT(SystemClock().Now() - begin, std::chrono::seconds(1));
  over = true;
  neighbour.join();
  EXPECT_EQ(status, DeadlineExceeded("receiving from rank 3 timed out"));
}

}  // namespace
}  // namespace muster
