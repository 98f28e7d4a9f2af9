#include "coordinator/scheduler/failure_domains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Domains = std::vector<std::string>;

int Alike(const std::vector<int>& ring, const Domains& domains) {
  int alike = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    if (domains.at(ring[i]) == domains.at(ring[(i + 1) % ring.size()])) ++alike;
  }
  return alike;
}

TEST(BuddyRing, GoesByNodeRankWhereThatDoes) {
  EXPECT_THAT(BuddyRing({}), IsEmpty());
  EXPECT_THAT(BuddyRing({"a"}), ElementsAre(0));
  EXPECT_THAT(BuddyRing({"a", "b"}), ElementsAre(0, 1));
  EXPECT_THAT(BuddyRing({"a", "b", "c"}), ElementsAre(0, 1, 2));
  EXPECT_THAT(BuddyRing({"a", "b", "a", "b"}), ElementsAre(0, 1, 2, 3));
}

TEST(BuddyRing, FollowsNodeRanksIfDomainsDoNotDiffer) {
  EXPECT_THAT(BuddyRing({"", "", ""}), ElementsAre(0, 1, 2));
  EXPECT_THAT(BuddyRing({"rack", "rack", "rack", "rack"}), ElementsAre(0, 1, 2, 3));
}

TEST(BuddyRing, TwoRacksOfTwoNodesTakeTurns) {
  EXPECT_THAT(BuddyRing({"a", "a", "b", "b"}), ElementsAre(0, 2, 1, 3));
}

TEST(BuddyRing, ARackWithMostNodesHasEveryOtherNodeBesideIt) {
  const Domains domains = {"a", "a", "a", "a", "b"};
  EXPECT_EQ(Alike(BuddyRing(domains), domains), 3);
}

// The fewest that any order of the nodes has, found by trying all of them.
int FewestAlike(const Domains& domains) {
  std::vector<int> ring(domains.size());
  for (std::size_t i = 0; i < ring.size(); ++i) ring[i] = static_cast<int>(i);
  int fewest = static_cast<int>(domains.size());
  do fewest = std::min(fewest, Alike(ring, domains));
  while (std::next_permutation(ring.begin() + 1, ring.end()));
  return fewest;
}

TEST(BuddyRing, NoOrderOfTheNodesHasFewerNeighboursOfOneDomain) {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    Domains domains(2 + random() % 6);
    const unsigned kinds = 1 + random() % 4;
    for (std::string& domain : domains)
      domain = std::string(1, static_cast<char>('a' + random() % kinds));
    EXPECT_EQ(Alike(BuddyRing(domains), domains), FewestAlike(domains))
        << ::testing::PrintToString(domains);
  }
}

TEST(BuddyRing, WhereNoDomainHasMoreThanHalfNoNeighboursAreAlike) {
  std::mt19937 random(11);
  int arranged = 0;
  for (int round = 0; round < 2000; ++round) {
    Domains domains(2 + random() % 200);
    const unsigned kinds = 2 + random() % 20;
    for (std::string& domain : domains) domain = std::to_string(random() % kinds);
    std::vector<int> ring = BuddyRing(domains);
    const int alike = Alike(ring, domains);
    std::sort(ring.begin(), ring.end());
    for (std::size_t i = 0; i < ring.size(); ++i) ASSERT_EQ(ring[i], static_cast<int>(i));
    std::size_t most = 0;
    for (unsigned k = 0; k < kinds; ++k) {
      most = std::max<std::size_t>(most,
                                   std::count(domains.begin(), domains.end(), std::to_string(k)));
    }
    if (2 * most > domains.size()) continue;
    EXPECT_EQ(alike, 0) << ::testing::PrintToString(domains);
    ++arranged;
  }
  EXPECT_GT(arranged, 1000);
}

TEST(DomainCount, CountsWhatOneMoreNodeWouldDoToTheRing) {
  DomainCount gang;
  for (const char* domain : {"a", "a", "b"}) gang.Add(domain);
  EXPECT_EQ(gang.Of("a"), 2);
  EXPECT_EQ(gang.Of("c"), 0);
  EXPECT_EQ(gang.AlikeWith("a", 4), 2);
  EXPECT_EQ(gang.AlikeWith("b", 4), 0);
  EXPECT_EQ(gang.AlikeWith("c", 4), 0);
}

}  // namespace
}  // namespace muster
