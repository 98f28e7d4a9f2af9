// Of foreign_config.h: accelerate's configuration.
#include <array>

#include "common/job_spec/foreign_config.h"
#include "common/job_spec/foreign_rules.h"

namespace muster {
namespace {

constexpr char kStrategy[] = "train.fsdp.strategy";
constexpr char kVersion[] = "fsdp_config.fsdp_version";
constexpr char kSharding[] = "fsdp_config.fsdp_sharding_strategy";
constexpr char kReshard[] = "fsdp_config.fsdp_reshard_after_forward";
constexpr char kReplicas[] = "parallelism_config.parallelism_config_dp_replicate_size";

struct StrategyWord {
  std::string_view name;  // of torch's ShardingStrategy, and its number
  std::string_view number;
  std::string_view job;
};
constexpr std::array<StrategyWord, 6> kStrategies = {{
    {"full_shard", "1", "full_shard"},
    {"shard_grad_op", "2", "shard_grad_op"},
    {"no_shard", "3", "no_shard"},
    {"hybrid_shard", "4", "hybrid_shard"},
    {"hybrid_shard_zero2", "5", "hybrid_shard_zero2"},
    {"_hybrid_shard_zero2", "", "hybrid_shard_zero2"},
}};

void MapStrategy(ForeignReader& reader, const ForeignEntry& entry) {
  const std::string word = entry.lower();
  const ForeignEntry* version = reader.Find(kVersion);
  if (entry.key == kSharding && version != nullptr && version->text == "2" &&
      reader.Find(kReshard) != nullptr)
    return reader.Note(entry, "fsdp_reshard_after_forward counts in version 2");
  for (const StrategyWord& each : kStrategies)
    if (word == each.name || word == each.number)
      return reader.Set(kStrategy, std::string(each.job), entry);
  reader.Refuse(entry,
                "expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
}

// FSDP 2 says with a boolean what FSDP 1 says with a strategy, whose names are accepted too.
void MapReshard(ForeignReader& reader, const ForeignEntry& entry) {
  const ForeignEntry* version = reader.Find(kVersion);
  if (reader.Find(kSharding) != nullptr && (version == nullptr || version->text != "2"))
    return reader.Note(entry, "fsdp_sharding_strategy counts in version 1");
  const ForeignEntry* replicas = reader.Find(kReplicas);
  const bool hybrid = replicas != nullptr && replicas->number().value_or(1) > 1;
  if (const auto reshards = entry.boolean()) {
    const std::string strategy = hybrid ? (*reshards ? "hybrid_shard" : "hybrid_shard_zero2")
                                        : (*reshards ? "full_shard" : "shard_grad_op");
    return reader.Set(kStrategy, strategy, entry);
  }
  if (entry.number())
    return reader.Refuse(entry,
                         "resharding to so many ranks is not supported; use true, false, or "
                         "HYBRID_SHARD to share a model among the ranks of a node");
  MapStrategy(reader, entry);
}

void MapDistributedType(ForeignReader& reader, const ForeignEntry& entry) {
  const std::string type = entry.lower();
  if (type == "multi_gpu" || type == "multi_cpu") return reader.Set(kStrategy, "no_shard", entry);
  if (type == "fsdp" || type == "no" || type == "deepspeed") return;
  reader.Refuse(entry, "FSDP, DEEPSPEED, MULTI_GPU, MULTI_CPU and NO can be trained");
}

void MapPrecision(ForeignReader& reader, const ForeignEntry& entry) {
  const std::string type = entry.lower();
  if (type == "no") return reader.Set("train.fsdp.mixed_precision", "fp32", entry);
  if (type == "bf16" || type == "fp16")
    return reader.Set("train.fsdp.mixed_precision", type, entry);
  reader.Refuse(entry, "no, bf16 and fp16 can be computed in");
}

void MapUseCpu(ForeignReader& reader, const ForeignEntry& entry) {
  const auto cpu = entry.boolean();
  if (!cpu) return reader.Refuse(entry, "expected true or false");
  reader.Set("resources.device", *cpu ? "cpu" : "cuda", entry);
}

// Accelerate counts all processes, a job those of a node.
void MapProcesses(ForeignReader& reader, const ForeignEntry& entry) {
  const ForeignEntry* machines = reader.Find("num_machines");
  const std::int64_t nodes = machines == nullptr ? 1 : machines->count().value_or(0);
  const std::int64_t ranks = entry.count().value_or(0);
  if (nodes < 1 || ranks < 1) return reader.Refuse(entry, "expected a whole number from 1 on");
  const std::int64_t per_node = ranks / nodes;
  if (per_node * nodes != ranks)
    return reader.Refuse(entry, "does not come in equal parts on num_machines: " + machines->text);
  reader.Set("resources.ranks_per_node", std::to_string(per_node), entry);
}

void MapNodes(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetCount("resources.nodes", entry);
}

void MapOffload(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetBoolean("train.fsdp.cpu_offload", entry);
}

void MapCheckpointing(ForeignReader& reader, const ForeignEntry& entry) {
  const auto on = entry.boolean();
  if (!on) return reader.Refuse(entry, "expected true or false");
  if (*on) return reader.Set("train.fsdp.activation_checkpointing", "full", entry);
  reader.Note(entry,
              "train.fsdp.activation_checkpointing counts; all its levels give the same "
              "numbers");
}

void MapReplicas(ForeignReader& reader, const ForeignEntry& entry) {
  if (!entry.count()) return reader.Refuse(entry, "expected a whole number from 1 on");
  reader.Note(entry, "replicas are the nodes of a hybrid strategy");
}

void MapDeepSpeedFile(ForeignReader& reader, const ForeignEntry& entry) {
  reader.config().deepspeed_file = entry.text;
}

constexpr char kPlaced[] = "the coordinator gives ranks their places and addresses";
constexpr char kAlways[] = "is always so: every rank reads its own part of the files";
constexpr char kUnits[] = "transformer blocks are gathered one by one (train.fsdp.blocks_per_unit)";
constexpr char kPrefetch[] = "the next unit is always gathered under the one before";
constexpr char kLauncher[] = "Muster itself starts the ranks";
constexpr char kNoTpu[] = "there are no TPUs here";

constexpr ForeignRule kRules[] = {
    {"compute_environment", "only LOCAL_MACHINE; nodes are the cluster's", "local_machine"},
    {"distributed_type", "", {}, MapDistributedType},
    {"mixed_precision", "", {}, MapPrecision},
    {"fp16", "write mixed_precision: fp16", "false|no|"},
    {"use_cpu", "", {}, MapUseCpu},
    {"debug", "a collective that goes wrong always names its operation and rank"},
    {"num_processes", "", {}, MapProcesses},
    {"num_machines", "", {}, MapNodes},
    {"machine_rank", kPlaced},
    {"main_process_ip", kPlaced},
    {"main_process_port", kPlaced},
    {"rdzv_backend", kPlaced},
    {"same_network", kPlaced},
    {"gpu_ids", "a worker offers the GPUs that its CUDA_VISIBLE_DEVICES names", "all|"},
    {"main_training_function", "the built-in trainer trains"},
    {"enable_cpu_affinity", "ranks are not bound to CPUs, which changes no number"},
    {"downcast_bf16", kNoTpu, "no|false|"},
    {"tpu_name", kNoTpu, "|null"},
    {"tpu_zone", kNoTpu, "|null"},
    {"tpu_use_cluster", kNoTpu, "false|no|"},
    {"tpu_use_sudo", kNoTpu, "false|no|"},
    {"tpu_vm", kNoTpu, "|null"},
    {"tpu_env", kNoTpu, "|null"},
    {"command_file", kNoTpu, "|null"},
    {"commands", kNoTpu, "|null"},
    {"dynamo_backend", "nothing is compiled; products and kernels are fixed"},
    {"dynamo_config.*", "nothing is compiled; products and kernels are fixed"},
    {"ipex_config.*", "the trainer has its own kernels"},
    {"mpirun_config.*", kLauncher},
    {"fp8_config.*", "fp8 is not supported", "|null"},
    {"tp_config.*", "tensor parallelism is not supported", "|null"},
    {"megatron_lm_config.*", "Megatron's parallelism is not supported", "|null"},
    {"parallelism_config.parallelism_config_tp_size", "tensor parallelism is not supported", "1|"},
    {"parallelism_config.parallelism_config_cp_size", "context parallelism is not supported", "1|"},
    {"parallelism_config.parallelism_config_sp_size", "sequence parallelism is not supported",
     "1|"},
    {kReplicas, "", {}, MapReplicas},
    {"parallelism_config.parallelism_config_dp_shard_size",
     "a shard group is all ranks, or those of a node"},
    {"parallelism_config.*", "only data parallelism is supported", "|null"},
    {kVersion, "both versions become the same engine"},
    {kSharding, "", {}, MapStrategy},
    {kReshard, "", {}, MapReshard},
    {"fsdp_config.fsdp_offload_params", "", {}, MapOffload},
    {"fsdp_config.fsdp_activation_checkpointing", "", {}, MapCheckpointing},
    {"fsdp_config.fsdp_auto_wrap_policy", kUnits},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", kUnits},
    {"fsdp_config.fsdp_min_num_params", kUnits},
    {"fsdp_config.fsdp_state_dict_type",
     "checkpoints are sharded and fit any number of ranks; the trained model is whole"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", kAlways},
    {"fsdp_config.fsdp_sync_module_states", kAlways},
    {"fsdp_config.fsdp_use_orig_params", "tensors keep their names whatever it says"},
    {"fsdp_config.fsdp_backward_prefetch", kPrefetch},
    {"fsdp_config.fsdp_backward_prefetch_policy", kPrefetch},
    {"fsdp_config.fsdp_forward_prefetch", kPrefetch},
    {"fsdp_config.fsdp_limit_all_gathers", "two units at most are gathered at once"},
    {"fsdp_config.fsdp_ignored_modules", "every parameter is sharded", "|null|none"},
    {"deepspeed_config.deepspeed_config_file", "", {}, MapDeepSpeedFile},
    {"deepspeed_config.zero_stage", "", {}, MapStage},
    {"deepspeed_config.offload_optimizer_device", "", {}, MapOffloadDevice},
    {"deepspeed_config.offload_param_device", "", {}, MapOffloadDevice},
    {"deepspeed_config.offload_optimizer_nvme_path", "state is not kept on disks", "none|null|"},
    {"deepspeed_config.offload_param_nvme_path", "state is not kept on disks", "none|null|"},
    {"deepspeed_config.gradient_accumulation_steps", "", {}, MapAccumulation},
    {"deepspeed_config.gradient_clipping", "", {}, MapClipping},
    {"deepspeed_config.zero3_init_flag", kAlways},
    {"deepspeed_config.zero3_save_16bit_model", "the trained model is always written whole"},
    {"deepspeed_config.deepspeed_multinode_launcher", kLauncher},
    {"deepspeed_config.deepspeed_hostfile", kLauncher},
    {"deepspeed_config.deepspeed_exclusion_filter", "use resources.exclude", "none|null|"},
    {"deepspeed_config.deepspeed_inclusion_filter", "use resources.exclude for the others",
     "none|null|"},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", "there are no mixtures of experts",
     "none|null|"},
};

}  // namespace

std::span<const ForeignRule> AccelerateRules() { return kRules; }

Result<ForeignConfig> ReadAccelerate(std::string_view text, std::string_view file, bool examines) {
  return ForeignReader(file).Read(text, kRules, examines);
}

Result<ForeignConfig> ParseAccelerateConfig(std::string_view yaml, std::string_view file) {
  return ReadAccelerate(yaml, file, /*examines=*/false);
}

}  // namespace muster
