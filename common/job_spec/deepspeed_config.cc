// Of foreign_config.h: DeepSpeed's configuration.
#include <algorithm>
#include <array>

#include "common/job_spec/foreign_config.h"
#include "common/job_spec/foreign_rules.h"

namespace muster {
namespace {

constexpr char kBf16[] = "bf16.enabled";
constexpr char kFp16[] = "fp16.enabled";

// Whether any part of the state is offloaded, of which there is one choice here.
bool OffloadsAny(const ForeignReader& reader) {
  constexpr std::array<std::string_view, 2> kDevices = {
      "zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"};
  constexpr std::array<std::string_view, 3> kOld = {"zero_optimization.cpu_offload",
                                                    "zero_optimization.cpu_offload_param",
                                                    "zero_optimization.cpu_offload_params"};
  const auto is_cpu = [&reader](std::string_view key) {
    const ForeignEntry* entry = reader.Find(key);
    return entry != nullptr && entry->is("cpu");
  };
  const auto is_on = [&reader](std::string_view key) {
    const ForeignEntry* entry = reader.Find(key);
    return entry != nullptr && entry->boolean().value_or(false);
  };
  return std::ranges::any_of(kDevices, is_cpu) || std::ranges::any_of(kOld, is_on);
}

void MapOldOffload(ForeignReader& reader, const ForeignEntry& entry) {
  if (entry.boolean() == false && OffloadsAny(reader))
    return reader.Note(entry, "weights and the optimizer's state are offloaded together");
  reader.SetBoolean("train.fsdp.cpu_offload", entry);
}

// The two sections are one choice, and fp32 where one is off and the other not on.
void MapBf16(ForeignReader& reader, const ForeignEntry& entry) {
  const auto on = entry.boolean();
  if (!on) return reader.Refuse(entry, "expected true or false");
  const ForeignEntry* other = reader.Find(kFp16);
  const bool other_on = other != nullptr && other->boolean().value_or(false);
  if (*on && other_on) return reader.Refuse(entry, "fp16 is enabled too; one of them can be");
  if (*on) return reader.Set("train.fsdp.mixed_precision", "bf16", entry);
  if (!other_on) reader.Set("train.fsdp.mixed_precision", "fp32", entry);
}

void MapFp16(ForeignReader& reader, const ForeignEntry& entry) {
  const auto on = entry.boolean();
  if (!on) return reader.Refuse(entry, "expected true or false");
  if (*on) return reader.Set("train.fsdp.mixed_precision", "fp16", entry);
  const bool alone = std::ranges::none_of(
      reader.entries(), [](const ForeignEntry& each) { return each.key == kBf16; });
  if (alone) reader.Set("train.fsdp.mixed_precision", "fp32", entry);
}

void MapSumType(ForeignReader& reader, const ForeignEntry& entry) {
  const std::string type = entry.lower();
  if (type != "fp32" && type != "bf16" && type != "fp16")
    return reader.Refuse(entry, "gradients are added up in fp32, bf16 or fp16");
  reader.Set("train.fsdp.reduce_dtype", type, entry);
}

void MapMicroBatch(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetCount("train.batch.per_rank", entry);
}

void MapBatch(ForeignReader& reader, const ForeignEntry& entry) {
  const auto rows = entry.count();
  if (!rows) return reader.Refuse(entry, "expected a whole number from 1 on");
  reader.config().train_batch_size = *rows;
}

void MapOptimizer(ForeignReader& reader, const ForeignEntry& entry) {
  if (entry.is("adamw") || entry.is("adam"))
    return reader.Note(entry, "AdamW, with decoupled weight decay, as DeepSpeed's default is");
  reader.Refuse(entry, "AdamW is the optimizer there is");
}

void MapLr(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetNumber("train.optimizer.lr", entry);
}

void MapEps(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetNumber("train.optimizer.eps", entry);
}

void MapDecay(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetNumber("train.optimizer.weight_decay", entry);
}

void MapBetas(ForeignReader& reader, const ForeignEntry& entry) {
  if (std::ranges::count(entry.text, ',') != 1) return reader.Refuse(entry, "expected two numbers");
  reader.Set("train.optimizer.betas", "[" + entry.text + "]", entry);
}

void MapScheduler(ForeignReader& reader, const ForeignEntry& entry) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kKinds = {
      {{"warmuplr", "constant"}, {"warmupdecaylr", "linear"}, {"warmupcosinelr", "cosine"}}};
  for (const auto& [type, kind] : kKinds) {
    if (!entry.is(type)) continue;
    if (reader.Find("scheduler.params.warmup_type") == nullptr)
      reader.Note(entry, "the warm-up is linear, where DeepSpeed's default is logarithmic");
    return reader.Set("train.schedule.kind", std::string(kind), entry);
  }
  reader.Refuse(entry, "WarmupLR, WarmupDecayLR and WarmupCosineLR can be had");
}

// The peak, where the optimizer has none of its own.
void MapPeak(ForeignReader& reader, const ForeignEntry& entry) {
  const ForeignEntry* lr = reader.Find("optimizer.params.lr");
  if (lr == nullptr) return reader.SetNumber("train.optimizer.lr", entry);
  if (lr->number() != entry.number())
    reader.Refuse(entry, "is another peak than optimizer.params.lr: " + lr->text);
}

void MapWarmup(ForeignReader& reader, const ForeignEntry& entry) {
  if (entry.text == "0")
    return reader.Set("train.schedule.warmup_steps", "0", entry, "train.schedule.warmup_ratio");
  reader.SetCount("train.schedule.warmup_steps", entry, "train.schedule.warmup_ratio");
}

void MapTotal(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetCount("train.schedule.max_steps", entry, "train.schedule.epochs");
}

// The rate that the warm-up begins with, as it is: DeepSpeed has no share of the peak there.
void MapFirstRate(ForeignReader& reader, const ForeignEntry& entry) {
  constexpr double kNegligible = 1e-3;
  const auto rate = entry.number();
  if (!rate) return reader.Refuse(entry, "expected a number");
  if (*rate == 0) return;
  const ForeignEntry* peak = reader.Find("optimizer.params.lr");
  if (peak == nullptr) peak = reader.Find("scheduler.params.warmup_max_lr");
  if (peak == nullptr)
    return reader.Refuse(entry, "rates begin at 0, and there is no peak to compare it with");
  const double most = kNegligible * peak->number().value_or(0);
  if (*rate < 0 || *rate > most)
    return reader.Refuse(entry, "rates begin at 0, and the peak is " + peak->text);
  reader.Note(entry, "rates begin at 0");
}

// A share of the peak that the rate ends or begins with.
void MapRatio(ForeignReader& reader, const ForeignEntry& entry) {
  const double ratio = entry.number().value_or(1);
  if (ratio == 0) return;
  if (ratio < 0 || ratio > 1e-3) return reader.Refuse(entry, "rates begin and end at 0");
  reader.Note(entry, "rates begin and end at 0");
}

void MapSteps(ForeignReader& reader, const ForeignEntry& entry) {
  // DeepSpeed's way to never print.
  if (entry.text == "inf") return reader.Note(entry, "train.logging.every counts");
  reader.SetCount("train.logging.every", entry);
}

void MapCpuCheckpointing(ForeignReader& reader, const ForeignEntry& entry) {
  const auto on = entry.boolean();
  if (!on) return reader.Refuse(entry, "expected true or false");
  if (*on) reader.Set("train.fsdp.activation_checkpointing", "full_offload", entry);
}

constexpr char kSchedule[] =
    "collectives follow a fixed schedule: units are gathered ahead and "
    "reduced beside the products";
constexpr char kPinned[] = "offloaded state is always pinned and moved ahead of its use";
constexpr char kScale[] =
    "the loss scale begins at 65536, is halved on overflow and doubled after "
    "2,000 finite steps";
constexpr char kFigures[] = "metrics.jsonl and train.profile have the figures";
constexpr char kWhole[] = "the trained model is always written whole";

constexpr ForeignRule kRules[] = {
    {"zero_optimization.stage", "", {}, MapStage},
    {"zero_optimization.offload_optimizer.device", "", {}, MapOffloadDevice},
    {"zero_optimization.offload_param.device", "", {}, MapOffloadDevice},
    {"zero_optimization.offload_optimizer.nvme_path", "state is not kept on disks", "none|null|"},
    {"zero_optimization.offload_param.nvme_path", "state is not kept on disks", "none|null|"},
    {"zero_optimization.offload_optimizer.ratio", "all of it is offloaded, or nothing", "1|1.0|"},
    {"zero_optimization.offload_optimizer.*", kPinned},
    {"zero_optimization.offload_param.*", kPinned},
    {"zero_optimization.cpu_offload", "", {}, MapOldOffload},
    {"zero_optimization.cpu_offload_params", "", {}, MapOldOffload},
    {"zero_optimization.cpu_offload_use_pin_memory", kPinned},
    {"zero_optimization.overlap_comm", kSchedule},
    {"zero_optimization.contiguous_gradients", kSchedule},
    {"zero_optimization.reduce_scatter", kSchedule},
    {"zero_optimization.reduce_bucket_size", kSchedule},
    {"zero_optimization.allgather_partitions", kSchedule},
    {"zero_optimization.allgather_bucket_size", kSchedule},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kSchedule},
    {"zero_optimization.round_robin_gradients", kSchedule},
    {"zero_optimization.sub_group_size", kSchedule},
    {"zero_optimization.stage3_prefetch_bucket_size", kSchedule},
    {"zero_optimization.prefetch_bucket_size", kSchedule},
    {"zero_optimization.stage3_param_persistence_threshold", kSchedule},
    {"zero_optimization.param_persistence_threshold", kSchedule},
    {"zero_optimization.stage3_model_persistence_threshold", kSchedule},
    {"zero_optimization.stage3_max_live_parameters", kSchedule},
    {"zero_optimization.max_live_parameters", kSchedule},
    {"zero_optimization.stage3_max_reuse_distance", kSchedule},
    {"zero_optimization.max_reuse_distance", kSchedule},
    {"zero_optimization.stage3_module_granularity_threshold", kSchedule},
    {"zero_optimization.memory_efficient_linear", kSchedule},
    {"zero_optimization.pipeline_loading_checkpoint", kSchedule},
    {"zero_optimization.allgather_sequential", kSchedule},
    {"zero_optimization.stage3_allgather_sequential", kSchedule},
    {"zero_optimization.use_all_reduce_for_fetch_params", kSchedule},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kSchedule},
    {"zero_optimization.model_persistence_threshold", kSchedule},
    {"zero_optimization.module_granularity_threshold", kSchedule},
    {"zero_optimization.parameter_alignment", kSchedule},
    {"zero_optimization.override_module_apply", kSchedule},
    {"zero_optimization.leaf_module.*", kSchedule},
    {"zero_optimization.enable_sanity_checks", kFigures},
    {"zero_optimization.log_trace_cache_warnings", kFigures},
    {"zero_optimization.compute_grad_norm", "the gradient's norm is always computed"},
    {"zero_optimization.cpu_offload_param", "", {}, MapOldOffload},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", "AdamW is the optimizer there is"},
    {"zero_optimization.zenflow.*", "updates are never put off", "|null"},
    {"zero_optimization.ignore_unused_parameters", "all parameters are used"},
    {"zero_optimization.legacy_stage1", "there is one implementation", "false|"},
    {"zero_optimization.load_from_fp32_weights", "checkpoints hold the master weights"},
    {"zero_optimization.elastic_checkpoint", "checkpoints fit any number of ranks"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kWhole},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kWhole},
    {"zero_optimization.gather_16bit_weights_on_model_save", kWhole},
    {"zero_optimization.zero_hpz_partition_size",
     "a second partition within a node is not supported; hybrid_shard shares a model among its "
     "ranks",
     "1|"},
    {"zero_optimization.zero_quantized_weights", "weights are sent in the compute type", "false|"},
    {"zero_optimization.zero_quantized_nontrainable_weights",
     "weights are sent in the compute type", "false|"},
    {"zero_optimization.zero_quantized_gradients", "gradients are sent in reduce_dtype", "false|"},
    {"zero_optimization.mics_shard_size", "use train.fsdp.strategy: hybrid_shard", "-1|"},
    {"zero_optimization.mics_hierarchical_params_gather", "use train.fsdp.strategy: hybrid_shard",
     "false|"},
    {kBf16, "", {}, MapBf16},
    {"bf16.immediate_grad_update", kSchedule},
    {"bf16.bf16_master_weights_and_grads", "use train.optimizer.master_weights: bf16", "false|"},
    {"bf16.bf16_optimizer_states", "use train.optimizer.moments: bf16", "false|"},
    {"bf16.check_grad_overflow", "every step's numbers are looked at (train.nonfinite)"},
    {kFp16, "", {}, MapFp16},
    {"fp16.loss_scale", "the loss scale is dynamic", "0|0.0|"},
    {"fp16.initial_scale_power", kScale},
    {"fp16.loss_scale_window", kScale},
    {"fp16.hysteresis", kScale},
    {"fp16.consecutive_hysteresis", kScale},
    {"fp16.min_loss_scale", kScale},
    {"fp16.auto_cast", "inputs are token ids, which have no type to cast"},
    {"fp16.fp16_master_weights_and_grads", "master weights are fp32 or bf16", "false|"},
    {"amp.enabled", "use fp16 or bf16", "false|"},
    {"amp.*", "amp is not enabled"},
    {"data_types.grad_accum_dtype", "", {}, MapSumType},
    {"communication_data_type", "", {}, MapSumType},
    {"fp32_allreduce", "train.fsdp.reduce_dtype is fp32 unless said otherwise"},
    {"train_micro_batch_size_per_gpu", "", {}, MapMicroBatch},
    {"gradient_accumulation_steps", "", {}, MapAccumulation},
    {"train_batch_size", "", {}, MapBatch},
    {"gradient_clipping", "", {}, MapClipping},
    {"prescale_gradients", "gradients are scaled once, by the tokens of the step", "false|"},
    {"gradient_predivide_factor", "gradients are scaled once, by the tokens of the step", "1|1.0|"},
    {"sparse_gradients", "gradients are dense", "false|"},
    {"optimizer.type", "", {}, MapOptimizer},
    {"optimizer.params.lr", "", {}, MapLr},
    {"optimizer.params.betas", "", {}, MapBetas},
    {"optimizer.params.eps", "", {}, MapEps},
    {"optimizer.params.weight_decay", "", {}, MapDecay},
    {"optimizer.params.torch_adam", "there is one implementation"},
    {"optimizer.params.fused", "there is one implementation"},
    {"optimizer.params.adam_w_mode", "weight decay is decoupled", "true|"},
    {"optimizer.params.bias_correction", "moments are corrected", "true|"},
    {"optimizer.params.amsgrad", "AMSGrad is not supported", "false|"},
    {"scheduler.type", "", {}, MapScheduler},
    {"scheduler.params.warmup_max_lr", "", {}, MapPeak},
    {"scheduler.params.warmup_min_lr", "", {}, MapFirstRate},
    {"scheduler.params.warmup_min_ratio", "", {}, MapRatio},
    {"scheduler.params.cos_min_ratio", "", {}, MapRatio},
    {"scheduler.params.warmup_num_steps", "", {}, MapWarmup},
    {"scheduler.params.total_num_steps", "", {}, MapTotal},
    {"scheduler.params.warmup_type", "the warm-up is linear", "linear|"},
    {"scheduler.params.last_batch_iteration", "a resumed job goes on where it was"},
    {"activation_checkpointing.cpu_checkpointing", "", {}, MapCpuCheckpointing},
    {"activation_checkpointing.partition_activations", "there are no ranks to share them with",
     "false|"},
    {"activation_checkpointing.*", "train.fsdp.activation_checkpointing says what is kept"},
    {"steps_per_print", "", {}, MapSteps},
    {"wall_clock_breakdown", kFigures},
    {"memory_breakdown", "memory.json has it"},
    {"dump_state", kFigures},
    {"flops_profiler.*", kFigures},
    {"comms_logger.*", kFigures},
    {"tensorboard.*", kFigures},
    {"wandb.*", kFigures},
    {"comet.*", kFigures},
    {"csv_monitor.*", kFigures},
    {"compile.*", "nothing is compiled; products and kernels are fixed"},
    {"data_types.*", "weights and buffers have train.fsdp.mixed_precision and buffer_dtype",
     "auto||fp32"},
    {"seq_parallel_communication_data_type", "there is no sequence parallelism"},
    {"disable_allgather", kSchedule},
    {"disable_python_gc", "there is no Python"},
    {"expert_parallel.*", "there are no mixtures of experts", "|null"},
    {"gradient_allreduce_op", "gradients are averaged over the tokens of the step", "avg|mean|"},
    {"legacy_fusion", "there is one implementation"},
    {"optimizer.legacy_fusion", "there is one implementation"},
    {"log_level", kFigures},
    {"timers.*", kFigures},
    {"managed_gradient_accumulation", "a step accumulates train.batch.accumulation micro-batches",
     "true|"},
    {"torch_autocast.enabled", "use bf16 or fp16", "false|"},
    {"torch_autocast.*", "autocast is not enabled"},
    {"lower_precision_safe_modules", "autocast is not enabled"},
    {"use_data_before_expert_parallelism", "there are no mixtures of experts"},
    {"vocabulary_size", "the model's config.json has it"},
    {"weight_quantization.*", "weights are not quantised while the model is trained whole",
     "|null"},
    {"datastates.*", "checkpoints are written beside the training"},
    {"zero_allow_untested_optimizer", "AdamW is the optimizer there is"},
    {"zero_force_ds_cpu_optimizer", "offloaded state is updated on the host"},
    {"aio.*", "state is not kept on disks"},
    {"checkpoint.*", "checkpoints are sharded and fit any number of ranks"},
    {"dataloader_drop_last", "the order of rows goes on over epochs, so nothing is left over"},
    {"elasticity.enabled", "use resources.min_nodes", "false|"},
    {"elasticity.*", "elasticity is not enabled"},
    {"autotuning.enabled", "use muster-trainer plan", "false|"},
    {"autotuning.*", "autotuning is not enabled"},
    {"hybrid_engine.enabled", "training does not generate", "false|"},
    {"hybrid_engine.*", "the hybrid engine is not enabled"},
    {"curriculum_learning.enabled", "rows are drawn evenly", "false|"},
    {"curriculum_learning.*", "curriculum learning is not enabled"},
    {"data_efficiency.enabled", "rows are drawn evenly", "false|"},
    {"data_efficiency.*", "data efficiency is not enabled"},
    {"sparse_attention.*", "attention is dense", "|null"},
    {"compression_training.*", "compression is not supported", "|null"},
    {"quantize_training.*", "quantised training is not supported", "|null"},
    {"tensor_parallel.*", "tensor parallelism is not supported", "|null"},
    {"pipeline.*", "pipeline parallelism is not supported", "|null"},
};

// Where what is absent means something else there than in a job. DeepSpeed's "Configuration JSON"
// page, and the signatures of its Adam and of its schedules.
struct AbsentKey {
  std::string_view key;
  std::string_view beside;  // counts only where this key is there; "": always
  std::string_view means;
  std::string_view job_key;
  std::string_view value;
  std::string_view unless;
};
constexpr AbsentKey kAbsent[] = {
    {kBf16, "", "fp32", "train.fsdp.mixed_precision", "fp32", ""},
    {"gradient_clipping", "", "no clipping", "train.optimizer.grad_clip", "0", ""},
    {"optimizer.params.betas", "optimizer.type", "[0.9, 0.999]", "train.optimizer.betas",
     "[0.9, 0.999]", ""},
    {"optimizer.params.weight_decay", "optimizer.type", "no decay", "train.optimizer.weight_decay",
     "0", ""},
    {"scheduler.type", "", "a constant rate", "train.schedule.kind", "constant", ""},
    {"scheduler.params.warmup_num_steps", "scheduler.type", "1000 steps",
     "train.schedule.warmup_steps", "1000", "train.schedule.warmup_ratio"},
};

std::vector<ForeignDefault> DefaultsOf(const ForeignReader& reader) {
  std::vector<ForeignDefault> defaults;
  for (const AbsentKey& each : kAbsent) {
    if (reader.Has(each.key) || (!each.beside.empty() && !reader.Has(each.beside))) continue;
    defaults.push_back({.key = std::string(each.key),
                        .means = std::string(each.means),
                        .job_key = std::string(each.job_key),
                        .value = std::string(each.value),
                        .unless = std::string(each.unless)});
  }
  return defaults;
}

}  // namespace

std::span<const ForeignRule> DeepSpeedRules() { return kRules; }

Result<ForeignConfig> ReadDeepSpeed(std::string_view text, std::string_view file, bool examines) {
  ForeignReader reader(file);
  MUSTER_ASSIGN_OR_RETURN(ForeignConfig config, reader.Read(text, kRules, examines));
  config.defaults = DefaultsOf(reader);
  return config;
}

Result<ForeignConfig> ParseDeepSpeedConfig(std::string_view json, std::string_view file) {
  return ReadDeepSpeed(json, file, /*examines=*/false);
}

}  // namespace muster
