// Gangs that form while others than their ranks are at their ports.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "trainer/comm/group/testing/host_gang_testing.h"
#include "trainer/comm/group/testing/unauthenticated_testing.h"
#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/shared/unix_mesh.h"
#include "trainer/comm/transport/tcp/tcp_ring.h"

namespace muster {
namespace {

using testing::Child;
using testing::ConnectTo;
using testing::GoBy;
using testing::kWays;
using testing::Listen;
using testing::Listener;
using testing::ListeningSockets;
using testing::SendTo;
using testing::SocketName;
using testing::Soon;
using testing::Strangers;
using testing::Way;

constexpr int kRanks = 4;
const std::string kToken(64, 'a');

// "OK SECONDS", or how it failed.
std::string FormOne(Rendezvous rendezvous, Way way) {
  GoBy(way);
  const TimePoint begin = SystemClock().Now();
  const auto gang = MakeHostCommunicator();
  Status status = gang->Form(std::move(rendezvous), Soon());
  if (status.ok()) status = gang->Barrier();
  const double seconds = ToSeconds(SystemClock().Now() - begin);
  if (status.ok()) status = gang->Barrier();
  return status.ok() ? "OK " + std::to_string(seconds) : status.ToString();
}

// How long the slowest of four ranks took; negative where one failed.
double FormGang(Way way, const std::string& token, int silent_unauthenticated) {
  Listener listener = Listen();
  const int port = listener.port;
  std::vector<UniqueFd> unauthenticated;
  if (silent_unauthenticated > 0) unauthenticated = Strangers(port, silent_unauthenticated);
  std::vector<Child> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank]() -> std::string {
      Rendezvous rendezvous = testing::MeetAt(listener, rank, kRanks);
      rendezvous.token = token;
      return FormOne(std::move(rendezvous), way);
    });
  }
  listener.fd.reset();
  double slowest = 0;
  for (Child& rank : ranks) {
    const std::string said = rank.Said();
    EXPECT_TRUE(said.starts_with("OK ")) << said;
    if (!said.starts_with("OK ")) return -1;
    slowest = std::max(slowest, std::stod(said.substr(3)));
  }
  return slowest;
}

// How two neighbours of a ring part or meet, each with its own token, after they have found each
// other at a store that asks for no proof.
std::vector<Status> ConnectRing(const std::string& one, const std::string& other) {
  Listener listener = Listen();
  std::vector<StoreMeeting> meetings(2);
  for (int rank = 0; rank < 2; ++rank) {
    Rendezvous rendezvous = testing::MeetAt(listener, rank, 2);
    rendezvous.token.clear();
    const Status opened = meetings[rank].Open(std::move(rendezvous), Soon());
    if (!opened.ok()) return {opened, opened};
  }
  std::vector<Status> outcomes(2);
  std::thread neighbour([&] {
    outcomes[1] = ConnectTcpRing(meetings[1], other, "muster/1/world/", 1, 2, Soon()).status();
  });
  // What was connected lives until both have proved.
  const auto link = ConnectTcpRing(meetings[0], one, "muster/1/world/", 0, 2, Soon());
  outcomes[0] = link.status();
  neighbour.join();
  meetings[1].Close();
  return outcomes;
}

// Once there are so many sockets beside the one of the store; none, where they do not come.
std::vector<SocketName> AwaitSockets(sa_family_t family, std::size_t count, int store_port) {
  for (const Deadline deadline = Soon(); !deadline.Expired(); std::this_thread::yield()) {
    std::vector<SocketName> found = ListeningSockets(family);
    if (family == AF_INET)
      std::erase_if(found, [&](const SocketName& name) { return name.port() == store_port; });
    if (found.size() >= count) return found;
  }
  return {};
}

// The ranks of one process meet at a store that asks for a proof.
std::vector<StoreMeeting> MeetInOneProcess(Listener& listener, int size) {
  std::vector<StoreMeeting> meetings(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Rendezvous rendezvous = testing::MeetAt(listener, rank, size);
    rendezvous.token = kToken;
    const Status opened =
        meetings[static_cast<std::size_t>(rank)].Open(std::move(rendezvous), Soon());
    EXPECT_TRUE(opened.ok()) << opened.ToString();
  }
  return meetings;
}

// As many as a socket lets in; some say something that is not the hello of a rank.
std::vector<UniqueFd> CrowdAt(const SocketName& name) {
  const std::string words[] = {"", "x", "2", "2 " + std::string(kProofBytes, 'p'),
                               "2 " + PeerProof(std::string(64, 'b'), "mesh", 2, 0, "name")};
  std::vector<UniqueFd> crowd;
  for (;;) {
    UniqueFd fd = ConnectTo(name, SOCK_SEQPACKET);
    if (!fd.valid()) return crowd;
    const std::string& said = words[crowd.size() % std::size(words)];
    if (!said.empty()) SendTo(fd, said);
    crowd.push_back(std::move(fd));
  }
}

// How two neighbours meet where unauthenticated peers are at one's port before the other comes: as
// many as `words`, each of which says one.
std::string FormBesideIntruders(const std::vector<std::string>& words) {
  Listener listener = Listen();
  const int store_port = listener.port;
  std::vector<StoreMeeting> meetings = MeetInOneProcess(listener, 2);
  Result<std::unique_ptr<RingLink>> links[2] = {Internal("not yet"), Internal("not yet")};
  const auto connect = [&](int rank) {
    links[rank] = ConnectTcpRing(meetings[static_cast<std::size_t>(rank)], kToken,
                                 "muster/1/world/", rank, 2, Soon());
  };
  std::thread first([&] { connect(0); });
  const std::vector<SocketName> found = AwaitSockets(AF_INET, 1, store_port);
  std::vector<UniqueFd> intruders;
  for (const std::string& said : words) {
    if (found.empty()) break;
    intruders.push_back(ConnectTo(found[0], SOCK_STREAM));
    if (!said.empty()) SendTo(intruders.back(), said);
  }
  connect(1);
  first.join();
  if (intruders.empty()) return "no intruder came";
  for (const auto& link : links)
    if (!link.ok()) return link.status().ToString();
  return "OK";
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

TEST(Strangers, DoNotKeepAGangFromForming) {
  // If each were waited for until it is dropped, it would take half an hour.
  for (const Way way : kWays) EXPECT_GE(FormGang(way, kToken, /*silent_unauthenticated=*/200), 0);
}

TEST(Strangers, AtTheSocketsOfAHostsRanksNeitherJoinNorDelayThem) {
  constexpr int kSize = 3;
  Listener listener = Listen();
  std::vector<StoreMeeting> meetings = MeetInOneProcess(listener, kSize);
  std::vector<std::optional<Result<UnixMesh>>> meshes(kSize);
  std::vector<std::thread> ranks;
  const auto begin = [&](int rank) {
    ranks.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      meshes[at].emplace(ConnectUnixMesh(meetings[at], "muster/1/world/", rank, kSize, Soon()));
    });
  };
  // Two listen and wait for the third.
  begin(0);
  begin(1);
  std::vector<UniqueFd> unauthenticated;
  for (const SocketName& name : AwaitSockets(AF_UNIX, 2, 0))
    std::ranges::move(CrowdAt(name), std::back_inserter(unauthenticated));
  EXPECT_GE(unauthenticated.size(), 2U * kSize);
  begin(2);
  for (std::thread& rank : ranks) rank.join();
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh->ok()) << mesh->status().ToString();
    EXPECT_TRUE((*mesh)->link) << (*mesh)->why_not;
  }
  while (!meetings.empty()) meetings.pop_back();
}

// Where ranks 0 and 1 of three listen, `user` says what rank 2 would say, with the right token. It
// writes to `said` how often, and stays until it is destroyed.
Child RankTwoOf(uid_t user, const std::vector<SocketName>& names, int said) {
  return Child([&]() -> std::string {
    MUSTER_CHECK(::setresuid(user, user, user) == 0, "setresuid");
    std::vector<UniqueFd> sockets;
    for (const SocketName& name : names) {
      const std::string text(reinterpret_cast<const char*>(&name.address), name.length);
      const auto begin = offsetof(sockaddr_un, sun_path) + 1;
      for (int rank = 0; rank < 2; ++rank) {
        sockets.push_back(ConnectTo(name, SOCK_SEQPACKET));
        SendTo(sockets.back(), "2 " + PeerProof(kToken, "mesh", 2, rank, text.substr(begin)));
      }
    }
    const char count = static_cast<char>(sockets.size());
    (void)!::write(said, &count, 1);
    return std::to_string(::pause());
  });
}

// Which it may have learned: the kernel names the user, whatever the token.
TEST(Strangers, AnotherUserWithTheTokenTakesNoPlaceAmongAHostsRanks) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr int kSize = 3;
  Listener listener = Listen();
  std::vector<StoreMeeting> meetings = MeetInOneProcess(listener, kSize);
  std::vector<std::optional<Result<UnixMesh>>> meshes(kSize);
  std::vector<std::thread> ranks;
  const auto begin = [&](int rank) {
    ranks.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      meshes[at].emplace(ConnectUnixMesh(meetings[at], "muster/1/world/", rank, kSize, Soon()));
    });
  };
  begin(0);
  begin(1);
  int said[2];
  ASSERT_EQ(::pipe2(said, O_CLOEXEC), 0);
  const UniqueFd read_end(said[0]), write_end(said[1]);
  const Child intruder = RankTwoOf(65534, AwaitSockets(AF_UNIX, 2, 0), write_end.get());
  char count = 0;
  ASSERT_EQ(::read(read_end.get(), &count, 1), 1);
  EXPECT_EQ(count, 4) << "it is there";
  begin(2);
  for (std::thread& rank : ranks) rank.join();
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh->ok()) << mesh->status().ToString();
    EXPECT_TRUE((*mesh)->link) << (*mesh)->why_not;
  }
  while (!meetings.empty()) meetings.pop_back();
}

TEST(Strangers, WhoComesBeforeANeighbourIsRefusedAndTheRingForms) {
  const std::string proof = PeerProof(std::string(64, 'b'), "ring connects muster/1/world/", 1, 0,
                                      std::string(kNonceBytes, 'n'));
  EXPECT_EQ(FormBesideIntruders({"", "x", "GET / HTTP/1.1\r\n\r\n", std::string(4096, '\0'),
                                 std::string(4096, '\xff'), proof, proof.substr(1)}),
            "OK");
  // More than are kept, before the neighbour and beside it.
  EXPECT_EQ(FormBesideIntruders(std::vector<std::string>(300)), "OK");
}

TEST(Strangers, ARankWithAnotherTokenIsLeftOutAndTheOthersMeet) {
  Listener listener = Listen();
  Listener nothing;
  nothing.port = listener.port;
  const auto form = [](Rendezvous rendezvous) {
    rendezvous.token = kToken;
    return FormOne(std::move(rendezvous), Way::kSockets);
  };
  // Its store is there until rank 1 has come.
  Child first([&] { return form(testing::MeetAt(listener, 0, 2)); });
  listener.fd.reset();
  Rendezvous impostor = testing::MeetAt(nothing, 1, 2);
  impostor.token = std::string(64, 'b');
  const auto gang = MakeHostCommunicator();
  const Status refused = gang->Form(std::move(impostor), Soon());
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused.ToString();
  Child second([&] { return form(testing::MeetAt(nothing, 1, 2)); });
  for (Child* rank : {&first, &second}) EXPECT_TRUE(rank->Said().starts_with("OK "));
}

TEST(Strangers, ANeighbourThatDoesNotKnowTheTokenIsFoundOutBeforeAnyData) {
  const TimePoint begin = SystemClock().Now();
  std::string said;
  for (const Status& outcome : ConnectRing(kToken, std::string(64, 'b'))) {
    EXPECT_EQ(outcome.code(), StatusCode::kUnavailable) << outcome.ToString();
    said += outcome.message();
  }
  // The other one may only see that the first has closed.
  EXPECT_NE(said.find("does not know this generation's token"), std::string::npos) << said;
  // Neither waits for the deadline.
  EXPECT_LT(SystemClock().Now() - begin, std::chrono::seconds(15));
  for (const Status& outcome : ConnectRing(kToken, kToken))
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST(Strangers, ShowingTheTokenCostsAFormingGangLittle) {
  for (const Way way : kWays) {
    std::vector<double> without, with;
    for (int i = 0; i < 5; ++i) {
      without.push_back(FormGang(way, "", 0));
      with.push_back(FormGang(way, kToken, 0));
    }
    std::printf("forming %d ranks over %s: %.4f s without a token, %.4f s with one, ratio %.2f\n",
                kRanks, way == Way::kSockets ? "sockets" : "shared memory", Median(without),
                Median(with), Median(with) / Median(without));
    // A wait for something that does not come would be seen on a busy machine, too.
    EXPECT_LT(Median(with), 2 * Median(without) + 3);
  }
}

}  // namespace
}  // namespace muster
