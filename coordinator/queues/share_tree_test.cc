#include "coordinator/queues/share_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

QueueTree Teams() {
  QueueTree tree = DefaultTree();
  tree.queues.push_back({.name = "research", .leaf = false});
  tree.queues.push_back({.name = "nlp",
                         .parent = 1,
                         .ceiling = {16, kNoCeiling},
                         .per_user = {.ceiling = {8, kNoCeiling, 2}, .queued = 5}});
  return tree;
}

TEST(ShareTreeTest, WithoutUsersItIsTheTreeOfQueues) {
  ShareTree shares(Teams(), /*by_user=*/false);
  EXPECT_EQ(shares.Find("nlp", "ada"), 2);
  EXPECT_EQ(shares.Add("nlp", "ada"), 2);
  EXPECT_EQ(shares.FindOrAny("nlp", "eve"), 2);
  EXPECT_EQ(shares.Find("nlq", "ada"), -1);
  shares.AddAnyUser();
  EXPECT_EQ(shares.tree(), Teams());
}

TEST(ShareTreeTest, EachUserOfAQueueHasALeafWithItsLimits) {
  ShareTree shares(Teams(), /*by_user=*/true);
  EXPECT_EQ(shares.Find("nlp", "ada"), -1);
  EXPECT_EQ(shares.Add("nlp", "ada"), 3);
  EXPECT_EQ(shares.Add("default", "ada"), 4);
  EXPECT_EQ(shares.Add("nlp", ""), 5) << "a job of a time when jobs had no owner";
  EXPECT_EQ(shares.Add("nlp", "ada"), 3);
  EXPECT_EQ(shares.Find("default", "ada"), 4);
  EXPECT_EQ(shares.Add("nlq", "ada"), -1);
  const QueueSpec& leaf = shares.tree().queues[3];
  EXPECT_EQ(leaf.name, "nlp/ada");
  EXPECT_EQ(leaf.parent, 2);
  EXPECT_EQ(leaf.ceiling, (Amounts{8, kNoCeiling, 2}));
  EXPECT_EQ(leaf.guarantee, Amounts());
  EXPECT_EQ(leaf.weight, 1);
  for (const QueueSpec& queue : shares.tree().queues)
    EXPECT_EQ(queue.leaf, IsOfUser(queue.name)) << queue.name;
}

TEST(ShareTreeTest, WhoHasNoLeafFindsThatOfAnyUser) {
  ShareTree shares(Teams(), /*by_user=*/true);
  shares.Add("nlp", "ada");
  EXPECT_EQ(shares.FindOrAny("nlp", "bob"), -1);
  shares.AddAnyUser();
  EXPECT_EQ(shares.FindOrAny("nlp", "ada"), 3);
  EXPECT_EQ(shares.tree().queues.at(static_cast<std::size_t>(shares.FindOrAny("nlp", "bob"))).name,
            "nlp/*");
  EXPECT_GE(shares.FindOrAny("default", "ada"), 4);
  EXPECT_EQ(shares.FindOrAny("research", "ada"), -1) << "it takes no jobs";
}

TEST(ShareTreeTest, UsageOfAUserWithoutALeafIsTheQueues) {
  ShareTree shares(Teams(), /*by_user=*/true);
  shares.Add("nlp", "ada");
  EXPECT_EQ(shares.PlaceOfUsage("nlp/ada"), 3);
  EXPECT_EQ(shares.PlaceOfUsage("nlp/bob"), 2);
  EXPECT_EQ(shares.PlaceOfUsage("nlp"), 2);
  EXPECT_EQ(shares.PlaceOfUsage("gone/ada"), -1);
}

TEST(ShareTreeTest, ANameHasItsQueueAndItsUser) {
  EXPECT_EQ(ShareName("nlp", "ada"), "nlp/ada");
  EXPECT_EQ(QueueOfShare("nlp/ada"), "nlp");
  EXPECT_EQ(UserOfShare("nlp/ada"), "ada");
  EXPECT_EQ(QueueOfShare("nlp"), "nlp");
  EXPECT_EQ(UserOfShare("nlp"), "");
  EXPECT_TRUE(IsOfUser("nlp/"));
  EXPECT_FALSE(IsOfUser("nlp"));
}

}  // namespace
}  // namespace muster
