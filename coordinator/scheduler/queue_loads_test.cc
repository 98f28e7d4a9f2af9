#include "coordinator/scheduler/queue_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace muster {
namespace {

using std::chrono::minutes;

TEST(CeilingExcessTest, WithoutAGangItIsWhatItWouldBeIfTheGangWasReleased) {
  std::mt19937 engine(1);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  int within = 0, less = 0;
  for (int round = 0; round < 2000; ++round) {
    QueueTree tree = DefaultTree();
    tree.queues.push_back({.name = "p", .leaf = false});
    tree.queues.push_back({.name = "a", .parent = 1});
    tree.queues.push_back({.name = "b", .parent = 1});
    for (QueueSpec& queue : tree.queues)
      if (pick(0, 2) > 0) queue.ceiling = {pick(0, 8), pick(0, 8), pick(0, 4)};
    const TimePoint now = TimePoint() + minutes(100);
    std::vector<RunningLoad> gangs;
    for (int i = pick(1, 8); i > 0; --i) {
      const TimePoint ends = pick(0, 4) == 0 ? kNever : now + minutes(pick(1, 20));
      gangs.push_back({pick(0, 1) * pick(2, 3), {pick(0, 2), pick(0, 3), pick(0, 1)}, ends});
    }
    QueueLoads loads(tree, {}, now);
    loads.HoldRunning(gangs);
    const Amounts more{pick(0, 3), pick(1, 3), pick(0, 1)};
    const TimePoint from = now + minutes(pick(0, 12));
    const TimePoint to = pick(0, 3) == 0 ? kNever : from + minutes(pick(1, 12));
    const CeilingExcess excess(loads, 2, more, from, to);
    EXPECT_EQ(excess.value() == 0, loads.OverCeiling(2, more, from, to) < 0);
    within += excess.value() == 0 ? 1 : 0;
    for (const RunningLoad& gang : gangs) {
      QueueLoads changed = loads;
      changed.Release(gang.queue, gang.amounts, now, gang.ends);
      const double wanted = CeilingExcess(changed, 2, more, from, to).value();
      EXPECT_EQ(excess.Without(gang.queue, gang.amounts, gang.ends), wanted) << "round " << round;
      less += wanted < excess.value() ? 1 : 0;
    }
  }
  EXPECT_GT(within, 100);
  EXPECT_GT(less, 100);
}

TEST(StepFunctionTest, StartsAreThoseOfALookAtEveryTime) {
  std::mt19937 engine(2);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  const TimePoint begin = TimePoint() + minutes(10);
  const auto most = [](int a, int b) { return std::max(a, b); };
  const auto ok = [](int value) { return value < 2; };
  for (int round = 0; round < 500; ++round) {
    StepFunction<int> function(begin, pick(0, 3));
    for (int at = 1; at < 10; ++at)
      if (pick(0, 1) == 0) function.Append(begin + minutes(at), pick(0, 3));
    const Duration length = pick(0, 3) == 0 ? kForever : Duration(minutes(pick(1, 6)));
    std::vector<TimeSpan> spans;
    function.EachStart(length, most, ok, [&](const TimeSpan& span) { spans.push_back(span); });
    for (int at = 0; at < 12; ++at) {
      const TimePoint time = begin + minutes(at);
      const bool wanted = ok(function.Over(time, EndOf(time, length), most));
      const bool got = std::ranges::any_of(
          spans, [&](const TimeSpan& span) { return span.from <= time && time < span.to; });
      EXPECT_EQ(got, wanted) << "round " << round << ", minute " << at;
    }
  }
}

}  // namespace
}  // namespace muster
