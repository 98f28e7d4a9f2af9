#include "trainer/fsdp/mesh.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "trainer/comm/group/testing/in_process_communicator.h"

namespace muster {
namespace {

constexpr int kRanks = 6;

// What one rank sees of the mesh.
struct View {
  int shard_size = 0, shard_rank = -1, replica = -1;
  double shard_sum = -1, replica_sum = -1;  // of the ranks in each group
};

double SumOfRanks(Communicator* group, int rank) {
  if (group == nullptr) return rank;
  double sum = rank;
  EXPECT_TRUE(group->AllReduce(&sum, 1, ElementType::kFloat64, ReduceOp::kSum)->Wait().ok());
  return sum;
}

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

void OnEveryRank(const std::function<void(int rank, Communicator& world)>& body) {
  InProcessGroup group(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = group.Join(rank);
      ASSERT_TRUE(world->Form({.generation = 1, .rank = rank, .world_size = kRanks}, Soon()).ok());
      body(rank, *world);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<View> ViewsOf(ShardingStrategy strategy, int ranks_per_node) {
  std::vector<View> views(kRanks);
  OnEveryRank([&](int rank, Communicator& world) {
    const Result<Mesh> mesh = Mesh::Make(world, strategy, ranks_per_node, 1, Soon());
    ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
    views[rank] = {mesh->shape().shard_size, mesh->shard_rank(), mesh->replica(),
                   SumOfRanks(mesh->shard(), rank), SumOfRanks(mesh->replicas(), rank)};
  });
  return views;
}

TEST(Mesh, FullShardIsOneGroup) {
  const std::vector<View> views = ViewsOf(ShardingStrategy::kFullShard, 3);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(views[rank].shard_size, kRanks);
    EXPECT_EQ(views[rank].shard_rank, rank);
    EXPECT_EQ(views[rank].shard_sum, 15);
    EXPECT_EQ(views[rank].replica_sum, rank);
  }
}

TEST(Mesh, NoShardIsAllReplicas) {
  const std::vector<View> views = ViewsOf(ShardingStrategy::kNoShard, 3);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(views[rank].shard_size, 1);
    EXPECT_EQ(views[rank].replica, rank);
    EXPECT_EQ(views[rank].shard_sum, rank);
    EXPECT_EQ(views[rank].replica_sum, 15);
  }
}

TEST(Mesh, HybridShardsWithinANodeAndReplicatesAcross) {
  const std::vector<View> views = ViewsOf(ShardingStrategy::kHybridShard, 3);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(views[rank].shard_size, 3);
    EXPECT_EQ(views[rank].shard_rank, rank % 3);
    EXPECT_EQ(views[rank].replica, rank / 3);
    EXPECT_EQ(views[rank].shard_sum, rank < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
    EXPECT_EQ(views[rank].replica_sum, rank % 3 + rank % 3 + 3);
  }
}

TEST(Mesh, ExpertGroupsAreNeighboursAndTheSameExpertsLieApart) {
  for (const auto& [strategy, ways] : {std::pair(ShardingStrategy::kFullShard, 2),
                                       {ShardingStrategy::kFullShard, 6},
                                       {ShardingStrategy::kHybridShard, 3}}) {
    OnEveryRank([&](int rank, Communicator& world) {
      const Result<Mesh> mesh = Mesh::Make(world, strategy, 3, ways, Soon());
      ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
      const int size = mesh->shape().shard_size, first = rank / ways * ways;
      EXPECT_EQ(mesh->experts()->rank(), rank - first);
      EXPECT_EQ(mesh->experts()->size(), ways);
      EXPECT_EQ(SumOfRanks(mesh->experts(), rank), ways * first + ways * (ways - 1) / 2);
      EXPECT_EQ(mesh->expert_shards()->size(), size / ways);
      EXPECT_EQ(mesh->expert_shards()->rank(), rank % size / ways);
    });
  }
}

TEST(Mesh, ExpertGroupsAreOfAsManyRanksAsThereCanBe) {
  const auto ways = [](ShardingStrategy strategy, int world, int asked) {
    return ShapeOf(strategy, world, 2, asked)->expert_ways;
  };
  EXPECT_EQ(ways(ShardingStrategy::kFullShard, 8, 4), 4);
  EXPECT_EQ(ways(ShardingStrategy::kFullShard, 6, 4), 2);
  EXPECT_EQ(ways(ShardingStrategy::kFullShard, 5, 4), 1);
  EXPECT_EQ(ways(ShardingStrategy::kHybridShard, 8, 4), 2);
  EXPECT_EQ(ways(ShardingStrategy::kNoShard, 8, 4), 1);
}

TEST(Mesh, NodesOfUnequalSizeAreRefused) {
  const Result<MeshShape> shape = ShapeOf(ShardingStrategy::kHybridShard, 5, 2);
  EXPECT_EQ(shape.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(shape.status().message().find("same number of ranks"), std::string::npos);
}

// Each of the two sizes divides the gang, so that no rank alone could find it.
TEST(Mesh, NodesOfUnequalSizeAreRefusedOnEveryRank) {
  constexpr int kRanksPerNode[kRanks] = {1, 1, 1, 3, 3, 3};
  OnEveryRank([&](int rank, Communicator& world) {
    const Result<Mesh> mesh =
        Mesh::Make(world, ShardingStrategy::kHybridShard, kRanksPerNode[rank], 1, Soon());
    EXPECT_EQ(mesh.status().code(), StatusCode::kInvalidArgument) << mesh.status().ToString();
    EXPECT_NE(mesh.status().message().find("one has 1 and another 3"), std::string::npos);
  });
}

}  // namespace
}  // namespace muster
