#include "trainer/comm/group/testing/in_process_communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <tuple>

#include "trainer/comm/group/testing/collectives_testing.h"
#include "trainer/comm/group/testing/groups_testing.h"
#include "trainer/comm/group/testing/regions_testing.h"

namespace muster {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

Rendezvous Meet(int rank, int size, Generation generation = 1) {
  Rendezvous rendezvous;
  rendezvous.generation = generation;
  rendezvous.rank = rank;
  rendezvous.world_size = size;
  return rendezvous;
}

// Runs `body` as every rank of a formed group and returns what each said.
std::vector<std::string> OnEveryRank(int size,
                                     const std::function<std::string(Communicator&)>& body,
                                     InProcessTransport transport) {
  InProcessGroup group(size, transport);
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto communicator = group.Join(r);
      const Status formed = communicator->Form(Meet(r, size), Soon());
      said[static_cast<std::size_t>(r)] = formed.ok() ? body(*communicator) : formed.ToString();
    });
  }
  for (auto& thread : threads) thread.join();
  return said;
}

class InProcessCommunicator : public ::testing::TestWithParam<InProcessTransport> {
 protected:
  static std::vector<std::string> OnRanks(int size,
                                          const std::function<std::string(Communicator&)>& body) {
    return OnEveryRank(size, body, GetParam());
  }
};

class WorldSize : public ::testing::TestWithParam<std::tuple<InProcessTransport, int>> {
 protected:
  static std::vector<std::string> OnRanks(const std::function<std::string(Communicator&)>& body) {
    return OnEveryRank(std::get<1>(GetParam()), body, std::get<0>(GetParam()));
  }
};

constexpr auto kTransports = {InProcessTransport::kSharedMemory, InProcessTransport::kRing};

TEST_P(WorldSize, CollectivesEqualTheReference) {
  const auto said = OnRanks([](Communicator& c) { return testing::CheckEverything(c, 9001); });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(WorldSize, SegmentedBlocksEqualTheReference) {
  const auto said = OnRanks([](Communicator& c) {
    auto e = testing::CheckReduceScatter(c, ElementType::kFloat32, 200'003, ReduceOp::kSum, false);
    if (e.empty()) e = testing::CheckAllReduce(c, ElementType::kFloat32, 300'001, ReduceOp::kSum);
    if (e.empty()) e = testing::CheckAllGather(c, ElementType::kBFloat16, 300'001);
    if (e.empty()) e = testing::CheckAllToAll(c, 1'500'001);
    return e.empty() ? testing::CheckBroadcast(c, 700'001, c.size() - 1) : e;
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(WorldSize, TypesMayDiffer) {
  const auto said = OnRanks([](Communicator& c) { return testing::CheckMixedTypes(c, 20'001); });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

// More chunks than are under way at once, the last group of them smaller than the others.
TEST_P(InProcessCommunicator, BlocksOfManyChunksEqualTheReference) {
  const auto said = OnRanks(3, [](Communicator& c) {
    return testing::CheckReduceScatter(c, ElementType::kFloat64, 360'001, ReduceOp::kSum, true);
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

INSTANTIATE_TEST_SUITE_P(Transports, InProcessCommunicator, ::testing::ValuesIn(kTransports));
INSTANTIATE_TEST_SUITE_P(Sizes, WorldSize,
                         ::testing::Combine(::testing::ValuesIn(kTransports),
                                            ::testing::Values(1, 2, 3, 4, 5, 8)));

TEST_P(InProcessCommunicator, GroupsOfAHybridMeshRunTheirOwnCollectives) {
  for (const auto& [nodes, per_node] : {std::pair(1, 1), {2, 2}, {2, 3}, {4, 2}}) {
    const auto said = OnRanks(nodes * per_node, [nodes = nodes](Communicator& c) {
      return testing::CheckHybridGroups(c, nodes);
    });
    for (const std::string& each : said) EXPECT_EQ(each, "") << nodes << " x " << per_node;
  }
}

// A buddy copy travels on a ring of its own while the gang goes on.
TEST_P(InProcessCommunicator, AShiftRunsBesideAnotherGroupsOperations) {
  const auto said = OnRanks(
      3, [](Communicator& c) { return testing::CheckShiftBesideOthers(c, std::size_t{3} << 20); });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(InProcessCommunicator, CountsInThePageByGroupAndFromZeroInEveryGeneration) {
  InProcessGroup group(2, GetParam());
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      said[static_cast<std::size_t>(r)] = testing::CheckCounting(
          *group.Join(r), [&](Generation generation) { return Meet(r, 2, generation); });
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

// The supervisor calls a generation off before the trainer's thread has come to it.
TEST_P(InProcessCommunicator, AGenerationThatWasCalledOffIsNotFormed) {
  InProcessGroup group(1, GetParam());
  const auto c = group.Join(0);
  ASSERT_TRUE(c->Form(Meet(0, 1, 1), Soon()).ok());
  c->AbortThrough(3, Cancelled("parked"));
  EXPECT_EQ(c->Barrier().code(), StatusCode::kCancelled);
  EXPECT_EQ(c->Form(Meet(0, 1, 2), Soon()).ToString(), "CANCELLED: parked");
  EXPECT_EQ(c->Form(Meet(0, 1, 3), Soon()).ToString(), "CANCELLED: parked");
  ASSERT_TRUE(c->Form(Meet(0, 1, 4), Soon()).ok());
  c->AbortThrough(3, Cancelled("late"));
  EXPECT_TRUE(c->Barrier().ok());
}

TEST(InProcessTransports, AddUpAlike) {
  for (const int size : {2, 3, 5}) {
    const auto sums = [](Communicator& c) { return testing::OrderSensitiveSums(c, 70'001); };
    const auto ring = OnEveryRank(size, sums, InProcessTransport::kRing);
    const auto shared = OnEveryRank(size, sums, InProcessTransport::kSharedMemory);
    for (std::size_t r = 0; r < ring.size(); ++r) {
      ASSERT_GT(ring[r].size(), 5 * 70'001 * sizeof(float));
      EXPECT_TRUE(ring[r] == shared[r]) << "rank " << r << " of " << size;
    }
  }
}

TEST(InProcessTransports, SharedRegionsAreWorkedOnInPlace) {
  for (const int size : {1, 2, 3, 5}) {
    const auto said = OnEveryRank(
        size, [](Communicator& c) { return testing::CheckRegions(c); },
        InProcessTransport::kSharedMemory);
    for (const std::string& each : said) EXPECT_EQ(each, "") << size;
  }
}

TEST(InProcessTransports, ARingSharesNoMemory) {
  const auto said = OnEveryRank(
      2,
      [](Communicator& c) {
        return std::string(StatusCodeName(c.Share(RegionKind::kCommon, 8, -1).status().code()));
      },
      InProcessTransport::kRing);
  EXPECT_EQ(said, (std::vector<std::string>{"UNIMPLEMENTED", "UNIMPLEMENTED"}));
}

TEST_P(InProcessCommunicator, AbortReachesTheGroupsBelow) {
  const auto said = OnRanks(2, [](Communicator& c) -> std::string {
    auto group = c.Split("pair", {0, 1}, Soon());
    if (!group.ok()) return group.status().ToString();
    // Rank 0 waits in the group for rank 1, which aborts the world instead.
    if (c.rank() == 1) c.Abort(Aborted("stop"));
    const Status status = (*group)->Barrier();
    return std::string(StatusCodeName(status.code()));
  });
  EXPECT_EQ(said, (std::vector<std::string>{"UNAVAILABLE", "ABORTED"}));
}

TEST_P(InProcessCommunicator, AGroupsOwnAbortLeavesTheWorldAlone) {
  const auto said = OnRanks(2, [](Communicator& c) -> std::string {
    auto group = c.Split("pair", {0, 1}, Soon());
    if (!group.ok()) return group.status().ToString();
    (*group)->Abort(Aborted("stop"));
    if ((*group)->Barrier().ok()) return "the group went on";
    return c.Barrier().ToString();
  });
  EXPECT_EQ(said, (std::vector<std::string>{"OK", "OK"}));
}

TEST_P(InProcessCommunicator, GroupsAreMadeOfTheirOwnMembers) {
  const auto said = OnRanks(2, [](Communicator& c) -> std::string {
    for (const auto& members : {std::vector<int>{1 - c.rank()}, {0, 0, 1}, {0, 1, 2}, {}}) {
      const auto group = c.Split("wrong", members, Soon());
      if (group.status().code() != StatusCode::kInvalidArgument) return "not refused";
    }
    return "";
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(InProcessCommunicator, ShardsMayLieInTheirOwnPlace) {
  const auto said = OnRanks(3, [](Communicator& c) -> std::string {
    std::vector<std::int64_t> full(3, -1);
    std::int64_t* own = full.data() + c.rank();
    *own = 10 + c.rank();
    if (!c.AllGather(own, full.data(), 1, ElementType::kInt64)->Wait().ok()) return "failed";
    return full == std::vector<std::int64_t>{10, 11, 12} ? "" : "differs";
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(InProcessCommunicator, BFloat16SumsKeepTheirSmallTerms) {
  // 256 + 1 + 1 ... in bf16 stays 256 when every partial sum is rounded.
  const auto said = OnRanks(5, [](Communicator& c) -> std::string {
    const float mine = c.rank() == 0 ? 256.0F : 1.0F;
    std::uint16_t value = 0;
    Convert({&mine, ElementType::kFloat32}, &value, ElementType::kBFloat16, 1);
    if (!c.AllReduce(&value, 1, ElementType::kBFloat16, ReduceOp::kSum)->Wait().ok())
      return "failed";
    float sum = 0;
    Convert({&value, ElementType::kBFloat16}, &sum, ElementType::kFloat32, 1);
    return std::to_string(sum);
  });
  for (const std::string& each : said) EXPECT_EQ(each, std::to_string(260.0F));
}

TEST_P(InProcessCommunicator, QueuedOperationsRunInOrder) {
  const auto said = OnRanks(4, [](Communicator& c) -> std::string {
    std::vector<std::vector<std::int64_t>> values(64, {c.rank(), 1});
    std::vector<std::unique_ptr<Work>> works;
    for (auto& value : values) {
      works.push_back(c.AllReduce(value.data(), 2, ElementType::kInt64, ReduceOp::kSum));
    }
    for (auto& work : works) {
      if (!work->Wait().ok()) return "failed";
    }
    for (const auto& value : values) {
      if (value != std::vector<std::int64_t>{6, 4}) return "differs";
    }
    const auto counters = c.counters();
    return counters.enqueued == 64 && counters.completed == 64 && counters.bytes > 0 ? ""
                                                                                     : "counters";
  });
  for (const std::string& each : said) EXPECT_EQ(each, "");
}

TEST_P(InProcessCommunicator, RefusesBeforeItIsFormed) {
  InProcessGroup group(1, GetParam());
  const auto communicator = group.Join(0);
  EXPECT_EQ(communicator->Barrier().code(), StatusCode::kFailedPrecondition);
}

TEST_P(InProcessCommunicator, FormEndsAtItsDeadlineWhenARankIsMissing) {
  InProcessGroup group(2, GetParam());
  const auto communicator = group.Join(0);
  const Status formed =
      communicator->Form(Meet(0, 2), Deadline::After(std::chrono::milliseconds(20)));
  EXPECT_EQ(formed.code(), StatusCode::kDeadlineExceeded) << formed.ToString();
}

TEST_P(InProcessCommunicator, OperationEndsAtItsDeadline) {
  InProcessGroup group(2, GetParam());
  std::vector<Status> statuses(2);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(group.Join(r, std::chrono::milliseconds(50)));
  std::thread other([&] { statuses[1] = ranks[1]->Form(Meet(1, 2), Soon()); });
  statuses[0] = ranks[0]->Form(Meet(0, 2), Soon());
  other.join();
  ASSERT_TRUE(statuses[0].ok() && statuses[1].ok());
  // Rank 1 never joins in.
  EXPECT_EQ(ranks[0]->Barrier().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ranks[0]->Barrier().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ranks[1]->Barrier().code(), StatusCode::kUnavailable);
}

TEST_P(InProcessCommunicator, AbortWakesAWaitOnAnotherThread) {
  const auto said = OnRanks(3, [](Communicator& c) -> std::string {
    if (c.rank() == 2) {
      // Never joins the collective; ends the others' wait as a supervisor would.
      c.Abort(Aborted("the supervisor says so"));
      return c.Barrier().ToString();
    }
    float value = 1;
    const Status status = c.AllReduce(&value, 1, ElementType::kFloat32, ReduceOp::kSum)->Wait();
    return status.code() == StatusCode::kUnavailable ? "lost" : status.ToString();
  });
  EXPECT_EQ(said[0], "lost");
  EXPECT_EQ(said[1], "lost");
  EXPECT_EQ(said[2], Aborted("the supervisor says so").ToString());
}

TEST_P(InProcessCommunicator, AbortEndsFormAtOnce) {
  InProcessGroup group(2, GetParam());
  const auto communicator = group.Join(0);
  Status formed;
  std::thread forming([&] { formed = communicator->Form(Meet(0, 2), Soon()); });
  // Until Form has begun an abort is forgotten, so it is repeated until the thread ends.
  std::atomic<bool> ended = false;
  std::thread aborting([&] {
    while (!ended) {
      communicator->Abort(Cancelled("stop"));
      std::this_thread::yield();
    }
  });
  forming.join();
  ended = true;
  aborting.join();
  EXPECT_EQ(formed.code(), StatusCode::kCancelled);
}

TEST_P(InProcessCommunicator, SurvivorsFormAgainAfterARankIsKilled) {
  InProcessGroup group(3, GetParam());
  std::vector<std::string> said(3);
  std::atomic<int> lost = 0;
  const auto survive = [&](int r) -> std::string {
    const auto c = group.Join(r);
    if (Status s = c->Form(Meet(r, 3), Soon()); !s.ok()) return s.ToString();
    if (r == 1) group.Kill(1);
    // It arrives at no barrier before the others have left it: one that is slow would take it for
    // alive.
    while (r == 1 && lost < 2) std::this_thread::yield();
    const Status status = c->Barrier();
    if (status.code() != StatusCode::kUnavailable) return status.ToString();
    ++lost;
    if (r == 1) return "killed";
    if (Status s = c->Form(Meet(r, 3, 2), Soon()); !s.ok()) return s.ToString();
    return testing::CheckEverything(*c, 100);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] { said[static_cast<std::size_t>(r)] = survive(r); });
  }
  const auto fresh = group.Join(1);
  // Comes as a new process does: while the survivors may still be in generation 1.
  EXPECT_TRUE(fresh->Form(Meet(1, 3, 2), Soon()).ok());
  EXPECT_EQ(testing::CheckEverything(*fresh, 100), "");
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(said, (std::vector<std::string>{"", "killed", ""}));
  EXPECT_EQ(lost, 3);
}

// Where one block is longer than awaited, be it that no other rank has anything to send.
TEST_P(InProcessCommunicator, BlocksOfAnotherSizeAreNamed) {
  for (const std::size_t awaited : {std::size_t{0}, std::size_t{7}}) {
    const auto said = OnRanks(3, [awaited](Communicator& c) -> std::string {
      std::vector<std::byte> sent(8), received(8);
      AllToAllArgs args{sent.data(), received.data(), {0, 0, 0}, {0, 0, 0}};
      if (c.rank() == 0) args.send_bytes[1] = awaited == 0 ? 0 : 8;
      if (c.rank() == 1) args.receive_bytes[0] = awaited == 0 ? 8 : awaited;
      const Status status = c.AllToAll(args)->Wait();
      // Another rank may be done before.
      if (c.rank() != 1) return c.Barrier().ok() ? "went on" : "";
      return status.ToString();
    });
    const std::string sizes =
        awaited == 0 ? "0 bytes, and that one expects 8" : "8 bytes, and that one expects 7";
    EXPECT_EQ(said[0], "");
    EXPECT_EQ(said[1], "INTERNAL: rank 0 sends rank 1 " + sizes +
                           ": the ranks do not issue the same collectives");
    EXPECT_EQ(said[2], "");
  }
}

TEST_P(InProcessCommunicator, AnAllToAllHasABlockForEachRank) {
  const auto said = OnRanks(2, [](Communicator& c) -> std::string {
    for (const AllToAllArgs& wrong : {AllToAllArgs{}, {nullptr, nullptr, {0}, {0}}}) {
      if (c.AllToAll(wrong)->Wait().code() != StatusCode::kInvalidArgument) return "not refused";
    }
    AllToAllArgs own{nullptr, nullptr, {0, 0}, {0, 0}};
    own.send_bytes[static_cast<std::size_t>(c.rank())] = 1;
    if (c.AllToAll(own)->Wait().code() != StatusCode::kInvalidArgument) return "not refused";
    return c.Barrier().ToString();
  });
  EXPECT_EQ(said, (std::vector<std::string>{"OK", "OK"}));
}

TEST_P(InProcessCommunicator, RanksThatDisagreeAreToldSo) {
  const auto said = OnRanks(2, [](Communicator& c) -> std::string {
    std::vector<float> data(8);
    return c.Broadcast(data.data(), c.rank() == 0 ? 32 : 16, 0)->Wait().ToString();
  });
  EXPECT_NE(said[1].find("do not issue the same collectives"), std::string::npos) << said[1];
}

}  // namespace
}  // namespace muster
