#include "coordinator/control/deadline_queue.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TimePoint At(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

TEST(DeadlineQueue, GivesWhatIsDueInOrder) {
  DeadlineQueue<int> queue;
  EXPECT_EQ(queue.Next(), std::nullopt);
  queue.Set(1, At(30));
  queue.Set(2, At(10));
  queue.Set(3, At(10));
  EXPECT_EQ(queue.Next(), At(10));
  EXPECT_EQ(queue.PopDue(At(9)), std::nullopt);
  EXPECT_EQ(queue.PopDue(At(20)), 2);
  EXPECT_EQ(queue.PopDue(At(20)), 3);
  EXPECT_EQ(queue.PopDue(At(20)), std::nullopt);
  EXPECT_EQ(queue.Next(), At(30));
  EXPECT_EQ(queue.Find(2), std::nullopt);
}

TEST(DeadlineQueue, HoldsOneDeadlineOfAnId) {
  DeadlineQueue<int> queue;
  queue.Set(1, At(10));
  queue.Set(1, At(20));
  EXPECT_EQ(queue.Find(1), At(20));
  EXPECT_EQ(queue.PopDue(At(15)), std::nullopt);
  queue.Set(1, std::nullopt);
  EXPECT_EQ(queue.Next(), std::nullopt);
  EXPECT_EQ(queue.PopDue(At(100)), std::nullopt);
}

}  // namespace
}  // namespace muster
