#include "trainer/comm/group/host_communicator.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <tuple>

#include "trainer/comm/group/testing/collectives_testing.h"
#include "trainer/comm/group/testing/groups_testing.h"
#include "trainer/comm/group/testing/host_gang_testing.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/comm/group/testing/regions_testing.h"
#include "trainer/comm/rank_env.h"
#include "trainer/comm/transport/shared/unix_mesh.h"

namespace muster::testing {
namespace {

// Forks a gang, forms it, runs `body` as every rank; what the ranks said comes back.
std::vector<std::string> OnEveryRank(Way way, int size,
                                     const std::function<std::string(Communicator&)>& body) {
  Listener listener = Listen();
  std::vector<Child> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      GoBy(way);
      const auto communicator = MakeHostCommunicator();
      const Status formed = communicator->Form(MeetAt(listener, r, size), Soon());
      return formed.ok() ? body(*communicator) : formed.ToString();
    });
  }
  std::vector<std::string> said;
  for (Child& rank : ranks) said.push_back(rank.Said());
  return said;
}

class HostCommunicator : public ::testing::TestWithParam<Way> {
 protected:
  static std::vector<std::string> OnRanks(int size,
                                          const std::function<std::string(Communicator&)>& body) {
    return OnEveryRank(GetParam(), size, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, HostCommunicator, ::testing::ValuesIn(kWays));

class WorldSize : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  static std::vector<std::string> OnRanks(const std::function<std::string(Communicator&)>& body) {
    return OnEveryRank(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

TEST_P(WorldSize, CollectivesEqualTheReference) {
  const auto said = OnRanks([](Communicator& c) { return CheckEverything(c, 9001); });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(WorldSize, TypesMayDiffer) {
  const auto said = OnRanks([](Communicator& c) { return CheckMixedTypes(c, 1001); });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, WorldSize,
                         ::testing::Combine(::testing::ValuesIn(kWays),
                                            ::testing::Values(1, 2, 3, 4, 5, 8)));

class HybridMesh : public ::testing::TestWithParam<std::tuple<Way, std::pair<int, int>>> {};

TEST_P(HybridMesh, GroupsRunTheirOwnCollectives) {
  const auto way = std::get<0>(GetParam());
  const auto [nodes, per_node] = std::get<1>(GetParam());
  const auto said = OnEveryRank(way, nodes * per_node, [nodes = nodes](Communicator& c) {
    return CheckHybridGroups(c, nodes);
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, HybridMesh,
                         ::testing::Combine(::testing::ValuesIn(kWays),
                                            ::testing::Values(std::pair(1, 1), std::pair(2, 2),
                                                              std::pair(2, 3))));

TEST_P(HostCommunicator, AShiftRunsBesideAnotherGroupsOperations) {
  const auto said =
      OnRanks(3, [](Communicator& c) { return CheckShiftBesideOthers(c, std::size_t{20} << 20); });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(HostCommunicator, CountsInThePageByGroupAndFromZeroInEveryGeneration) {
  Listener listeners[] = {Listen(), Listen()};
  std::vector<Child> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      GoBy(GetParam());
      return CheckCounting(*MakeHostCommunicator(), [&](Generation generation) {
        return MeetAt(listeners[generation - 1], r, 2, generation);
      });
    });
  }
  for (Child& rank : ranks) EXPECT_EQ(rank.Said(), "");
}

TEST_P(HostCommunicator, AddsUpLikeTheInProcessCommunicator) {
  constexpr int kSize = 3;
  constexpr std::size_t kCount = 70'001;
  const auto said = OnRanks(kSize, [](Communicator& c) { return OrderSensitiveSums(c, kCount); });
  InProcessGroup group(kSize);
  std::vector<std::string> expected(kSize);
  std::vector<std::thread> threads;
  for (int r = 0; r < kSize; ++r) {
    threads.emplace_back([&, r] {
      const auto c = group.Join(r);
      Rendezvous rendezvous;
      rendezvous.rank = r;
      rendezvous.world_size = kSize;
      if (c->Form(std::move(rendezvous), Soon()).ok()) {
        expected[static_cast<std::size_t>(r)] = OrderSensitiveSums(*c, kCount);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t r = 0; r < kSize; ++r) {
    ASSERT_GT(expected[r].size(), 5 * kCount * sizeof(float));
    EXPECT_TRUE(said[r] == expected[r]) << "rank " << r;
  }
}

TEST(SharedMemory, RegionsAreWorkedOnInPlace) {
  for (const int size : {2, 3, 5}) {
    const auto said =
        OnEveryRank(Way::kSharedMemory, size, [](Communicator& c) { return CheckRegions(c); });
    for (const std::string& each : said) EXPECT_EQ(each, "") << size;
  }
}

// Without an own switch it would not be one host: the one rank's word counts for all, in its groups
// alone.
TEST(SharedMemory, OneRankThatCannotKeepsItsGroupsToSockets) {
  const auto said = OnEveryRank(Way::kSharedMemory, 3, [](Communicator& world) -> std::string {
    if (world.rank() == 2) setenv(kShmDisableVariable, "1", 1);
    std::string ways;
    for (const auto& members : {std::vector<int>{0, 1}, {0, 2}}) {
      if (std::ranges::find(members, world.rank()) == members.end()) continue;
      const auto group = world.Split("pair", members, Soon());
      if (!group.ok()) return group.status().ToString();
      if (Status s = (*group)->Barrier(); !s.ok()) return s.ToString();
      ways += (*group)->Describe().substr(0, 6) + ";";
    }
    return ways + world.Describe();
  });
  EXPECT_EQ(said[0], "shared;TCP fr;shared memory");
  EXPECT_EQ(said[1], "shared;shared memory");
  EXPECT_EQ(said[2], "TCP fr;shared memory");
}

TEST(SharedMemory, DescribesWhyItIsNotUsed) {
  const auto said = OnEveryRank(Way::kSockets, 2, [](Communicator& c) { return c.Describe(); });
  for (const std::string& each : said) {
    EXPECT_EQ(each, "TCP from 127.0.0.1 (no shared memory: rank 0: MUSTER_SHM_DISABLE is set)");
  }
}

TEST(SharedMemory, TheFirstRankKnowsThatOneHostDoesWithout) {
  for (const Way way : {Way::kSharedMemory, Way::kSockets}) {
    const auto said = OnEveryRank(way, 2, [](Communicator& c) { return c.fallback(); });
    EXPECT_EQ(said[0], way == Way::kSockets
                           ? "of one host use sockets, which are slower than its memory: rank 0: "
                             "MUSTER_SHM_DISABLE is set"
                           : "");
    EXPECT_EQ(said[1], "");
  }
}

// Rank 1 dies in the middle of a collective whose blocks are on the wire; both survivors get an
// error within a fraction of a second although one of them waits for the other.
TEST_P(HostCommunicator, SurvivorsOfAKilledRankFormAgainWithAFreshProcess) {
  Listener first = Listen();
  Listener second = Listen();
  SideChannel formed;
  const auto survive = [&](int r) -> std::string {
    GoBy(GetParam());
    const auto c = MakeHostCommunicator();
    if (Status s = c->Form(MeetAt(first, r, 3), Soon()); !s.ok()) return s.ToString();
    std::vector<float> data(3'000'000);
    if (r != 1) formed.Tell();
    if (r == 1) {
      formed.Await(2);
      const auto work =
          c->AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum);
      kill(getpid(), SIGKILL);
    }
    // A rank that is killed early on lets none of the loops' collectives end well.
    Status status;
    while (status.ok()) {
      status =
          c->AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum)->Wait();
    }
    if (status.code() != StatusCode::kUnavailable) return status.ToString();
    const auto start = std::chrono::steady_clock::now();
    if (c->Barrier().code() != StatusCode::kUnavailable) return "went on after an error";
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(2)) return "slow";
    if (Status s = c->Form(MeetAt(second, r, 3, 2), Soon()); !s.ok()) return s.ToString();
    return CheckEverything(*c, 9001);
  };
  std::vector<Child> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back([&, r] { return survive(r); });
  Child fresh([&]() -> std::string {
    GoBy(GetParam());
    const auto c = MakeHostCommunicator();
    if (Status s = c->Form(MeetAt(second, 1, 3, 2), Soon()); !s.ok()) return s.ToString();
    return CheckEverything(*c, 9001);
  });
  EXPECT_EQ(ranks[0].Said(), "");
  EXPECT_EQ(ranks[2].Said(), "");
  EXPECT_EQ(fresh.Said(), "");
}

// Rank 2 dies while blocks for it and of it are on their way through others.
TEST_P(HostCommunicator, AnAllToAllEndsWithTheRankThatDies) {
  SideChannel formed;
  const auto said = OnRanks(4, [&](Communicator& c) -> std::string {
    constexpr std::size_t kBlock = 3 << 20;
    std::vector<std::byte> sent(4 * kBlock), received(4 * kBlock);
    const AllToAllArgs args{sent.data(), received.data(), BlockBytes(4, kBlock),
                            BlockBytes(4, kBlock)};
    if (c.rank() != 2) formed.Tell();
    if (c.rank() == 2) {
      formed.Await(3);
      const auto work = c.AllToAll(args);
      kill(getpid(), SIGKILL);
    }
    Status status;
    while (status.ok()) status = c.AllToAll(args)->Wait();
    if (status.code() != StatusCode::kUnavailable) return status.ToString();
    const auto start = std::chrono::steady_clock::now();
    if (c.AllToAll(args)->Wait().code() != StatusCode::kUnavailable) return "went on";
    return std::chrono::steady_clock::now() - start < std::chrono::seconds(2) ? "" : "slow";
  });
  for (const int r : {0, 1, 3}) EXPECT_EQ(said[static_cast<std::size_t>(r)], "") << r;
}

TEST_P(HostCommunicator, AnAbortEndsAnAllToAllUnderWay) {
  const auto said = OnRanks(3, [](Communicator& c) -> std::string {
    constexpr std::size_t kBlock = 1 << 20;
    std::vector<std::byte> sent(3 * kBlock), received(3 * kBlock);
    const AllToAllArgs args{sent.data(), received.data(), BlockBytes(3, kBlock),
                            BlockBytes(3, kBlock)};
    std::atomic<bool> under_way = false;
    std::thread supervisor([&] {
      if (c.rank() != 0) return;
      under_way.wait(false);
      c.Abort(Aborted("stop"));
    });
    Status status;
    while (status.ok()) {
      const auto work = c.AllToAll(args);
      under_way = true;
      under_way.notify_all();
      status = work->Wait();
    }
    supervisor.join();
    return std::string(StatusCodeName(status.code()));
  });
  EXPECT_EQ(said, (std::vector<std::string>{"ABORTED", "UNAVAILABLE", "UNAVAILABLE"}));
}

// In a ring of five the rank that dies is no neighbour of two others.
TEST_P(HostCommunicator, NewsOfALostRankTravelsRoundTheRing) {
  SideChannel formed;
  const auto said = OnRanks(5, [&](Communicator& c) -> std::string {
    if (c.rank() == 4) {
      formed.Await(4);
      kill(getpid(), SIGKILL);
    }
    formed.Tell();
    const auto start = std::chrono::steady_clock::now();
    const Status status = c.Barrier();
    const double seconds = ToSeconds(std::chrono::steady_clock::now() - start);
    if (status.code() != StatusCode::kUnavailable) return status.ToString();
    return seconds < 2 ? "" : "took " + std::to_string(seconds) + " s";
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(HostCommunicator, AbortFromAnotherThreadWakesAWaitAtOnce) {
  SideChannel channel;
  const auto said = OnRanks(2, [&](Communicator& c) -> std::string {
    std::vector<float> data(1'000'000);
    // Rank 1 stays out of the collective until the other has given up.
    if (c.rank() == 1) channel.Await();
    const auto work =
        c.ReduceScatter({.full = data.data(), .shard = data.data(), .count = data.size() / 2});
    if (c.rank() == 1) return work->Wait().ToString();
    std::chrono::steady_clock::time_point aborted;
    std::thread supervisor([&] {
      aborted = std::chrono::steady_clock::now();
      c.Abort(Aborted("stop"));
    });
    const Status status = work->Wait();
    const auto woken = std::chrono::steady_clock::now();
    supervisor.join();
    channel.Tell();
    if (status.code() != StatusCode::kAborted) return status.ToString();
    return woken - aborted < std::chrono::seconds(1) ? "" : "slow";
  });
  EXPECT_EQ(said[0], "");
  EXPECT_NE(said[1].find("UNAVAILABLE"), std::string::npos) << said[1];
}

TEST_P(HostCommunicator, AbortEndsFormAtOnce) {
  Child rank([]() -> std::string {
    GoBy(GetParam());
    Listener listener = Listen();
    const auto c = MakeHostCommunicator();
    std::atomic<bool> ended = false;
    std::thread supervisor([&] {
      while (!ended) {
        c->Abort(Cancelled("stop"));
        std::this_thread::yield();
      }
    });
    const Status formed = c->Form(MeetAt(listener, 0, 2), Soon());
    ended = true;
    supervisor.join();
    return formed.code() == StatusCode::kCancelled ? "" : formed.ToString();
  });
  EXPECT_EQ(rank.Said(), "");
}

TEST_P(HostCommunicator, FormEndsAtItsDeadlineWhenARankIsMissing) {
  Child rank([]() -> std::string {
    GoBy(GetParam());
    Listener listener = Listen();
    const auto c = MakeHostCommunicator();
    const Status formed =
        c->Form(MeetAt(listener, 0, 2), Deadline::After(std::chrono::milliseconds(100)));
    return formed.code() == StatusCode::kDeadlineExceeded ? "" : formed.ToString();
  });
  EXPECT_EQ(rank.Said(), "");
}

TEST_P(HostCommunicator, OperationEndsAtItsDeadline) {
  Listener listener = Listen();
  SideChannel channel;
  const auto body = [&](int r) -> std::string {
    GoBy(GetParam());
    const auto c = MakeHostCommunicator({.operation_timeout = std::chrono::milliseconds(50)});
    if (Status s = c->Form(MeetAt(listener, r, 2), Soon()); !s.ok()) return s.ToString();
    if (r == 1) channel.Await();
    const Status status = c->Barrier();
    if (r == 0) channel.Tell();
    return std::string(StatusCodeName(status.code()));
  };
  Child first([&] { return body(0); });
  Child second([&] { return body(1); });
  EXPECT_EQ(first.Said(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(second.Said(), "UNAVAILABLE");
}

// Each rank leaves as soon as its own part of the last barrier is done.
TEST_P(HostCommunicator, LeavingInOrderAlarmsNobody) {
  for (int round = 0; round < 5; ++round) {
    const auto said = OnRanks(4, [](Communicator& c) { return c.Barrier().ToString(); });
    for (const std::string& each : said) ASSERT_EQ(each, "OK");
  }
}

TEST_P(HostCommunicator, RankZeroServesTheStoreWithoutAnInheritedSocket) {
  Listener listener = Listen();
  const int port = listener.port;
  listener.fd.reset();
  std::vector<Child> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([port, r]() -> std::string {
      GoBy(GetParam());
      Rendezvous rendezvous;
      rendezvous.rank = r;
      rendezvous.world_size = 2;
      rendezvous.master_address = "127.0.0.1";
      rendezvous.master_port = port;
      rendezvous.serve_store = r == 0;
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(std::move(rendezvous), Soon()); !s.ok()) return s.ToString();
      return c->Barrier().ToString();
    });
  }
  for (Child& rank : ranks) EXPECT_EQ(rank.Said(), "OK");
}

}  // namespace
}  // namespace muster::testing
