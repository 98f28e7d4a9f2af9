// FsdpOptions: how an engine shards, computes and updates.
//
// A plain value; what it points to outlives the engine that is made with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "common/control_pipe/progress_page.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/tracer.h"
#include "trainer/fsdp/precision.h"
#include "trainer/ops/adamw.h"

namespace muster {

class RetainedWeights;
class Segment;

struct FsdpOptions {
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int ranks_per_node = 1;        // the shard groups of hybrid strategies
  int blocks_per_unit = 1;       // transformer blocks that are gathered together
  int expert_parallel = 1;       // ranks among which a layer's experts are divided (ShapeOf)
  std::optional<LoraSpec> lora;  // checked by CheckTrain; nothing: the whole model is trained
  std::optional<QuantizationSpec> quantization;  // of the frozen matrices
  Precision precision;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kSelective;
  bool reduce_every_micro_batch = true;
  // Master weights, moments and gradient sums in host memory, updated there beside the device's
  // work; changes nothing where the device is the host.
  bool cpu_offload = false;
  AdamWOptions adamw;
  double grad_clip = 1.0;  // global L2 norm; 0: none
  std::uint64_t seed = 0;  // of the masks of dropout
  // Where frozen weights outlive the engine; null: they do not. And what distinguishes the
  // model's files from others, equal on all ranks.
  RetainedWeights* retained_weights = nullptr;
  std::uint64_t frozen_source = 0;
  // Called as a micro-batch moves on; cheap. May be empty.
  std::function<void(TrainPhase)> on_phase;
  Tracer* tracer = nullptr;  // null: no tracing
  // Made for this rank's PlanSegment (state_plan.h). Its newest slot is the state to begin with,
  // where the state lies in it (ShardState::in_segment). Null: no snapshots.
  Segment* segment = nullptr;
  std::int64_t snapshot_every = 1;  // steps
};

// What the job file says; without callback, tracer and memory, which are the trainer's.
FsdpOptions OptionsOf(const TrainSpec& train, int ranks_per_node);

}  // namespace muster
