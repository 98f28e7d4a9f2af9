#include "trainer/fsdp/mesh.h"

#include <array>
#include <numeric>
#include <string>
#include <vector>

namespace muster {
namespace {

std::vector<int> Members(int first, int count, int stride) {
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(first + i * stride);
  return members;
}

bool GroupsByNode(ShardingStrategy strategy) {
  return strategy == ShardingStrategy::kHybridShard ||
         strategy == ShardingStrategy::kHybridShardZero2;
}

Status UnequalNodes(const std::string& found) {
  return InvalidArgument("hybrid_shard needs the same number of ranks on every node, but " + found +
                         "; use full_shard");
}

// Two ranks may each find a grid that suits their node and that the other knows nothing of: they
// would wait for groups that never meet.
Status AgreeOnNodeSize(Communicator& world, int ranks_per_node) {
  std::array<std::int64_t, 2> extremes = {ranks_per_node, -ranks_per_node};
  MUSTER_RETURN_IF_ERROR(
      world.AllReduce(extremes.data(), extremes.size(), ElementType::kInt64, ReduceOp::kMax)
          ->Wait());
  const auto [largest, smallest_negated] = extremes;
  if (largest == -smallest_negated) return OkStatus();
  return UnequalNodes("one has " + std::to_string(-smallest_negated) + " and another " +
                      std::to_string(largest));
}

}  // namespace

bool ReshardsAfterForward(ShardingStrategy strategy) {
  return strategy != ShardingStrategy::kShardGradOp &&
         strategy != ShardingStrategy::kHybridShardZero2;
}

Result<MeshShape> ShapeOf(ShardingStrategy strategy, int world_size, int ranks_per_node,
                          int expert_parallel) {
  const auto sharded = [=](int shard_size) {
    return MeshShape{.shard_size = shard_size,
                     .replicas = world_size / shard_size,
                     .expert_ways = std::gcd(expert_parallel, shard_size)};
  };
  switch (strategy) {
    case ShardingStrategy::kFullShard:
    case ShardingStrategy::kShardGradOp: return sharded(world_size);
    case ShardingStrategy::kNoShard: return MeshShape{.shard_size = 1, .replicas = world_size};
    case ShardingStrategy::kHybridShard:
    case ShardingStrategy::kHybridShardZero2: break;
  }
  if (ranks_per_node < 1 || world_size % ranks_per_node != 0) {
    return UnequalNodes(std::to_string(world_size) + " ranks do not come in groups of " +
                        std::to_string(ranks_per_node));
  }
  return sharded(ranks_per_node);
}

// Groups of one world rank after the other: all ranks split alike.
Status Mesh::SplitExperts(Deadline deadline) {
  const auto [size, replicas, ways] = shape_;
  if (ways == 1) return OkStatus();
  const int first = replica() * size, group = shard_rank() / ways, place = shard_rank() % ways;
  MUSTER_ASSIGN_OR_RETURN(
      experts_, world_->Split("experts", Members(first + group * ways, ways, 1), deadline));
  MUSTER_ASSIGN_OR_RETURN(
      expert_shards_,
      world_->Split("expert_shards", Members(first + place, size / ways, ways), deadline));
  return OkStatus();
}

Result<Mesh> Mesh::Make(Communicator& world, ShardingStrategy strategy, int ranks_per_node,
                        int expert_parallel, Deadline deadline) {
  Mesh mesh;
  mesh.world_ = &world;
  if (GroupsByNode(strategy)) MUSTER_RETURN_IF_ERROR(AgreeOnNodeSize(world, ranks_per_node));
  MUSTER_ASSIGN_OR_RETURN(mesh.shape_,
                          ShapeOf(strategy, world.size(), ranks_per_node, expert_parallel));
  MUSTER_RETURN_IF_ERROR(mesh.SplitExperts(deadline));
  const int size = mesh.shape_.shard_size, replicas = mesh.shape_.replicas;
  if (replicas == 1) {
    if (size > 1) mesh.shard_ = &world;
    return mesh;
  }
  if (size == 1) {
    mesh.replicas_ = &world;
    return mesh;
  }
  MUSTER_ASSIGN_OR_RETURN(mesh.owned_shard_,
                          world.Split("shard", Members(mesh.replica() * size, size, 1), deadline));
  MUSTER_ASSIGN_OR_RETURN(
      mesh.owned_replicas_,
      world.Split("replicas", Members(mesh.shard_rank(), replicas, size), deadline));
  mesh.shard_ = mesh.owned_shard_.get();
  mesh.replicas_ = mesh.owned_replicas_.get();
  return mesh;
}

}  // namespace muster
