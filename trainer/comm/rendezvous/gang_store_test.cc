#include "trainer/comm/rendezvous/gang_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "common/base/open_files.h"
#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/comm/group/testing/unauthenticated_testing.h"
#include "trainer/comm/interrupt.h"
#include "trainer/comm/rendezvous/net_probe.h"
#include "trainer/comm/rendezvous/store_client.h"
#include "trainer/comm/rendezvous/store_rendezvous.h"

namespace muster {
namespace {

using testing::ConnectTo;
using testing::HelloOf;
using testing::IsClosed;
using testing::Listen;
using testing::Listener;
using testing::ReceiveFrom;
using testing::SendTo;

const std::string kToken(64, 'a');
const std::string kOlderToken(64, 'b');

Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

class GangStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Listener listener = Listen();
    port_ = listener.port;
    auto store = GangStore::Start(std::move(listener.fd), kToken);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = *std::move(store);
  }
  Result<std::unique_ptr<StoreClient>> Open(const std::string& token, int rank) {
    MUSTER_ASSIGN_OR_RETURN(UniqueFd socket, ConnectWhenUp("127.0.0.1", port_, never_, Soon()));
    return StoreClient::Open(std::move(socket), "store", never_, Soon(), {token, rank});
  }
  // A whole handshake of rank 3, as a listener on the way could record it: what it said.
  std::string RecordHandshake() {
    const UniqueFd fd = ConnectTo(port_);
    const std::string own = Nonce();
    SendTo(fd, HelloOf(3, own));
    const std::string answer = ReceiveFrom(fd, kNonceBytes + kProofBytes);
    const std::string nonces = own + answer.substr(0, kNonceBytes);
    EXPECT_EQ(answer.substr(kNonceBytes), PeerProof(kToken, kStoreServes, 0, 3, nonces));
    const std::string proof = PeerProof(kToken, kStoreAsks, 3, 0, nonces);
    SendTo(fd, proof);
    SendTo(fd, std::string("\5\0\0\0\0\0\0\0\0", 9));  // are all of no keys there?
    EXPECT_EQ(ReceiveFrom(fd, 1), std::string(1, '\0'));
    return HelloOf(3, own) + proof;
  }

  const Interrupt never_;
  int port_ = 0;
  std::unique_ptr<GangStore> store_;
};

TEST_F(GangStoreTest, ServesWhoKnowsTheToken) {
  auto one = Open(kToken, 0);
  auto two = Open(kToken, 1);
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  ASSERT_TRUE((*one)->Set("a", "word", Soon()).ok());
  EXPECT_TRUE(*(*two)->Wait({"a"}, Soon(), std::chrono::seconds(10)));
  EXPECT_EQ(*(*two)->Get("a", Soon()), "word");
  EXPECT_EQ(store_->unauthenticated(), 0U);
}

TEST_F(GangStoreTest, AWaitThatNobodyEndsIsCancelled) {
  auto one = Open(kToken, 0);
  ASSERT_TRUE(one.ok());
  const auto came = (*one)->Wait({"never"}, Deadline::After(std::chrono::milliseconds(20)),
                                 std::chrono::seconds(10));
  ASSERT_TRUE(came.ok()) << came.status().ToString();
  EXPECT_FALSE(*came);
  EXPECT_FALSE(*(*one)->Has("never", Soon()));
}

TEST_F(GangStoreTest, DropsWhoHasTheTokenOfAnotherGeneration) {
  EXPECT_EQ(Open(kOlderToken, 1).status().code(), StatusCode::kUnavailable);
  // Also one who does not mind that the store cannot prove itself.
  const UniqueFd fd = ConnectTo(port_);
  const std::string own = Nonce();
  SendTo(fd, HelloOf(1, own));
  const std::string nonces =
      own + ReceiveFrom(fd, kNonceBytes + kProofBytes).substr(0, kNonceBytes);
  SendTo(fd, PeerProof(kOlderToken, kStoreAsks, 1, 0, nonces));
  EXPECT_TRUE(IsClosed(fd));
  EXPECT_EQ(store_->unauthenticated(), 2U);
}

TEST_F(GangStoreTest, DropsWhoGivesItsOwnProofBack) {
  const UniqueFd fd = ConnectTo(port_);
  SendTo(fd, HelloOf(0, Nonce()));
  SendTo(fd, ReceiveFrom(fd, kNonceBytes + kProofBytes).substr(kNonceBytes));
  EXPECT_TRUE(IsClosed(fd));
}

TEST_F(GangStoreTest, DropsAHandshakeThatIsPlayedAgain) {
  const std::string recorded = RecordHandshake();
  const UniqueFd fd = ConnectTo(port_);
  SendTo(fd, recorded.substr(0, recorded.size() - kProofBytes));
  EXPECT_EQ(ReceiveFrom(fd, kNonceBytes + kProofBytes).size(), kNonceBytes + kProofBytes);
  SendTo(fd, recorded.substr(recorded.size() - kProofBytes));
  EXPECT_TRUE(IsClosed(fd));
  EXPECT_EQ(store_->unauthenticated(), 1U);
}

TEST_F(GangStoreTest, DropsGarbageAtItsFirstByte) {
  const UniqueFd fd = ConnectTo(port_);
  SendTo(fd, "x");
  EXPECT_TRUE(IsClosed(fd));
}

// A server at the port where rank 0 should be learns nothing that rank 0's store accepts.
TEST_F(GangStoreTest, AClientLeavesAStoreThatDoesNotKnowTheToken) {
  Listener listener = Listen();
  auto other = GangStore::Start(std::move(listener.fd), kOlderToken);
  ASSERT_TRUE(other.ok());
  auto socket = ConnectWhenUp("127.0.0.1", listener.port, never_, Soon());
  ASSERT_TRUE(socket.ok());
  const auto client = StoreClient::Open(*std::move(socket), "store", never_, Soon(), {kToken, 1});
  EXPECT_EQ(client.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(client.status().message().find("does not know this generation's token"),
            std::string::npos);
}

TEST_F(GangStoreTest, DropsWhoSaysNothing) {
  Listener listener = Listen();
  const auto store =
      GangStore::Start(std::move(listener.fd), kToken, std::chrono::milliseconds(100));
  ASSERT_TRUE(store.ok());
  const UniqueFd silent = ConnectTo(listener.port);
  const UniqueFd half = ConnectTo(listener.port);
  SendTo(half, HelloOf(1, Nonce()).substr(0, 20));
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_TRUE(IsClosed(half));
  EXPECT_EQ((*store)->unauthenticated(), 2U);
}

TEST_F(GangStoreTest, TheOldestStrangerMakesRoom) {
  RaiseOpenFilesLimit();
  const UniqueFd first = ConnectTo(port_);
  std::vector<UniqueFd> others;
  for (std::size_t i = 0; i < GangStore::kMaxUnauthenticated; ++i)
    others.push_back(ConnectTo(port_));
  EXPECT_TRUE(IsClosed(first));
  EXPECT_TRUE(Open(kToken, 1).ok());
}

// In a crowd the store may drop a rank before it has had its turn.
TEST_F(GangStoreTest, ARankThatIsDroppedAtTheDoorComesAgain) {
  Listener listener = Listen();
  StoreMeeting meeting;
  Rendezvous rendezvous = testing::MeetAt(listener, 1, 2);
  rendezvous.token = kToken;
  Status opened;
  std::jthread rank([&] { opened = meeting.Open(std::move(rendezvous), Soon()); });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(testing::HasWord(listener.fd)) << "it does not come again";
    const UniqueFd dropped(::accept(listener.fd.get(), nullptr, nullptr));
  }
  const auto store = GangStore::Start(std::move(listener.fd), kToken);
  rank.join();
  EXPECT_TRUE(opened.ok()) << opened.ToString();
}

TEST_F(GangStoreTest, AFloodOfConnectionsLeavesRanksTheirTurn) {
  RaiseOpenFilesLimit();
  std::atomic<bool> over = false;
  std::thread flood([&] {
    std::deque<UniqueFd> unauthenticated;
    // Fewer than there are ports to come from.
    for (int i = 0; i < 10'000 && !over; ++i) {
      unauthenticated.push_back(ConnectTo(port_));
      if (unauthenticated.size() > GangStore::kMaxUnauthenticated + 100)
        unauthenticated.pop_front();
    }
  });
  while (store_->unauthenticated() < 10) std::this_thread::yield();
  for (int rank = 0; rank < 8; ++rank) {
    StoreMeeting meeting;
    Rendezvous rendezvous;
    rendezvous.rank = rank;
    rendezvous.master_address = "127.0.0.1";
    rendezvous.master_port = port_;
    rendezvous.token = kToken;
    const Status opened = meeting.Open(std::move(rendezvous), Soon());
    EXPECT_TRUE(opened.ok()) << opened.ToString();
  }
  over = true;
  flood.join();
}

}  // namespace
}  // namespace muster
