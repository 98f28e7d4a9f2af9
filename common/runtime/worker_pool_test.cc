#include "common/runtime/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace muster {
namespace {

TEST(WorkerPool, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    WorkerPool pool("order", 1, 100);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(pool.TrySubmit([&order, i] { order.push_back(i); }));
  }
  ASSERT_EQ(order.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkerPool, TheDestructorRunsWhatIsQueued) {
  std::atomic<int> done{0};
  {
    WorkerPool pool("drain", 3, 100);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(pool.TrySubmit([&] { ++done; }));
  }
  EXPECT_EQ(done, 30);
}

TEST(WorkerPool, AFullQueueRefusesAndCounts) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> started;
  WorkerPool pool("full", 1, 2);
  ASSERT_TRUE(pool.TrySubmit([&, open] {
    started.set_value();
    open.wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.TrySubmit([] {}));
  EXPECT_TRUE(pool.TrySubmit([] {}));
  EXPECT_FALSE(pool.TrySubmit([] {}));
  EXPECT_EQ(pool.refused(), 1u);
  gate.set_value();
}

TEST(WorkerPool, ThreadsWorkAtTheSameTime) {
  // Each waits for the other; one thread alone would never finish.
  std::promise<void> a, b;
  WorkerPool pool("both", 2, 10);
  std::promise<void> done_a, done_b;
  ASSERT_TRUE(pool.TrySubmit([&] {
    a.set_value();
    b.get_future().wait();
    done_a.set_value();
  }));
  ASSERT_TRUE(pool.TrySubmit([&] {
    b.set_value();
    a.get_future().wait();
    done_b.set_value();
  }));
  EXPECT_EQ(done_a.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_EQ(done_b.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
}

}  // namespace
}  // namespace muster
