#include "coordinator/queues/queue_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

QueueTree TwoLevels() {
  QueueTree tree = DefaultTree();
  tree.queues.push_back({.name = "research", .leaf = false, .guarantee = {8, 0}});
  tree.queues.push_back({.name = "vision", .parent = 1, .guarantee = {8, 0}});
  tree.queues.push_back({.name = "language", .parent = 1});
  tree.classes.push_back({"urgent", 100});
  return tree;
}

TEST(QueueTreeTest, FindsQueuesAndClassesByName) {
  const QueueTree tree = TwoLevels();
  EXPECT_EQ(tree.Find("vision"), 2);
  EXPECT_EQ(tree.Find("Vision"), -1);
  EXPECT_EQ(tree.FindClass("urgent")->value, 100);
  EXPECT_EQ(tree.FindClass(kNormalClass)->value, 0);
  EXPECT_EQ(tree.FindClass("x"), nullptr);
}

TEST(QueueTreeTest, AnUnknownNameComesWithTheOneThatWasMeant) {
  const QueueTree tree = TwoLevels();
  EXPECT_EQ(UnknownQueue(tree, "visoin"), "unknown queue 'visoin'; did you mean 'vision'?");
  EXPECT_EQ(UnknownQueue(tree, "x"),
            "unknown queue 'x'; these take jobs: default, vision, language");
  EXPECT_EQ(UnknownClass(tree, "urgnt"), "unknown class 'urgnt'; did you mean 'urgent'?");
  QueueTree wide = DefaultTree();
  for (int i = 0; i < 20; ++i) wide.queues.push_back({.name = "team-" + std::to_string(i)});
  EXPECT_EQ(UnknownQueue(wide, std::string(200, 'x')),
            "unknown queue '" + std::string(80, 'x') +
                "...'; these take jobs: default, team-0, team-1, team-2, team-3, team-4, team-5, "
                "team-6, team-7, team-8 and others");
}

TEST(QueueTreeTest, AmountsInWords) {
  EXPECT_EQ(AmountsText({1, 0}), "1 GPU");
  EXPECT_EQ(AmountsText({8, 4}), "8 GPUs and 4 slots");
  EXPECT_EQ(AmountsText({0, 1}), "1 slot");
  EXPECT_EQ(AmountsText({}), "0");
}

TEST(QueueTreeTest, ChangesAreALineForEachQueueAndClass) {
  const QueueTree before = TwoLevels();
  EXPECT_THAT(QueueChanges(before, before), IsEmpty());
  QueueTree after = before;
  after.queues[1].guarantee.gpus = 48;
  after.queues[1].time_limit_seconds = 2 * 86400 + 3600;
  after.queues[2].guarantee = {16, 2};
  after.queues[2].ceiling.gpus = 64;
  after.queues[2].weight = 2.5;
  after.queues[3] = {.name = "speech", .parent = 1};
  after.queues.push_back({.name = "batch", .default_priority = 10});
  after.classes[1].value = 50;
  after.classes.push_back({"idle", -5});
  after.half_life_seconds = 86400;
  after.preempt_every_seconds = 60;
  EXPECT_THAT(QueueChanges(before, after),
              ElementsAre("research: guarantee 8 -> 48 GPUs, time limit none -> 2d1h",
                          "vision: guarantee 8 -> 16 GPUs, guarantee 0 -> 2 slots, ceiling none -> "
                          "64 GPUs, weight 1 -> 2.5",
                          "speech: new, in research", "batch: new, priority 50 -> 10",
                          "language: removed", "class urgent: 100 -> 50", "class idle: new, -5",
                          "half_life 7d -> 1d", "preemption every 1h -> 1m"));
  EXPECT_THAT(QueueChanges(after, before),
              ::testing::Contains(::testing::HasSubstr("class idle: removed")));
}

TEST(QueueTreeTest, AChangeCountsInTheUnitOfItsNumber) {
  QueueTree one = TwoLevels();
  one.queues[2].guarantee = {};
  one.queues[2].ceiling = {2, 1};
  QueueTree none = one;
  none.queues[2].guarantee.slots = 1;
  none.queues[2].ceiling = {kNoCeiling, kNoCeiling};
  EXPECT_THAT(QueueChanges(one, none),
              ElementsAre("vision: guarantee 0 -> 1 slot, ceiling 2 GPUs -> "
                          "none, ceiling 1 slot -> none"));
  EXPECT_THAT(QueueChanges(none, one),
              ElementsAre("vision: guarantee 1 -> 0 slots, ceiling none -> "
                          "2 GPUs, ceiling none -> 1 slot"));
}

TEST(QueueTreeTest, LimitsPerUserAreChanges) {
  QueueTree limited = TwoLevels();
  limited.queues[2].per_user = {.ceiling = {8, kNoCeiling, 1}, .queued = 20};
  EXPECT_THAT(QueueChanges(TwoLevels(), limited),
              ElementsAre("vision: per user none -> 8 GPUs, per user none -> 1 running job, per "
                          "user none -> 20 queued jobs"));
  EXPECT_THAT(QueueChanges(limited, TwoLevels()),
              ElementsAre("vision: per user 8 GPUs -> none, per user 1 running job -> none, per "
                          "user 20 queued jobs -> none"));
}

TEST(QueueTreeTest, AQueueThatMovesOrDividesIsAChange) {
  QueueTree before = TwoLevels();
  QueueTree after = before;
  after.queues[3].parent = -1;
  after.queues[0].leaf = false;
  EXPECT_THAT(QueueChanges(before, after), ElementsAre("default: has queues now, and takes no jobs",
                                                       "language: moved: research -> the top"));
}

TEST(QueueTreeTest, WarnsOfGuaranteesThatTheClusterCannotKeep) {
  const QueueTree tree = TwoLevels();
  EXPECT_THAT(QueueWarnings(tree, {8, 0}), IsEmpty());
  EXPECT_THAT(QueueWarnings(tree, {4, 100}),
              ElementsAre("the guarantees come to 8 GPUs, and the nodes have 4 today: not all of "
                          "them can be kept at the same time"));
}

}  // namespace
}  // namespace muster
