// Mesh: which ranks hold a model together and which hold copies of one another.
//
// The gang is a grid. The ranks of a shard group split every array among them; ranks at the same
// place of different shard groups are replicas and hold equal arrays. full_shard is one shard
// group, no_shard is all replicas, hybrid_shard has a shard group per node.
//
// With expert parallelism a shard group consists of expert groups, of consecutive ranks, which
// divide the experts of each layer among them. Ranks at the same place of these hold the same
// experts and shard them further.
//
// The trainer's thread. A mesh belongs to one forming of its communicator.
#pragma once

#include <memory>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"

namespace muster {

struct MeshShape {
  int shard_size = 1;   // ranks of a shard group, consecutive
  int replicas = 1;     // shard groups
  int expert_ways = 1;  // ranks of an expert group

  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

// Whether units are freed after their forward pass and gathered again for the backward one.
bool ReshardsAfterForward(ShardingStrategy strategy);

// kInvalidArgument when the nodes of a hybrid strategy have no equal number of ranks. An attempt
// may have fewer ranks than the job: an expert group has as many as divide both `expert_parallel`
// and the shard group.
Result<MeshShape> ShapeOf(ShardingStrategy strategy, int world_size, int ranks_per_node,
                          int expert_parallel = 1);

class Mesh {
 public:
  // Collective over `world`, which outlives the mesh. kInvalidArgument on every rank where a hybrid
  // strategy meets nodes of different sizes.
  static Result<Mesh> Make(Communicator& world, ShardingStrategy strategy, int ranks_per_node,
                           int expert_parallel, Deadline deadline);

  const MeshShape& shape() const { return shape_; }
  int shard_rank() const { return world_->rank() % shape_.shard_size; }
  int replica() const { return world_->rank() / shape_.shard_size; }
  Communicator& world() const { return *world_; }
  // Null where the group has one rank.
  Communicator* shard() const { return shard_; }
  Communicator* replicas() const { return replicas_; }
  // Null without expert parallelism: this rank's expert group, and the ranks of its shard group
  // that hold the same experts, which may be this one alone.
  Communicator* experts() const { return experts_.get(); }
  Communicator* expert_shards() const { return expert_shards_.get(); }

 private:
  Status SplitExperts(Deadline deadline);

  Communicator* world_ = nullptr;
  MeshShape shape_;
  std::unique_ptr<Communicator> owned_shard_;
  std::unique_ptr<Communicator> owned_replicas_;
  std::unique_ptr<Communicator> experts_;
  std::unique_ptr<Communicator> expert_shards_;
  Communicator* shard_ = nullptr;
  Communicator* replicas_ = nullptr;
};

}  // namespace muster
