#include "trainer/comm/rendezvous/store_rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/comm/rendezvous/store_client.h"

namespace muster {
namespace {

using testing::Listen;
using testing::Listener;

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

// The other end of a StoreClient's connection, spoken by hand.
class HandMadeServer {
 public:
  HandMadeServer() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    mine_.reset(fds[0]);
    theirs_.reset(fds[1]);
  }
  UniqueFd TakeClientsEnd() { return std::move(theirs_); }
  bool ReadAll(std::size_t bytes) {
    while (bytes > 0) {
      char buffer[256];
      if (!HasMore(std::chrono::seconds(20))) return false;
      const ssize_t n = ::recv(mine_.get(), buffer, std::min(bytes, sizeof buffer), 0);
      if (n <= 0) return false;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  bool HasMore(std::chrono::milliseconds within) {
    pollfd entry{mine_.get(), POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(within.count())) > 0;
  }
  void Write(char answer) { EXPECT_EQ(::send(mine_.get(), &answer, 1, MSG_NOSIGNAL), 1); }

 private:
  UniqueFd mine_;
  UniqueFd theirs_;
};

// A thousand clients that ask again every few milliseconds leave rank 0 no turn at its own store.
TEST(StoreClient, AWaitIsOneQueryHoweverLongItLasts) {
  HandMadeServer server;
  const Interrupt never;
  Result<bool> came = false;
  std::jthread client([&] {
    UniqueFd end = server.TakeClientsEnd();
    auto opened = StoreClient::Open(std::move(end), "store", never, Soon());
    if (opened.ok()) came = (*opened)->Wait({"a", "b"}, Soon(), std::chrono::seconds(10));
  });
  // The hello (word and check of one key), and that this key is not there.
  ASSERT_TRUE(server.ReadAll((1 + 4) + (1 + 8 + 8 + sizeof("/muster/hello") - 1)));
  server.Write(1);
  ASSERT_TRUE(server.ReadAll(1 + 8 + (8 + 2) + (8 + 2)));
  EXPECT_FALSE(server.HasMore(std::chrono::milliseconds(200))) << "it asks again";
  server.Write(0);
  client.join();
  ASSERT_TRUE(came.ok()) << came.status().ToString();
  EXPECT_TRUE(*came);
}

class StoreMeetingTest : public ::testing::Test {
 protected:
  Rendezvous At(int rank) {
    Rendezvous rendezvous;
    rendezvous.rank = rank;
    rendezvous.master_address = "127.0.0.1";
    rendezvous.master_port = listener_.port;
    if (rank == 0) rendezvous.listen_fd = std::move(listener_.fd);
    return rendezvous;
  }

  Listener listener_ = Listen();
};

TEST_F(StoreMeetingTest, ManyRanksMeet) {
  constexpr int kRanks = 100;
  std::vector<StoreMeeting> meetings(kRanks);
  ASSERT_TRUE(meetings[0].Open(At(0), Soon()).ok());
  std::vector<std::string> heard(kRanks);
  std::vector<std::thread> ranks;
  for (int r = 1; r < kRanks; ++r) {
    ranks.emplace_back([&, r, rendezvous = At(r)]() mutable {
      StoreMeeting& meeting = meetings[static_cast<std::size_t>(r)];
      if (!meeting.Open(std::move(rendezvous), Soon()).ok()) return;
      if (!meeting.Publish("place/" + std::to_string(r), "here " + std::to_string(r)).ok()) return;
      const auto plan = meeting.Await("plan", 0, Soon());
      heard[static_cast<std::size_t>(r)] = plan.ok() ? *plan : plan.status().ToString();
    });
  }
  ASSERT_TRUE(meetings[0].Publish("place/0", "here 0").ok());
  const auto places = meetings[0].AwaitAll("place/", kRanks, Soon());
  EXPECT_TRUE(meetings[0].Publish("plan", "go").ok());
  for (std::thread& rank : ranks) rank.join();
  ASSERT_TRUE(places.ok()) << places.status().ToString();
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ((*places)[static_cast<std::size_t>(r)], "here " + std::to_string(r));
    EXPECT_EQ(heard[static_cast<std::size_t>(r)], r > 0 ? "go" : "");
  }
  for (std::size_t r = kRanks; r-- > 0;) meetings[r].Close();
}

TEST_F(StoreMeetingTest, TheRankThatDoesNotComeIsNamedAndTheConnectionServesOn) {
  StoreMeeting meeting;
  ASSERT_TRUE(meeting.Open(At(0), Soon()).ok());
  for (const char* key : {"place/0", "place/2"}) ASSERT_TRUE(meeting.Publish(key, "here").ok());
  const auto places =
      meeting.AwaitAll("place/", 3, Deadline::After(std::chrono::milliseconds(100)));
  EXPECT_EQ(places.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(places.status().message().find("rank 1 did not come"), std::string::npos);
  ASSERT_TRUE(meeting.Publish("place/1", "late").ok());
  const auto again = meeting.AwaitAll("place/", 3, Soon());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ((*again)[1], "late");
}

TEST_F(StoreMeetingTest, ACancelEndsAWait) {
  StoreMeeting meeting;
  ASSERT_TRUE(meeting.Open(At(0), Soon()).ok());
  std::thread other([&] { meeting.Cancel(); });
  EXPECT_EQ(meeting.Await("never", 1, Soon()).status().code(), StatusCode::kCancelled);
  other.join();
}

}  // namespace
}  // namespace muster
