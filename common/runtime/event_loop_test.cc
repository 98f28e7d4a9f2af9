#include "common/runtime/event_loop.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

namespace muster {
namespace {

using std::chrono::milliseconds;

TEST(EventLoop, RunsPostedFunctionsInOrderOnItsThread) {
  EventLoop loop;
  std::vector<int> order;
  const std::thread::id runner = std::this_thread::get_id();
  loop.Post([&] { order.push_back(1); });
  std::thread other([&] {
    loop.Post([&] {
      EXPECT_EQ(std::this_thread::get_id(), runner);
      order.push_back(2);
    });
    loop.Stop();
  });
  other.join();
  loop.Run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventLoop, APostFromThePostedRunsLater) {
  EventLoop loop;
  std::vector<int> order;
  loop.Post([&] {
    loop.Post([&] {
      order.push_back(2);
      loop.Stop();
    });
    order.push_back(1);
  });
  loop.Run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventLoop, HandlesEveryTerminationSignal) {
  EventLoop loop;
  std::vector<int> signals;
  loop.OnTerminationSignal([&](int signal) {
    signals.push_back(signal);
    if (signals.size() == 1)
      std::raise(SIGTERM);
    else
      loop.Stop();
  });
  loop.Post([] { std::raise(SIGINT); });
  loop.Run();
  EXPECT_EQ(signals, (std::vector<int>{SIGINT, SIGTERM}));
}

TEST(EventLoop, ASigtermThatTheParentIgnoredStaysIgnored) {
  const auto before = ::signal(SIGTERM, SIG_IGN);
  EventLoop loop;
  std::vector<int> signals;
  loop.OnTerminationSignal([&](int signal) {
    signals.push_back(signal);
    loop.Stop();
  });
  loop.Post([] {
    std::raise(SIGTERM);
    std::raise(SIGINT);
  });
  loop.Run();
  EXPECT_EQ(signals, (std::vector<int>{SIGINT}));
  ::signal(SIGTERM, before);
}

TEST(Timer, FiresOnceNotBeforeItsTime) {
  EventLoop loop;
  Timer timer(loop);
  const TimePoint start = SystemClock().Now();
  int fired = 0;
  timer.Start(milliseconds(5), [&] {
    ++fired;
    loop.Stop();
  });
  loop.Run();
  EXPECT_EQ(fired, 1);
  EXPECT_GE(SystemClock().Now() - start, milliseconds(5));
}

TEST(Timer, StartingAgainReplacesThePendingCall) {
  EventLoop loop;
  Timer timer(loop);
  std::vector<int> fired;
  timer.Start(milliseconds(0), [&] { fired.push_back(1); });
  timer.Start(milliseconds(1), [&] {
    fired.push_back(2);
    loop.Stop();
  });
  loop.Run();
  EXPECT_EQ(fired, (std::vector<int>{2}));
}

TEST(Timer, ACancelledOrDestroyedOneNeverFiresEvenWhenItWasDue) {
  EventLoop loop;
  Timer cancelled(loop);
  auto destroyed = std::make_unique<Timer>(loop);
  Timer last(loop);
  int fired = 0;
  cancelled.Start(milliseconds(0), [&] { ++fired; });
  destroyed->Start(milliseconds(0), [&] { ++fired; });
  // Both are due by now; their completions have not run yet.
  cancelled.Cancel();
  destroyed.reset();
  last.Start(milliseconds(5), [&] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(fired, 0);
}

TEST(Timer, MayBeStartedFromItsOwnFunction) {
  EventLoop loop;
  Timer timer(loop);
  int fired = 0;
  std::function<void()> again = [&] {
    if (++fired == 3) return loop.Stop();
    timer.Start(milliseconds(0), again);
  };
  timer.StartAt(SystemClock().Now(), again);
  loop.Run();
  EXPECT_EQ(fired, 3);
}

}  // namespace
}  // namespace muster
