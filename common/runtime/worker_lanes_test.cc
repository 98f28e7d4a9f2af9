#include "common/runtime/worker_lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <set>

#include "tests/support/eventually.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kLimit{5};

// Work that goes on until it is let go, and is let go at the end of the test.
class Hanging {
 public:
  ~Hanging() { state_->gate.set_value(); }
  std::function<void()> operator()() const {
    return [state = state_] {
      state->started.set_value();
      state->open.wait();
    };
  }
  void AwaitStart() const { state_->started.get_future().wait(); }

 private:
  struct State {
    std::promise<void> started;
    std::promise<void> gate;
    const std::shared_future<void> open = gate.get_future().share();
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(WorkerLanes, WorkOfOneKeyIsDoneInOrder) {
  std::vector<int> order;
  {
    WorkerLanes lanes("order", 4, 100);
    for (int i = 0; i < 50; ++i)
      ASSERT_TRUE(lanes.TrySubmit("a", [&order, i] { order.push_back(i); }));
  }
  ASSERT_EQ(order.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkerLanes, KeysWhoseWorkHangsHoldUpNoOther) {
  WorkerLanes lanes("hang", 8, 8);
  Hanging hanging[7];
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(lanes.TrySubmit(std::to_string(i), hanging[i]()));
  for (Hanging& one : hanging) one.AwaitStart();
  for (int i = 0; i < 20; ++i) {
    std::promise<void> done;
    ASSERT_TRUE(lanes.TrySubmit("other", [&done] { done.set_value(); }));
    ASSERT_EQ(done.get_future().wait_for(kLimit), std::future_status::ready) << i;
  }
}

TEST(WorkerLanes, AKeyWhoseLaneIsFullIsRefusedAndNoOther) {
  WorkerLanes lanes("full", 4, 2);
  Hanging hanging;
  ASSERT_TRUE(lanes.TrySubmit("a", hanging()));
  hanging.AwaitStart();
  EXPECT_TRUE(lanes.TrySubmit("a", [] {}));
  EXPECT_FALSE(lanes.TrySubmit("a", [] {}));
  EXPECT_TRUE(lanes.TrySubmit("b", [] {}));
  EXPECT_EQ(lanes.refused(), 1u);
}

TEST(WorkerLanes, MoreKeysThanItMayHaveThreadsAreRefusedUntilOneIsThrough) {
  WorkerLanes lanes("few", 2, 4);
  Hanging one;
  ASSERT_TRUE(lanes.TrySubmit("a", one()));
  one.AwaitStart();
  std::promise<void> gate;
  ASSERT_TRUE(lanes.TrySubmit("b", [open = gate.get_future().share()] { open.wait(); }));
  EXPECT_FALSE(lanes.TrySubmit("c", [] {}));
  std::promise<void> last;
  ASSERT_TRUE(lanes.TrySubmit("b", [&last] { last.set_value(); }));
  gate.set_value();
  last.get_future().wait();
  std::promise<void> done;
  const auto submitted = [&] { return lanes.TrySubmit("c", [&done] { done.set_value(); }); };
  EXPECT_TRUE(Eventually(submitted)) << "b's lane is given up after its last work";
  EXPECT_EQ(done.get_future().wait_for(kLimit), std::future_status::ready);
}

TEST(WorkerLanes, ThreadsAreUsedAgain) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  {
    WorkerLanes lanes("again", 1, 4);
    for (int i = 0; i < 50; ++i) {
      std::promise<void> done;
      const auto work = [&] {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        done.set_value();
      };
      ASSERT_TRUE(Eventually([&] { return lanes.TrySubmit(std::to_string(i), work); }));
      done.get_future().wait();
    }
  }
  EXPECT_EQ(threads.size(), 1u);
}

TEST(WorkerLanes, TheDestructorRunsWhatIsQueued) {
  std::atomic<int> done{0};
  {
    WorkerLanes lanes("drain", 10, 10);
    for (int i = 0; i < 30; ++i)
      ASSERT_TRUE(lanes.TrySubmit(std::to_string(i % 10), [&] { ++done; }));
  }
  EXPECT_EQ(done, 30);
}

}  // namespace
}  // namespace muster
