// What collectives compute and in which order streams run them. Errors are in nccl_faults_test.cc.
#include "trainer/comm/transport/nccl/nccl_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "trainer/comm/group/testing/collectives_testing.h"
#include "trainer/comm/transport/nccl/testing/nccl_gang_testing.h"

namespace muster::testing {
namespace {

constexpr Duration kSoon = std::chrono::seconds(10);

class NcclWorlds : public ::testing::TestWithParam<int> {};

TEST_P(NcclWorlds, ComputeWhatEveryCommunicatorComputes) {
  NcclTestGang gang(GetParam());
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    Synchronous synchronous(communicator, gang.cuda(r));
    EXPECT_EQ(CheckEverything(synchronous, 301), "") << "rank " << r;
  });
  gang.End();
  EXPECT_EQ(gang.nccl().open_communicators(), 0);
  EXPECT_EQ(gang.nccl().aborts(), 0);
}
INSTANTIATE_TEST_SUITE_P(Sizes, NcclWorlds, ::testing::Values(1, 2, 3));

struct MixedTypes {
  ElementType full, sum, shard;
  bool accumulate;
};
class NcclMixedTypes : public ::testing::TestWithParam<MixedTypes> {};

// Scratch of 4 KiB: many pieces, the last one shorter.
TEST_P(NcclMixedTypes, AreSummedInTheirOwnTypeWithinBoundedScratch) {
  const MixedTypes types = GetParam();
  constexpr std::size_t kCount = 1000;
  for (const int size : {1, 3}) {
    NcclTestGang gang(size, {.scratch_bytes = 4096});
    gang.MustForm(1);
    gang.Run([&](int r, Communicator& communicator) {
      auto full = Filled(types.full, r, kCount * static_cast<std::size_t>(size));
      auto shard = Filled(types.shard, 50, kCount);
      const auto before = shard;
      const Status status = communicator
                                .ReduceScatter({.full = full.data(),
                                                .shard = shard.data(),
                                                .count = kCount,
                                                .full_type = types.full,
                                                .sum_type = types.sum,
                                                .shard_type = types.shard,
                                                .accumulate = types.accumulate})
                                ->Wait();
      EXPECT_TRUE(status.ok()) << status.ToString();
      gang.cuda(r).Synchronize();
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::size_t place = static_cast<std::size_t>(r) * kCount + i;
        const double want = Expected(ReduceOp::kSum, size, place, ElementType::kFloat64) +
                            (types.accumulate ? Load(types.shard, before.data(), i) : 0);
        ASSERT_EQ(Load(types.shard, shard.data(), i), want) << "rank " << r << ", element " << i;
      }
    });
    EXPECT_LE(gang.cuda(0).largest_allocation(), 4096U);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Types, NcclMixedTypes,
    ::testing::Values(
        MixedTypes{ElementType::kBFloat16, ElementType::kFloat32, ElementType::kFloat32, true},
        MixedTypes{ElementType::kBFloat16, ElementType::kFloat32, ElementType::kBFloat16, false},
        MixedTypes{ElementType::kFloat16, ElementType::kFloat16, ElementType::kFloat32, false},
        MixedTypes{ElementType::kFloat32, ElementType::kFloat32, ElementType::kFloat32, true}));

TEST(NcclStreams, AnOperationBeginsAfterWhatTheTrainerHadIssuedAndBeforeWhatComesAfterWait) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    float shard = 0;
    std::vector<float> full(2, -1);
    std::promise<void> gate;
    std::vector<float> seen;
    // The trainer's stream is held up, then writes the shard.
    gang.cuda(r).Enqueue([&, opened = gate.get_future().share()] {
      opened.wait();
      shard = static_cast<float>(r + 1);
    });
    auto work = communicator.AllGather(&shard, full.data(), 1, ElementType::kFloat32);
    EXPECT_TRUE(work->Wait().ok());
    gang.cuda(r).Enqueue([&] { seen = full; });
    EXPECT_EQ(communicator.counters().completed, 0U) << "Wait must not block the thread";
    gate.set_value();
    gang.cuda(r).Synchronize();
    EXPECT_EQ(seen, (std::vector<float>{1, 2}));
  });
}

TEST(NcclStreams, DroppedWorkStillOrdersTheTrainersStream) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    const float shard = static_cast<float>(r + 1);
    std::vector<float> full(2, -1), seen;
    communicator.AllGather(&shard, full.data(), 1, ElementType::kFloat32).reset();
    gang.cuda(r).Enqueue([&] { seen = full; });
    gang.cuda(r).Synchronize();
    EXPECT_EQ(seen, (std::vector<float>{1, 2}));
  });
}

TEST(NcclStreams, AReductionPassesAGatherThatWaits) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  std::promise<void> gate;
  const auto opened = gate.get_future().share();
  std::atomic<int> reduced = 0;
  gang.Run([&](int r, Communicator& communicator) {
    Synchronous synchronous(communicator, gang.cuda(r));
    float shard = 1;
    std::vector<float> full(2), data(3, 1);
    // Rank 1 comes to the gather only once the reductions of both are done.
    if (r == 1) {
      EXPECT_TRUE(synchronous.AllReduce(data.data(), 3, ElementType::kFloat32, ReduceOp::kSum)
                      ->Wait()
                      .ok());
      if (++reduced == 2) gate.set_value();
      opened.wait();
      EXPECT_TRUE(
          communicator.AllGather(&shard, full.data(), 1, ElementType::kFloat32)->Wait().ok());
    } else {
      auto gather = communicator.AllGather(&shard, full.data(), 1, ElementType::kFloat32);
      EXPECT_TRUE(synchronous.AllReduce(data.data(), 3, ElementType::kFloat32, ReduceOp::kSum)
                      ->Wait()
                      .ok());
      if (++reduced == 2) gate.set_value();
      EXPECT_TRUE(gather->Wait().ok());
    }
    gang.cuda(r).Synchronize();
    EXPECT_EQ(full, (std::vector<float>{1, 1}));
    EXPECT_EQ(data, (std::vector<float>{2, 2, 2}));
  });
}

TEST(NcclStreams, CountersTellEnqueuedStartedAndCompleted) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    std::promise<void> gate;
    gang.cuda(r).Enqueue([opened = gate.get_future().share()] { opened.wait(); });
    std::vector<float> data(4, 1);
    auto work = communicator.AllReduce(data.data(), 4, ElementType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(communicator.counters().enqueued, 1U);
    EXPECT_EQ(communicator.counters().started, 0U);
    EXPECT_EQ(communicator.counters().bytes, 16U);
    gate.set_value();
    EXPECT_TRUE(communicator.Barrier().ok());
    const CommunicatorCounters counters = communicator.counters();
    EXPECT_EQ(counters.enqueued, 2U);
    EXPECT_EQ(counters.started, 2U);
    EXPECT_EQ(counters.completed, 2U);
    EXPECT_GT(counters.wait_nanoseconds, 0U);
  });
}

// The trainer votes and agrees over a few numbers on the host.
TEST(NcclHostMemory, IsStagedAndThereWhenWaitReturns) {
  for (const int size : {1, 3}) {
    NcclTestGang gang(size);
    gang.MustForm(1);
    gang.Run([&](int r, Communicator& communicator) {
      const auto ranks = static_cast<std::size_t>(size);
      std::vector<std::int64_t> own = {r, 10 + r}, rows(2 * ranks, -1), text = {r, r};
      for (const auto* values : {&own, &rows, &text}) {
        gang.cuda(r).MakeHostMemory(values->data());
      }
      // No Synchronize: what Wait returns for must be there.
      EXPECT_TRUE(
          communicator.AllGather(own.data(), rows.data(), 2, ElementType::kInt64)->Wait().ok());
      for (int of = 0; of < size; ++of) {
        EXPECT_EQ(rows[2 * static_cast<std::size_t>(of) + 1], 10 + of);
      }
      auto sum = communicator.AllReduce(own.data(), 2, ElementType::kInt64, ReduceOp::kMax);
      auto said = communicator.Broadcast(text.data(), 16, size - 1);
      EXPECT_TRUE(said->Wait().ok() && sum->Wait().ok());
      EXPECT_EQ(own, (std::vector<std::int64_t>{size - 1, 10 + size - 1}));
      EXPECT_EQ(text, (std::vector<std::int64_t>{size - 1, size - 1}));
      std::vector<std::byte> sent(9, std::byte(r)), received(9);
      gang.cuda(r).MakeHostMemory(received.data());
      auto shift = communicator.RingSendRecv(sent.data(), received.data(), 9);
      EXPECT_TRUE(shift->Wait().ok());
      EXPECT_EQ(received, std::vector<std::byte>(9, std::byte((r + size - 1) % size)));
      // Rank 0 has two numbers for each, the others have none.
      std::vector<std::int64_t> dealt(2 * ranks, 7), mine(2, -1);
      gang.cuda(r).MakeHostMemory(dealt.data());
      gang.cuda(r).MakeHostMemory(mine.data());
      AllToAllArgs deal{dealt.data(), mine.data(), BlockBytes(ranks, r == 0 ? 16 : 0),
                        BlockBytes(ranks, 0)};
      deal.receive_bytes[0] = 16;
      EXPECT_TRUE(communicator.AllToAll(deal)->Wait().ok());
      EXPECT_EQ(mine, (std::vector<std::int64_t>{7, 7}));
      EXPECT_EQ(communicator.counters().completed, 5U);
    });
    gang.End();
    EXPECT_EQ(gang.cuda(0).allocations(), 0) << "staging memory is given back";
  }
}

TEST(NcclHostMemory, OfBlocksMayBeEmptyOnEitherSide) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    std::int64_t value = 10 + r;
    gang.cuda(r).MakeHostMemory(&value);
    const BlockBytes none(2, 0), one = {8, 0};
    // From rank 1 to rank 0.
    AllToAllArgs args{nullptr, &value, none, {0, 8}};
    if (r == 1) args = {&value, nullptr, one, none};
    EXPECT_TRUE(communicator.AllToAll(args)->Wait().ok());
    EXPECT_EQ(value, 11);
    EXPECT_TRUE(communicator.AllToAll({nullptr, nullptr, none, none})->Wait().ok());
    EXPECT_TRUE(communicator.Barrier().ok());
  });
}

// The allocator of a device waits for all that the device has in hand.
TEST(NcclHostMemory, IsStagedThroughMemoryThatStays) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    std::vector<std::int64_t> values(1000, r);
    gang.cuda(r).MakeHostMemory(values.data());
    const auto sum = [&](std::size_t count) {
      return communicator.AllReduce(values.data(), count, ElementType::kInt64, ReduceOp::kMax)
          ->Wait()
          .ok();
    };
    EXPECT_TRUE(sum(2));
    const int made = gang.cuda(r).allocations_made();
    EXPECT_TRUE(sum(1) && sum(2) && sum(100));
    EXPECT_EQ(gang.cuda(r).allocations_made(), made);
    EXPECT_TRUE(sum(1000));
    EXPECT_EQ(gang.cuda(r).allocations_made(), made + 2) << "it grows";
    EXPECT_TRUE(sum(1000) && sum(1));
    EXPECT_EQ(gang.cuda(r).allocations_made(), made + 2);
  });
  gang.End();
  EXPECT_EQ(gang.cuda(0).allocations(), 0);
}

TEST(NcclHostMemory, OfAGangThatIsAbortedIsLeftAlone) {
  NcclTestGang gang(2);
  std::int64_t value = 7;
  gang.cuda(0).MakeHostMemory(&value);
  EXPECT_EQ(
      gang.communicator(0).AllReduce(&value, 1, ElementType::kInt64, ReduceOp::kSum)->Wait().code(),
      StatusCode::kFailedPrecondition);
  gang.MustForm(1);
  gang.nccl().HangRank(1);
  auto work = gang.communicator(0).AllReduce(&value, 1, ElementType::kInt64, ReduceOp::kSum);
  gang.communicator(0).Abort(Cancelled("enough"));
  EXPECT_EQ(work->Wait(), Cancelled("enough"));
  EXPECT_EQ(value, 7);
}

TEST(NcclCounts, GoToThePageByGroupAndBeginAnewInEveryGeneration) {
  NcclTestGang gang(2);
  auto fd = CreateProgressPage();
  const auto reader = *ProgressReader::Map(fd->get());
  gang.communicator(0).CountInto(*ProgressWriter::Map(fd->get()));
  for (const Generation generation : {1, 2}) {
    gang.MustForm(generation);
    gang.Run([&](int, Communicator& communicator) {
      auto pair = communicator.Split("pair", {0, 1}, Deadline::After(kSoon));
      ASSERT_TRUE(pair.ok());
      EXPECT_TRUE((*pair)->Barrier().ok() && communicator.Barrier().ok());
      EXPECT_TRUE(communicator.Barrier().ok());
    });
    const auto counts = reader->ReadCollectives();
    ASSERT_EQ(counts.size(), 1U);  // the pair's cell went with it
    EXPECT_EQ(counts[0].group, "world");
    EXPECT_EQ(counts[0].started, 2U);
    EXPECT_EQ(counts[0].completed, 2U);
  }
}

TEST(NcclCalls, AGenerationThatWasCalledOffIsNotFormed) {
  NcclTestGang gang(1);
  gang.MustForm(1);
  gang.communicator(0).AbortThrough(2, Cancelled("parked"));
  EXPECT_EQ(gang.communicator(0).Barrier(), Cancelled("parked"));
  EXPECT_EQ(gang.Form(2).front(), Cancelled("parked"));
  gang.MustForm(3);
  gang.communicator(0).AbortThrough(2, Cancelled("late"));
  EXPECT_TRUE(gang.communicator(0).Barrier().ok());
}

TEST(NcclCalls, ThatStayInProgressAreWaitedForBeforeTheirEndIsMarked) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.nccl().DelayCalls(0, 5);
  gang.Run([&](int r, Communicator& communicator) {
    Synchronous synchronous(communicator, gang.cuda(r));
    EXPECT_EQ(CheckAllReduce(synchronous, ElementType::kFloat32, 10, ReduceOp::kSum), "");
  });
}

TEST(NcclCalls, ThatAreWrongAreRefusedWithoutHarm) {
  NcclTestGang gang(2);
  float value = 0;
  EXPECT_EQ(gang.communicator(0).Broadcast(&value, 4, 0)->Wait().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(gang.communicator(0).Barrier().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(gang.communicator(0).Form({.rank = 2, .world_size = 2}, Deadline::After(kSoon)).code(),
            StatusCode::kInvalidArgument);
  gang.MustForm(1);
  EXPECT_EQ(gang.communicator(0).Broadcast(&value, 4, 2)->Wait().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(gang.communicator(0).Share(RegionKind::kCommon, 8, -1).status().code(),
            StatusCode::kUnimplemented);
  gang.Run([](int, Communicator& c) { EXPECT_TRUE(c.Barrier().ok()); });
}

TEST(NcclGroups, OfANodeAndAcrossNodesWorkSideBySide) {
  NcclTestGang gang(4);
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    const std::vector<int> node = r < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    const std::vector<int> across = r % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{3, 1};
    auto in_node = communicator.Split("node", node, Deadline::After(kSoon));
    auto over_nodes = communicator.Split("across", across, Deadline::After(kSoon));
    ASSERT_TRUE(in_node.ok() && over_nodes.ok());
    EXPECT_EQ((*in_node)->rank(), r % 2);
    EXPECT_EQ((*over_nodes)->rank(), across.front() == r ? 0 : 1);
    for (Communicator* const group : {in_node->get(), over_nodes->get()}) {
      Synchronous synchronous(*group, gang.cuda(r));
      EXPECT_EQ(CheckAllGather(synchronous, ElementType::kInt64, 5), "") << "rank " << r;
      EXPECT_EQ(CheckReduceScatter(synchronous, ElementType::kFloat32, 5, ReduceOp::kSum, false),
                "");
      EXPECT_TRUE(group->Barrier().ok());
    }
    EXPECT_TRUE(communicator.Barrier().ok());
    EXPECT_EQ((*in_node)->counters().enqueued, 3U);
    EXPECT_EQ(communicator.counters().enqueued, 1U);
  });
}

TEST(NcclGroups, OfTheSameNameTwiceAreTwoGroups) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int, Communicator& communicator) {
    auto first = communicator.Split("pair", {0, 1}, Deadline::After(kSoon));
    auto second = communicator.Split("pair", {0, 1}, Deadline::After(kSoon));
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_TRUE((*second)->Barrier().ok());
    EXPECT_TRUE((*first)->Barrier().ok());
  });
}

TEST(NcclGroups, WithoutThisRankAreRefused) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  EXPECT_EQ(gang.communicator(0).Split("other", {1}, Deadline::After(kSoon)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(NcclEnd, OfAHealthyGangIsOrderlyAndGivesEverythingBack) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([](int, Communicator& c) { EXPECT_TRUE(c.Barrier().ok()); });
  EXPECT_GT(gang.cuda(0).streams(), 0);
  gang.End();
  EXPECT_EQ(gang.nccl().aborts(), 0);
  EXPECT_EQ(gang.nccl().destroys(), 4);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(gang.cuda(r).streams(), 0);
    EXPECT_EQ(gang.cuda(r).events(), 0);
  }
}

TEST(NcclEnd, WithGroupsThatLiveOnIsOrderlyToo) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  std::vector<std::unique_ptr<Communicator>> groups(2);
  gang.Run([&](int r, Communicator& communicator) {
    auto group = communicator.Split("pair", {0, 1}, Deadline::After(kSoon));
    ASSERT_TRUE(group.ok());
    EXPECT_TRUE((*group)->Barrier().ok());
    groups[static_cast<std::size_t>(r)] = *std::move(group);
  });
  gang.MustForm(2);
  EXPECT_EQ(gang.nccl().aborts(), 0);
  EXPECT_EQ(gang.nccl().destroys(), 8);
  EXPECT_EQ(groups[0]->Barrier().code(), StatusCode::kCancelled);
  gang.Run([](int, Communicator& c) { EXPECT_TRUE(c.Barrier().ok()); });
}

}  // namespace
}  // namespace muster::testing
