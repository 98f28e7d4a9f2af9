#include "coordinator/scheduler/queue_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace muster {
namespace {

// 0: a, 1: b, 2: c at the top; a has 3 and 4, b has 5.
QueueTree Tree() {
  QueueTree tree;
  for (const int parent : {-1, -1, -1, 0, 0, 1})
    tree.queues.push_back({.name = std::to_string(tree.queues.size()), .parent = parent});
  for (const std::size_t inner : {0, 1}) tree.queues[inner].leaf = false;
  return tree;
}

// Which of them goes first, by comparing the siblings above any two of them.
int FirstOf(const QueueTree& tree, const QueueLoads& loads, const std::vector<int>& waiting) {
  const auto path = [&](int queue) {
    std::vector<std::pair<double, int>> steps;
    for (; queue >= 0; queue = tree.queues[static_cast<std::size_t>(queue)].parent)
      steps.emplace_back(loads.Share(queue), queue);
    std::ranges::reverse(steps);
    return steps;
  };
  return *std::ranges::min_element(waiting, {}, path);
}

TEST(QueueTurnsTest, TheSiblingWithTheSmallerShareGoesFirstAtEachLevel) {
  const QueueTree tree = Tree();
  // a has had 3 in all, b 2, c 4.
  const QueueLoads loads(tree, {0, 0, 4, 0, 3, 2}, TimePoint());
  QueueTurns turns(tree, loads);
  for (const int queue : {2, 3, 4, 5}) turns.Add(queue);
  std::vector<int> order;
  while (!turns.empty()) {
    order.push_back(turns.Next());
    turns.Remove(order.back());
  }
  EXPECT_EQ(order, (std::vector<int>{5, 3, 4, 2}));
}

TEST(QueueTurnsTest, AgreesWithComparingAllWhileSharesChange) {
  const QueueTree tree = Tree();
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    QueueLoads loads(tree, {}, TimePoint());
    QueueTurns turns(tree, loads);
    std::vector<int> waiting = {2, 3, 4, 5};
    for (const int queue : waiting) turns.Add(queue);
    while (!waiting.empty()) {
      const int next = turns.Next();
      ASSERT_EQ(next, FirstOf(tree, loads, waiting));
      loads.Charge(next, {.gpus = static_cast<int>(random() % 3)}, std::chrono::hours(1));
      turns.Update(next);
      if (random() % 4 != 0) continue;
      turns.Remove(next);
      std::erase(waiting, next);
    }
    EXPECT_TRUE(turns.empty());
  }
}

}  // namespace
}  // namespace muster
