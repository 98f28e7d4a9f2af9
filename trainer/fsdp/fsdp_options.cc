#include "trainer/fsdp/fsdp_options.h"

namespace muster {

FsdpOptions OptionsOf(const TrainSpec& train, int ranks_per_node) {
  const FsdpSpec& fsdp = train.fsdp;
  const OptimizerSpec& optimizer = train.optimizer;
  return {.strategy = fsdp.strategy,
          .ranks_per_node = ranks_per_node,
          .blocks_per_unit = fsdp.blocks_per_unit,
          .expert_parallel = fsdp.expert_parallel,
          .lora = train.lora,
          .quantization = train.quantization,
          .precision = ResolvePrecision(fsdp, optimizer),
          .activation_checkpointing = fsdp.activation_checkpointing,
          .reduce_every_micro_batch = fsdp.reduce_every_micro_batch,
          .cpu_offload = fsdp.cpu_offload,
          .adamw = {optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay},
          .grad_clip = optimizer.grad_clip,
          .seed = train.seed,
          .snapshot_every = train.snapshot.every};
}

}  // namespace muster
