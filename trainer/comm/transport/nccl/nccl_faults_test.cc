// Lost peers, hangs, aborts and what comes after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "trainer/comm/group/testing/collectives_testing.h"
#include "trainer/comm/transport/nccl/testing/nccl_gang_testing.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Duration kSoon = std::chrono::seconds(10);
constexpr Duration kShort = std::chrono::milliseconds(60);

// An operation whose Barrier reports how the gang ended.
Status ReduceAndMeet(NcclTestGang& gang, int rank) {
  Communicator& communicator = gang.communicator(rank);
  std::vector<float>& data = gang.Buffer(rank, 8);
  auto work =
      communicator.AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum);
  const Status met = communicator.Barrier();
  const Status waited = work->Wait();
  return met.ok() ? waited : met;
}

void ExpectWorking(NcclTestGang& gang) {
  gang.Run([&](int r, Communicator& communicator) {
    Synchronous synchronous(communicator, gang.cuda(r));
    EXPECT_EQ(CheckAllReduce(synchronous, ElementType::kFloat32, 33, ReduceOp::kSum), "");
    EXPECT_EQ(CheckAllGather(synchronous, ElementType::kBFloat16, 33), "");
  });
}

class NcclErrorsAtRank : public ::testing::TestWithParam<int> {};

TEST_P(NcclErrorsAtRank, EndItsOperationsAndAfterwardsTheGangFormsAgain) {
  const int victim = GetParam();
  NcclTestGang gang(3);
  gang.nccl().NotifyPeersOfAborts();
  gang.MustForm(1);
  gang.nccl().FailRank(victim, NcclResult::kRemoteError);
  gang.Run([&](int r, Communicator& communicator) {
    const Status status = ReduceAndMeet(gang, r);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << "rank " << r;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("NCCL"), HasSubstr("enqueued")));
    // Refused from here on, with the same words.
    float value = 0;
    EXPECT_EQ(communicator.AllGather(&value, &value, 1, ElementType::kFloat32)->Wait(), status);
    EXPECT_EQ(communicator.Barrier(), status);
  });
  gang.MustForm(2);
  ExpectWorking(gang);
  EXPECT_EQ(gang.nccl().open_communicators(), 6);
}
INSTANTIATE_TEST_SUITE_P(Ranks, NcclErrorsAtRank, ::testing::Values(0, 1, 2));

TEST(NcclErrors, OfAnIdleCommunicatorAreSeenToo) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.nccl().FailRank(1, NcclResult::kSystemError);
  const Deadline deadline = Deadline::After(kSoon);
  float value = 0;
  Status status;
  // Nothing is issued at rank 1: the thread that watches alone can find out.
  while (status.ok() && !deadline.Expired()) {
    status = gang.communicator(1).Split("alone", {1}, deadline).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("unhandled system error"));
  EXPECT_EQ(gang.communicator(1).AllGather(&value, &value, 1, ElementType::kFloat32)->Wait(),
            status);
}

TEST(NcclErrors, OfTheGpuAreInternal) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.cuda(0).Break();
  const Status status = gang.communicator(0).Barrier();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("illegal memory access"));
}

TEST(NcclTimeouts, NameTheOperationAndHowFarTheOthersAre) {
  NcclTestGang gang(2, {.operation_timeout = kShort});
  gang.MustForm(1);
  ExpectWorking(gang);
  gang.nccl().HangRank(1);
  gang.Run([&](int r, Communicator& communicator) {
    std::vector<float>&full = gang.Buffer(r, 8), &shard = gang.Buffer(r, 4);
    auto first =
        communicator.ReduceScatter({.full = full.data(), .shard = shard.data(), .count = 4});
    const Status status = communicator.Barrier();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << "rank " << r;
    EXPECT_THAT(
        status.message(),
        AllOf(HasSubstr("reduce_scatter 3 (16 bytes) has not ended 0.06 s"),
              HasSubstr("reductions of world in generation 1, rank " + std::to_string(r) + " of 2"),
              HasSubstr("enqueued 4, started 3, completed 2")));
    EXPECT_EQ(first->Wait(), status);
  });
}

TEST(NcclTimeouts, CountFromTheStartNotFromTheIssue) {
  NcclTestGang gang(2, {.operation_timeout = kShort});
  gang.MustForm(1);
  gang.Run([&](int r, Communicator& communicator) {
    std::promise<void> gate;
    gang.cuda(r).Enqueue([opened = gate.get_future().share()] { opened.wait(); });
    std::vector<float>& data = gang.Buffer(r, 4);
    auto work = communicator.AllReduce(data.data(), 4, ElementType::kFloat32, ReduceOp::kSum);
    // The trainer's stream computes for longer than an operation may take.
    const Deadline computing = Deadline::After(3 * kShort);
    std::promise<void> never;
    never.get_future().wait_until(computing.when());
    gate.set_value();
    EXPECT_TRUE(work->Wait().ok());
    EXPECT_TRUE(communicator.Barrier().ok());
  });
}

TEST(NcclTimeouts, ACallThatNcclNeverTakesEndsAtItsDeadline) {
  NcclTestGang gang(2, {.operation_timeout = kShort});
  gang.MustForm(1);
  gang.nccl().StickCalls(0);
  std::vector<float>& data = gang.Buffer(0, 4);
  const Status status =
      gang.communicator(0).AllReduce(data.data(), 4, ElementType::kFloat32, ReduceOp::kSum)->Wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("all_reduce 1 (16 bytes): NCCL did not take"));
}

TEST(NcclForm, ThatNeverConnectsEndsAtItsDeadlineAndMayTryAgain) {
  NcclTestGang gang(2);
  gang.nccl().ConnectNever(true);
  for (const Status& status : gang.Form(1, kShort)) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(),
                AnyOf(HasSubstr("NCCL has not connected the 2 ranks"), HasSubstr("did not come")));
  }
  gang.nccl().ConnectNever(false);
  gang.MustForm(2);
  ExpectWorking(gang);
}

TEST(NcclForm, WithoutTheFirstRankEndsAtItsDeadline) {
  NcclTestGang gang(2);
  Listener listener = Listen();
  Rendezvous place = MeetAt(listener, 1, 2);
  listener.fd.reset();
  EXPECT_FALSE(gang.communicator(1).Form(std::move(place), Deadline::After(kShort)).ok());
}

TEST(NcclForm, CanBeAbortedWhileItConnects) {
  NcclTestGang gang(2);
  gang.nccl().ConnectNever(true);
  std::thread aborter([&] {
    const Deadline deadline = Deadline::After(kSoon);
    while (gang.nccl().open_communicators() < 2 && !deadline.Expired()) std::this_thread::yield();
    for (int r = 0; r < 2; ++r) gang.communicator(r).Abort(Cancelled("the job was cancelled"));
  });
  for (const Status& status : gang.Form(1, kSoon)) {
    EXPECT_EQ(status, Cancelled("the job was cancelled"));
  }
  aborter.join();
}

TEST(NcclForm, RefusesMixedVersionsOfNccl) {
  NcclTestGang gang(2, {.versions = {22809, 22705}});
  const auto answers = gang.Form(1, std::chrono::milliseconds(300));
  EXPECT_EQ(answers[1], FailedPrecondition("rank 1 has NCCL 2.27.5, the first rank has 2.28.9: "
                                           "install the same release on all nodes"));
  EXPECT_FALSE(answers[0].ok());
}

TEST(NcclForm, AgainIsRefusedWhereNcclWouldCrash) {
  NcclTestGang gang(2, {.versions = {22805, 22805}});
  gang.MustForm(1);
  for (const Status& status : gang.Form(2)) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("NCCL 2.28.5 crashes"));
  }
  EXPECT_TRUE(NcclCanFormAgain(22802) && NcclCanFormAgain(22809));
}

TEST(NcclAbort, FromAnotherThreadEndsWhatIsUnderWay) {
  NcclTestGang gang(3);
  gang.MustForm(1);
  gang.nccl().HangRank(2);
  std::thread aborter([&] {
    const Deadline deadline = Deadline::After(kSoon);
    for (int r = 0; r < 3; ++r) {
      while (gang.communicator(r).counters().started < 1 && !deadline.Expired()) {
        std::this_thread::yield();
      }
    }
    for (int r = 0; r < 3; ++r) gang.communicator(r).Abort(Unavailable("node n2 is gone"));
  });
  gang.Run([&](int r, Communicator&) {
    EXPECT_EQ(ReduceAndMeet(gang, r), Unavailable("node n2 is gone")) << "rank " << r;
    // What the trainer's stream still has is not held up by the operation that was ended.
    gang.cuda(r).Synchronize();
  });
  aborter.join();
}

TEST(NcclAbort, KeepsTheFirstReason) {
  NcclTestGang gang(1);
  gang.MustForm(1);
  gang.communicator(0).Abort(Unavailable("first"));
  gang.communicator(0).Abort(Unavailable("second"));
  EXPECT_EQ(gang.communicator(0).Barrier(), Unavailable("first"));
}

TEST(NcclAbort, BeforeTheFirstFormMeansNoOperation) {
  NcclTestGang gang(2);
  gang.communicator(0).Abort(Cancelled("early"));
  gang.MustForm(1);
  ExpectWorking(gang);
}

TEST(NcclAbort, OfTheGangEndsItsGroupsAndAGroupsErrorTheGang) {
  NcclTestGang gang(2);
  gang.MustForm(1);
  gang.Run([&](int, Communicator& communicator) {
    auto group = communicator.Split("all", {0, 1}, Deadline::After(kSoon));
    ASSERT_TRUE(group.ok());
    EXPECT_TRUE((*group)->Barrier().ok());
    communicator.Abort(Cancelled("enough"));
    EXPECT_EQ((*group)->Barrier(), Cancelled("enough"));
    EXPECT_EQ((*group)->Form({}, Deadline::After(kSoon)).code(), StatusCode::kFailedPrecondition);
  });
  gang.MustForm(2);
  gang.Run([&](int, Communicator& communicator) {
    auto group = communicator.Split("all", {0, 1}, Deadline::After(kSoon));
    ASSERT_TRUE(group.ok());
    (*group)->Abort(Unavailable("the group is broken"));
    EXPECT_EQ(communicator.Barrier(), Unavailable("the group is broken"));
  });
}

TEST(NcclAbort, ThatBlocksHoldsUpNobodyAndForbidsToFormAgain) {
  NcclTestGang gang(2, {.end_timeout = kShort});
  gang.MustForm(1);
  gang.nccl().BlockAborts(true);
  gang.nccl().HangRank(1);
  gang.Run([&](int r, Communicator& communicator) {
    std::vector<float>& data = gang.Buffer(r, 4);
    auto work = communicator.AllReduce(data.data(), 4, ElementType::kFloat32, ReduceOp::kSum);
    communicator.Abort(Cancelled("enough"));  // returns, or the test does not end
    EXPECT_EQ(work->Wait(), Cancelled("enough")) << "rank " << r;
  });
  for (const Status& status : gang.Form(2)) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("ncclCommAbort does not return"));
  }
  // Comes back after all, as a kernel may that was only slow: then the next generation forms.
  gang.nccl().BlockAborts(false);
  gang.MustForm(3);
  gang.End();
}

TEST(NcclAbort, ThatBlocksWhileTheProcessLeavesIsLeftBehind) {
  NcclTestGang gang(2, {.end_timeout = kShort});
  gang.MustForm(1);
  gang.nccl().BlockAborts(true);
  gang.Run([](int, Communicator& c) { c.Abort(Cancelled("enough")); });
  gang.End();
  EXPECT_EQ(gang.nccl().open_communicators(), 4);
  // The threads that were left behind use the substitutes: they end before these do.
  gang.nccl().BlockAborts(false);
  const Deadline deadline = Deadline::After(kSoon);
  for (int r = 0; r < 2; ++r) {
    while (gang.cuda(r).events() + gang.cuda(r).streams() > 0 && !deadline.Expired()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(gang.cuda(r).streams(), 0);
  }
}

TEST(NcclGenerations, FollowEachOtherWithWorkUnderWay) {
  NcclTestGang gang(3);
  for (Generation generation = 1; generation <= 4; ++generation) {
    gang.MustForm(generation);
    ExpectWorking(gang);
    gang.Run([&](int r, Communicator& communicator) {
      auto work = communicator.AllReduce(gang.Buffer(r, 64).data(), 64, ElementType::kFloat32,
                                         ReduceOp::kSum);
      communicator.Abort(Unavailable("a peer is lost"));
      EXPECT_EQ(communicator.Barrier(), Unavailable("a peer is lost"));
    });
    gang.Run([&](int r, Communicator&) { gang.cuda(r).Synchronize(); });
  }
}

}  // namespace
}  // namespace muster::testing
