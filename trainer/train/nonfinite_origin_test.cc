#include "trainer/train/nonfinite.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "trainer/comm/group/testing/in_process_communicator.h"

namespace muster {
namespace {

std::vector<NonFiniteOrigin> Compare(const std::vector<std::string>& findings) {
  const int ranks = static_cast<int>(findings.size());
  InProcessGroup group(ranks);
  std::vector<NonFiniteOrigin> origins(findings.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> world = group.Join(rank);
      ASSERT_TRUE(world
                      ->Form({.generation = 1, .rank = rank, .world_size = ranks},
                             Deadline::After(std::chrono::seconds(30)))
                      .ok());
      origins[static_cast<std::size_t>(rank)] =
          *CompareFindings(findings[static_cast<std::size_t>(rank)], *world);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return origins;
}

TEST(NonFiniteOrigin, AllRanksNameTheOneThatFoundSomething) {
  for (const NonFiniteOrigin& origin : Compare({"", "", "loss of micro-batch 1", ""})) {
    EXPECT_EQ(DescribeOrigin(origin), "rank 2: loss of micro-batch 1");
  }
}

TEST(NonFiniteOrigin, OfSeveralTheLowestIsNamedAndTheOthersAreCounted) {
  for (const NonFiniteOrigin& origin : Compare({"", "a long finding", "b", "c"})) {
    EXPECT_EQ(origin.rank, 1);
    EXPECT_EQ(DescribeOrigin(origin), "rank 1: a long finding; 2 other ranks have one too");
  }
}

TEST(NonFiniteOrigin, WhereNobodyFoundAnythingNobodyIsNamed) {
  for (const int ranks : {1, 3}) {
    for (const NonFiniteOrigin& origin :
         Compare(std::vector<std::string>(static_cast<std::size_t>(ranks)))) {
      EXPECT_EQ(origin.rank, -1);
    }
  }
}

TEST(NonFiniteOrigin, ARankWithoutPeersNamesItself) {
  EXPECT_EQ(DescribeOrigin(Compare({"weight of w"}).front()), "rank 0: weight of w");
}

}  // namespace
}  // namespace muster
