#include "trainer/comm/long_work.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/group/testing/in_process_communicator.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 3;
constexpr Duration kLimit = milliseconds(400);  // of an operation

// Rank 1 has work for several times the limit; the others have none.
std::array<Status, kRanks> MeetAfterWork(Duration round, Duration limit) {
  InProcessGroup group(kRanks);
  std::array<Status, kRanks> statuses;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = group.Join(rank, kLimit);
      Rendezvous rendezvous;
      rendezvous.rank = rank;
      rendezvous.world_size = kRanks;
      Status& status = statuses[static_cast<std::size_t>(rank)];
      status = communicator->Form(std::move(rendezvous), Deadline::After(std::chrono::seconds(20)));
      if (!status.ok()) return;
      {
        LongWork work(*communicator, round, limit);
        const TimePoint end = SystemClock().Now() + (rank == 1 ? 4 * kLimit : Duration::zero());
        while (SystemClock().Now() < end) work.Move();
        status = work.Await();
      }
      EXPECT_EQ(communicator->limit().get(), kLimit);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(LongWorkTest, WhoIsReadyWaitsLongerThanAnOperationMayTake) {
  for (const Status& status : MeetAfterWork(milliseconds(50), Duration::zero()))
    EXPECT_TRUE(status.ok()) << status.ToString();
}

// A job may set a limit that is shorter than the rounds.
TEST(LongWorkTest, AShortLimitOfOperationsDoesNotEndLongWork) {
  for (const Status& status : MeetAfterWork(LongWork::kRound, LongWork::kLimit))
    EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(LongWorkTest, WithoutMeetingsItWouldNot) {
  EXPECT_FALSE(MeetAfterWork(std::chrono::hours(1), Duration::zero())[0].ok());
}

TEST(LongWorkTest, ARankAloneMeetsNobody) {
  InProcessGroup group(1);
  const auto communicator = group.Join(0);
  LongWork work(*communicator, Duration::zero());
  work.Move();
  EXPECT_TRUE(work.Await().ok());
}

}  // namespace
}  // namespace muster
