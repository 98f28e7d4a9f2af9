#include "trainer/train/start_notes.h"

#include "trainer/fsdp/mesh.h"

namespace muster {

std::vector<std::string> StartNotes(const JobSpec& spec, const RankEnv& env) {
  std::vector<std::string> notes;
  if (env.fake_gpus) notes.push_back("the GPUs of this node are fake: training on the CPU");
  const FsdpSpec& fsdp = spec.train->fsdp;
  if (env.world_size <= env.local_world_size) {
    if (fsdp.strategy == ShardingStrategy::kHybridShard)
      notes.push_back("train.fsdp.strategy hybrid_shard on one node is full_shard");
    if (fsdp.strategy == ShardingStrategy::kHybridShardZero2)
      notes.push_back("train.fsdp.strategy hybrid_shard_zero2 on one node is shard_grad_op");
  }
  // An attempt may have fewer ranks than the job, and torchrun starts any number.
  const auto shape =
      ShapeOf(fsdp.strategy, env.world_size, env.local_world_size, fsdp.expert_parallel);
  if (shape.ok() && shape->expert_ways < fsdp.expert_parallel) {
    notes.push_back("train.fsdp.expert_parallel " + std::to_string(fsdp.expert_parallel) +
                    " does not divide the " + std::to_string(shape->shard_size) +
                    " ranks that there are: experts are divided among " +
                    std::to_string(shape->expert_ways));
  }
  if (spec.resources.device == "cpu") {
    if (fsdp.activation_checkpointing == ActivationCheckpointing::kFullOffload)
      notes.push_back(
          "train.fsdp.activation_checkpointing full_offload on a CPU is full: activations are in "
          "host memory anyway");
    if (fsdp.cpu_offload)
      notes.push_back(
          "train.fsdp.cpu_offload changes nothing on a CPU: everything is in host memory anyway");
  }
  if (spec.train->snapshot.buddy == BuddyCopies::kOn && env.world_size <= env.local_world_size) {
    notes.push_back("train.snapshot.buddy on with one node is off: a copy would be lost with it");
  }
  return notes;
}

}  // namespace muster
