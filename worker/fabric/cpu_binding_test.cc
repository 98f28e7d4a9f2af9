#include "worker/fabric/cpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/process/cpu_affinity.h"
#include "worker/fabric/cpu_topology.h"
#include "worker/fabric/testing/tree.h"

namespace muster::worker {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

std::vector<int> Range(int first, int last) {
  return ParseCpuList(std::to_string(first) + "-" + std::to_string(last));
}

// Two sockets of four cores with two threads each, numbered as servers do: 0-3 and 8-11 are the
// threads of the first.
CpuTopology TwoSockets(const std::vector<int>& allowed = Range(0, 15)) {
  return ReadCpuTopology(allowed, TreeForTest("two_sockets").path());
}

std::vector<std::string> Lists(const CpuBindingPlan& plan) {
  std::vector<std::string> lists;
  for (const RankCpus& rank : plan.ranks) lists.push_back(FormatCpuList(rank.cpus));
  return lists;
}

TEST(CpuList, IsReadAndWritten) {
  EXPECT_THAT(ParseCpuList("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(ParseCpuList("8,0-1"), ElementsAre(0, 1, 8));
  EXPECT_EQ(FormatCpuList({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(FormatCpuList({}), "");
  for (const char* text : {"", "a", "3-1", "0-", "1,,2", "-1", "0-99999", "1 2"})
    EXPECT_THAT(ParseCpuList(text), IsEmpty()) << text;
}

TEST(CpuTopology, KeepsThreadsOfACoreTogetherAndKnowsItsNode) {
  const CpuTopology topology = TwoSockets();
  ASSERT_THAT(topology.cores, SizeIs(8));
  EXPECT_EQ(topology.cores[0], (Core{{0, 8}, 0}));
  EXPECT_EQ(topology.cores[7], (Core{{7, 15}, 1}));
  EXPECT_EQ(topology.cpus(), 16);
}

TEST(CpuTopology, HasOnlyWhatTheCgroupAllows) {
  const CpuTopology topology = TwoSockets({2, 4, 12});
  EXPECT_THAT(topology.cores, ElementsAre(Core{{2}, 0}, Core{{4, 12}, 1}));
}

TEST(CpuTopology, AHostWithoutCoresInSysfsHasACorePerProcessor) {
  const TempDirForTest empty;
  EXPECT_THAT(ReadCpuTopology({0, 1}, empty.path()).cores, ElementsAre(Core{{0}, 0}, Core{{1}, 0}));
}

TEST(CpuTopology, ThisProcessMayRunSomewhere) {
  EXPECT_FALSE(AllowedCpus().empty());
  EXPECT_EQ(ReadCpuTopology(AllowedCpus()).cpus(), static_cast<int>(AllowedCpus().size()));
}

TEST(CpuBinding, RanksGetTheProcessorsOfTheirGpusNode) {
  const CpuBindingPlan plan = PlanCpuBinding(TwoSockets(), {.ranks = 3, .gpu_nodes = {1, 1, 0}});
  EXPECT_THAT(Lists(plan), ElementsAre("4-7,12-15", "4-7,12-15", "0-3,8-11"));
  EXPECT_EQ(plan.ranks[0].memory_node, 1);
  EXPECT_EQ(plan.ranks[2].memory_node, 0);
  EXPECT_EQ(plan.sentence,
            "ranks are kept to the processors of their GPU's NUMA node: 4-7,12-15 | 4-7,12-15 | "
            "0-3,8-11");
  EXPECT_TRUE(plan.notable);
  EXPECT_THAT(Lists(PlanCpuBinding(TwoSockets(), {.ranks = 1, .gpu_nodes = {1}})),
              ElementsAre("4-7,12-15"));
}

TEST(CpuBinding, OfAGpusNodeOnlyWhatTheCgroupAllows) {
  EXPECT_THAT(Lists(PlanCpuBinding(TwoSockets({0, 1, 5, 13}), {.ranks = 2, .gpu_nodes = {0, 1}})),
              ElementsAre("0-1", "5,13"));
}

TEST(CpuBinding, WithoutGpusTheyShareEvenly) {
  const CpuBindingPlan plan = PlanCpuBinding(TwoSockets(), {.ranks = 2});
  EXPECT_THAT(Lists(plan), ElementsAre("0-3,8-11", "4-7,12-15"));
  EXPECT_EQ(plan.ranks[1].memory_node, 1);
  const CpuBindingPlan three = PlanCpuBinding(TwoSockets(), {.ranks = 3});
  EXPECT_THAT(Lists(three), ElementsAre("0-1,8-9", "2-4,10-12", "5-7,13-15"));
  EXPECT_EQ(three.ranks[1].memory_node, -1) << "its cores are on both sockets";
  EXPECT_THAT(Lists(PlanCpuBinding(TwoSockets(), {.ranks = 8, .cpus_per_rank = 2})),
              ElementsAre("0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"))
      << "threads of one core are never of two ranks";
}

// Why no rank is bound.
std::string WhyNot(const CpuTopology& topology, const CpuBindingRequest& request) {
  const CpuBindingPlan plan = PlanCpuBinding(topology, request);
  EXPECT_THAT(plan.ranks, SizeIs(request.ranks));
  EXPECT_THAT(plan.ranks, Each(RankCpus{}));
  EXPECT_THAT(plan.sentence, StartsWith("ranks are kept to no processors: "));
  return plan.sentence;
}

TEST(CpuBinding, NoRankIsBoundWhereThatCouldSlowItDown) {
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 2, .whole_node = false}), HasSubstr("another one"));
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 1}), HasSubstr("single rank"));
  EXPECT_THAT(WhyNot(TwoSockets({0, 4}), {.ranks = 3}), HasSubstr("2 cores that may be used"));
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 9}), HasSubstr("8 cores that may be used"))
      << "two threads of one core are not two cores";
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 2, .cpus_per_rank = 9}),
              HasSubstr("smaller than resources.cpus_per_rank, 9"));
}

TEST(CpuBinding, OneNumaNodeIsNothingToTellAJobOf) {
  const CpuTopology one = TwoSockets({0, 1, 2, 3});
  EXPECT_THAT(WhyNot(one, {.ranks = 2}), HasSubstr("of one NUMA node"));
  EXPECT_THAT(WhyNot(one, {.ranks = 2, .gpu_nodes = {0, 1}}), HasSubstr("of one NUMA node"));
  EXPECT_FALSE(PlanCpuBinding(one, {.ranks = 2}).notable);
  EXPECT_TRUE(PlanCpuBinding(TwoSockets(), {.ranks = 1}).notable);
}

TEST(CpuBinding, AGpuWithAnUnusableNodeBindsNoRank) {
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 2, .gpu_nodes = {0, -1}}),
              HasSubstr("NUMA node of a GPU is not known"));
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 2, .gpu_nodes = {0, 2}}),
              HasSubstr("no processor of NUMA node 2, that of a GPU, may be used"));
  EXPECT_THAT(WhyNot(TwoSockets({0, 1, 4}), {.ranks = 2, .cpus_per_rank = 2, .gpu_nodes = {0, 1}}),
              HasSubstr("1 processor may be used, fewer than the 2 threads of its ranks"));
  EXPECT_THAT(WhyNot(TwoSockets(), {.ranks = 2, .cpus_per_rank = 5, .gpu_nodes = {1, 1}}),
              HasSubstr("8 processors may be used, fewer than the 10 threads"));
}

}  // namespace
}  // namespace muster::worker
