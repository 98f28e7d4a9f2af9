// The sharded engine, its ranks as threads, against the plain reference.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <string>

#include "tests/parity/gang_run.h"
#include "tests/parity/reference.h"
#include "trainer/model/adapters.h"

namespace muster::parity {
namespace {

ReferenceTrainer MakeReference(const GangOptions& options, at::ScalarType type) {
  const std::optional<LoraSpec>& lora = options.model.lora;
  return {TestConfig(options.model),   WeightsAsTrained(options.model), TestOptimizer(), type,
          TrainedNames(options.model), lora ? LoraScale(*lora) : 1};
}

std::vector<ReferenceNumbers> ReferenceRun(const GangOptions& options, at::ScalarType type) {
  const ModelConfig config = TestConfig(options.model);
  ReferenceTrainer reference = MakeReference(options, type);
  std::vector<ReferenceNumbers> numbers;
  for (int step = 0; step < options.steps; ++step) {
    numbers.push_back(reference.Step(AllBatches(config, step, options.world_size), kLr));
  }
  return numbers;
}

std::vector<UnitTensor> TensorsOf(const FlatLayout& layout) {
  std::vector<UnitTensor> tensors;
  for (const FlatUnit& unit : layout.units()) {
    for (const FlatTensor& tensor : unit.tensors) tensors.push_back(tensor.spec);
  }
  return tensors;
}

// What sets one way of sharding apart from another.
struct Way {
  std::string name;
  int world_size = 1;
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int ranks_per_node = 1;
  bool shares_memory = true;
  bool tied = false;
  int blocks = 3;
  int blocks_per_unit = 1;
  bool reduce_every_micro_batch = true;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  Family family = Family::kLlama;
  std::optional<LoraSpec> lora = {};
  std::optional<QuantizationSpec> quantization = {};

  GangOptions Run(MixedPrecision precision, int steps) const {
    return {.world_size = world_size,
            .steps = steps,
            .model = {.tied = tied,
                      .blocks = blocks,
                      .family = family,
                      .lora = lora,
                      .quantization = quantization},
            .fsdp = {.strategy = strategy,
                     .blocks_per_unit = blocks_per_unit,
                     .mixed_precision = precision,
                     .activation_checkpointing = checkpointing,
                     .reduce_every_micro_batch = reduce_every_micro_batch},
            .ranks_per_node = ranks_per_node,
            .shares_memory = shares_memory};
  }
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

std::vector<Way> Ways() {
  using enum ShardingStrategy;
  std::vector<Way> ways;
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    const std::string size = std::to_string(world);
    ways.push_back({.name = "full_" + size, .world_size = world});
    if (world == 1) continue;
    ways.push_back({.name = "full_sockets_" + size, .world_size = world, .shares_memory = false});
    ways.push_back({.name = "grad_op_" + size,
                    .world_size = world,
                    .strategy = kShardGradOp,
                    .shares_memory = false});
    ways.push_back({.name = "replicas_" + size, .world_size = world, .strategy = kNoShard});
  }
  for (const bool shares : {true, false}) {
    const std::string how = shares ? "" : "sockets_";
    ways.push_back({.name = "hybrid_" + how + "4",
                    .world_size = 4,
                    .strategy = kHybridShard,
                    .ranks_per_node = 2,
                    .shares_memory = shares});
    ways.push_back({.name = "hybrid_zero2_" + how + "6",
                    .world_size = 6,
                    .strategy = kHybridShardZero2,
                    .ranks_per_node = 3,
                    .shares_memory = shares});
    ways.push_back(
        {.name = "tied_" + how + "3", .world_size = 3, .shares_memory = shares, .tied = true});
    ways.push_back({.name = "once_per_step_" + how + "3",
                    .world_size = 3,
                    .shares_memory = shares,
                    .reduce_every_micro_batch = false});
    ways.push_back({.name = "two_blocks_" + how + "2",
                    .world_size = 2,
                    .shares_memory = shares,
                    .blocks = 5,
                    .blocks_per_unit = 2});
    ways.push_back({.name = "full_recompute_" + how + "2",
                    .world_size = 2,
                    .shares_memory = shares,
                    .checkpointing = ActivationCheckpointing::kFull});
    ways.push_back(
        {.name = "one_block_" + how + "2", .world_size = 2, .shares_memory = shares, .blocks = 1});
    // Most tensors are shorter than a shard's alignment.
    ways.push_back(
        {.name = "many_" + how + "19", .world_size = 19, .shares_memory = shares, .blocks = 2});
  }
  ways.push_back({.name = "tied_1", .tied = true});
  ways.push_back({.name = "tied_replicas_2", .world_size = 2, .strategy = kNoShard, .tied = true});
  ways.push_back({.name = "all_blocks_2", .world_size = 2, .blocks = 4, .blocks_per_unit = 9});
  ways.push_back({.name = "selective_1", .checkpointing = ActivationCheckpointing::kSelective});
  return ways;
}

LoraSpec Lora(std::vector<std::string> targets, std::vector<std::string> whole = {},
              LoraBias bias = LoraBias::kNone) {
  LoraSpec lora;
  lora.r = 4;
  lora.alpha = 6;
  lora.bias = bias;
  lora.target_modules = std::move(targets);
  lora.modules_to_save = std::move(whole);
  return lora;
}

// Models with experts, under every strategy and level.
std::vector<Way> Mixtures() {
  using enum ShardingStrategy;
  std::vector<Way> ways;
  for (const auto& [family, name] :
       {std::pair(Family::kQwen2Moe, "qwen2_moe"), std::pair(Family::kQwen3Moe, "qwen3_moe"),
        std::pair(Family::kOlmoe, "olmoe"), std::pair(Family::kMixtral, "mixtral"),
        std::pair(Family::kGptOss, "gpt_oss")}) {
    const std::string of(name);
    ways.push_back({.name = of, .family = family});
    ways.push_back({.name = of + "_sockets_3",
                    .world_size = 3,
                    .shares_memory = false,
                    .blocks = 4,
                    .checkpointing = ActivationCheckpointing::kSelective,
                    .family = family});
    ways.push_back({.name = of + "_full_2",
                    .world_size = 2,
                    .shares_memory = false,
                    .blocks = 4,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = family});
    ways.push_back({.name = of + "_lora_2",
                    .world_size = 2,
                    .shares_memory = false,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = family,
                    .lora = Lora({"q_proj", "v_proj", "o_proj"})});
  }
  const Family family = Family::kQwen3Moe;
  ways.push_back({.name = "qwen3_moe_full_1",
                  .checkpointing = ActivationCheckpointing::kFull,
                  .family = family});
  ways.push_back({.name = "qwen3_moe_grad_op_2",
                  .world_size = 2,
                  .strategy = kShardGradOp,
                  .shares_memory = false,
                  .family = family});
  ways.push_back(
      {.name = "qwen3_moe_replicas_2", .world_size = 2, .strategy = kNoShard, .family = family});
  ways.push_back({.name = "qwen3_moe_hybrid_4",
                  .world_size = 4,
                  .strategy = kHybridShard,
                  .ranks_per_node = 2,
                  .family = family});
  ways.push_back({.name = "qwen3_moe_once_per_step_3",
                  .world_size = 3,
                  .shares_memory = false,
                  .tied = true,
                  .reduce_every_micro_batch = false,
                  .family = family});
  ways.push_back({.name = "qwen3_moe_lora_1", .family = family, .lora = Lora({"k_proj"})});
  return ways;
}

// On the expert that all tokens have, and on dense layers beside sparse ones.
void AddSharedExperts(std::vector<Way>* ways) {
  const Family family = Family::kQwen2Moe;
  ways->push_back({.name = "qwen2_moe_lora_all_2",
                   .world_size = 2,
                   .shares_memory = false,
                   .checkpointing = ActivationCheckpointing::kFull,
                   .family = family,
                   .lora = Lora(kAllLinear)});
  ways->push_back({.name = "qwen2_moe_qlora_all_1",
                   .checkpointing = ActivationCheckpointing::kSelective,
                   .family = family,
                   .lora = Lora(kAllLinear),
                   .quantization = QuantizationSpec{}});
  ways->push_back({.name = "qwen2_moe_lora_some_1",
                   .family = family,
                   .lora = Lora({"down_proj", "shared_expert.up_proj", "mlp.experts.down_proj"})});
}

// The same with adapters on experts, which are whole or in NF4.
std::vector<Way> AdaptedMixtures() {
  std::vector<Way> ways;
  AddSharedExperts(&ways);
  const LoraSpec on_experts = Lora({"o_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
  for (const auto& [each, name] :
       {std::pair(Family::kQwen3Moe, "qwen3_moe"), std::pair(Family::kMixtral, "mixtral"),
        std::pair(Family::kGptOss, "gpt_oss")}) {
    const std::string of(name);
    ways.push_back({.name = of + "_lora_experts_1", .family = each, .lora = on_experts});
    ways.push_back({.name = of + "_lora_experts_3",
                    .world_size = 3,
                    .shares_memory = false,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = each,
                    .lora = on_experts});
  }
  for (const bool twice : {false, true}) {
    const std::string kind = twice ? "_double" : "";
    ways.push_back({.name = "qwen3_moe_qlora_1" + kind,
                    .family = Family::kQwen3Moe,
                    .lora = on_experts,
                    .quantization = QuantizationSpec{.double_quant = twice}});
    ways.push_back({.name = "mixtral_qlora_3" + kind,
                    .world_size = 3,
                    .shares_memory = false,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = Family::kMixtral,
                    .lora = Lora({"v_proj"}),
                    .quantization = QuantizationSpec{.double_quant = twice}});
  }
  ways.push_back({.name = "qwen2_moe_qlora_2",
                  .world_size = 2,
                  .shares_memory = false,
                  .family = Family::kQwen2Moe,
                  .lora = on_experts,
                  .quantization = QuantizationSpec{}});
  ways.push_back({.name = "gpt_oss_qlora_2",
                  .world_size = 2,
                  .shares_memory = false,
                  .family = Family::kGptOss,
                  .lora = on_experts,
                  .quantization = QuantizationSpec{.double_quant = true}});
  ways.push_back({.name = "olmoe_lora_down_2",
                  .world_size = 2,
                  .reduce_every_micro_batch = false,
                  .family = Family::kOlmoe,
                  .lora = Lora({"mlp.experts.down_proj"}, {"lm_head"})});
  return ways;
}

// Every family, and adapters under every strategy.
std::vector<Way> Models() {
  using enum ShardingStrategy;
  std::vector<Way> ways;
  for (const auto& [family, name] :
       {std::pair(Family::kMistral, "mistral"), std::pair(Family::kQwen2, "qwen2"),
        std::pair(Family::kQwen3, "qwen3"), std::pair(Family::kSmolLm3, "smollm3"),
        std::pair(Family::kOlmo2, "olmo2"), std::pair(Family::kGranite, "granite"),
        std::pair(Family::kPhi3, "phi3"), std::pair(Family::kGemma2, "gemma2"),
        std::pair(Family::kGemma3, "gemma3")}) {
    ways.push_back({.name = name, .family = family});
    ways.push_back({.name = std::string(name) + "_sockets_3",
                    .world_size = 3,
                    .shares_memory = false,
                    .checkpointing = ActivationCheckpointing::kSelective,
                    .family = family});
    ways.push_back({.name = std::string(name) + "_lora_2",
                    .world_size = 2,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = family,
                    .lora = Lora(kAllLinear)});
  }
  const LoraSpec some = Lora({"q_proj", "v_proj", "down_proj"});
  // What a window of one token, caps and tied embeddings meet under each strategy.
  for (const auto& [family, name] :
       {std::pair(Family::kGemma2, "gemma2"), std::pair(Family::kGemma3, "gemma3")}) {
    const std::string of(name);
    ways.push_back({.name = of + "_tied_grad_op_2",
                    .world_size = 2,
                    .strategy = kShardGradOp,
                    .shares_memory = false,
                    .tied = true,
                    .family = family});
    ways.push_back({.name = of + "_tied_hybrid_4",
                    .world_size = 4,
                    .strategy = kHybridShard,
                    .ranks_per_node = 2,
                    .tied = true,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = family});
    ways.push_back({.name = of + "_tied_replicas_2",
                    .world_size = 2,
                    .strategy = kNoShard,
                    .tied = true,
                    .reduce_every_micro_batch = false,
                    .family = family});
    ways.push_back({.name = of + "_qlora_3",
                    .world_size = 3,
                    .shares_memory = false,
                    .tied = true,
                    .blocks = 4,
                    .blocks_per_unit = 2,
                    .checkpointing = ActivationCheckpointing::kSelective,
                    .family = family,
                    .lora = Lora(kAllLinear),
                    .quantization = QuantizationSpec{}});
  }
  ways.push_back({.name = "lora_1", .lora = some});
  ways.push_back({.name = "qlora_1", .lora = some, .quantization = QuantizationSpec{}});
  ways.push_back({.name = "lora_tied_3", .world_size = 3, .tied = true, .lora = some});
  ways.push_back({.name = "lora_replicas_2", .world_size = 2, .strategy = kNoShard, .lora = some});
  for (const bool shares : {true, false}) {
    const std::string how = shares ? "" : "sockets_";
    ways.push_back({.name = "lora_full_" + how + "5",
                    .world_size = 5,
                    .shares_memory = shares,
                    .lora = Lora(kAllLinear)});
    ways.push_back({.name = "lora_units_" + how + "2",
                    .world_size = 2,
                    .shares_memory = shares,
                    .blocks = 5,
                    .blocks_per_unit = 2,
                    .reduce_every_micro_batch = false,
                    .lora = some});
    ways.push_back({.name = "lora_hybrid_" + how + "4",
                    .world_size = 4,
                    .strategy = kHybridShard,
                    .ranks_per_node = 2,
                    .shares_memory = shares,
                    .lora = some});
    ways.push_back({.name = "lora_grad_op_" + how + "2",
                    .world_size = 2,
                    .strategy = kShardGradOp,
                    .shares_memory = shares,
                    .lora = some});
    ways.push_back({.name = "lora_whole_" + how + "2",
                    .world_size = 2,
                    .shares_memory = shares,
                    .lora = Lora({"o_proj"}, {"embed_tokens", "lm_head", "norm"})});
    ways.push_back({.name = "lora_whole_tied_" + how + "2",
                    .world_size = 2,
                    .shares_memory = shares,
                    .tied = true,
                    .lora = Lora({"gate_proj"}, {"embed_tokens", "input_layernorm"})});
    for (const bool twice : {false, true}) {
      const std::string kind = twice ? "qlora_double_" : "qlora_";
      ways.push_back({.name = kind + how + "3",
                      .world_size = 3,
                      .shares_memory = shares,
                      .checkpointing = ActivationCheckpointing::kSelective,
                      .lora = Lora(kAllLinear),
                      .quantization = QuantizationSpec{.double_quant = twice}});
    }
    ways.push_back({.name = "qlora_hybrid_" + how + "4",
                    .world_size = 4,
                    .strategy = kHybridShardZero2,
                    .ranks_per_node = 2,
                    .shares_memory = shares,
                    .family = Family::kQwen2,
                    .lora = some,
                    .quantization = QuantizationSpec{}});
    ways.push_back({.name = "lora_bias_" + how + "2",
                    .world_size = 2,
                    .shares_memory = shares,
                    .family = Family::kQwen2,
                    .lora = Lora({"up_proj"}, {}, LoraBias::kAll)});
  }
  for (const auto& [family, name] :
       {std::pair(Family::kGranite, "granite"), std::pair(Family::kPhi3, "phi3")}) {
    const std::string of(name);
    ways.push_back({.name = of + "_tied_hybrid_4",
                    .world_size = 4,
                    .strategy = kHybridShard,
                    .ranks_per_node = 2,
                    .tied = true,
                    .family = family});
    ways.push_back({.name = of + "_grad_op_units_2",
                    .world_size = 2,
                    .strategy = kShardGradOp,
                    .shares_memory = false,
                    .blocks = 5,
                    .blocks_per_unit = 2,
                    .reduce_every_micro_batch = false,
                    .family = family});
    ways.push_back({.name = of + "_replicas_full_3",
                    .world_size = 3,
                    .strategy = kNoShard,
                    .checkpointing = ActivationCheckpointing::kFull,
                    .family = family});
    ways.push_back({.name = of + "_qlora_3",
                    .world_size = 3,
                    .checkpointing = ActivationCheckpointing::kSelective,
                    .family = family,
                    .lora = Lora(kAllLinear),
                    .quantization = QuantizationSpec{.double_quant = true}});
  }
  ways.push_back({.name = "phi3_some_lora_2",
                  .world_size = 2,
                  .shares_memory = false,
                  .family = Family::kPhi3,
                  .lora = Lora({"qkv_proj", "down_proj"}, {"embed_tokens"})});
  return ways;
}

class Parity : public testing::TestWithParam<Way> {};

TEST_P(Parity, Fp64StaysWithTheReference) {
  const GangOptions options = GetParam().Run(MixedPrecision::kFp64, 8);
  const std::vector<ReferenceNumbers> want = ReferenceRun(options, at::kDouble);
  for (const RankRun& run : RunGang(options)) {
    for (int step = 0; step < options.steps; ++step) {
      EXPECT_LE(Relative(run.numbers[step].loss, want[step].loss), 1e-10) << "step " << step;
      EXPECT_LE(Relative(run.numbers[step].grad_norm, want[step].grad_norm), 1e-10);
    }
  }
}

TEST_P(Parity, EvaluationsAreTheReferences) {
  GangOptions options = GetParam().Run(MixedPrecision::kFp64, 2);
  options.evaluates = true;
  const ModelConfig config = TestConfig(options.model);
  ReferenceTrainer reference = MakeReference(options, at::kDouble);
  const std::vector<RankRun> runs = RunGang(options);
  for (int step = 0; step <= options.steps; ++step) {
    if (step > 0) reference.Step(AllBatches(config, step - 1, options.world_size), kLr);
    const ReferenceEvaluation want = reference.Evaluate(EvaluationBatches(config));
    std::vector<std::int32_t> tokens;
    for (const auto& text : EvaluationTexts())
      tokens.push_back(static_cast<std::int32_t>(reference.NextToken(text)));
    for (const RankRun& run : runs) {
      ASSERT_EQ(run.evaluations.size(), 3u);
      EXPECT_LE(Relative(run.evaluations[step].loss, want.loss), 1e-10) << "step " << step;
      EXPECT_EQ(run.evaluations[step].labels, want.labels);
      EXPECT_EQ(run.evaluations[step].correct, want.correct);
      EXPECT_EQ(run.next_tokens[step], tokens);
    }
  }
}

TEST_P(Parity, Fp32IsWithinItsRounding) {
  const GangOptions options = GetParam().Run(MixedPrecision::kFp32, 3);
  const std::vector<ReferenceNumbers> want = ReferenceRun(options, at::kDouble);
  for (const RankRun& run : RunGang(options)) {
    EXPECT_LE(Relative(run.numbers[0].loss, want[0].loss), 1e-6);
    for (int step = 0; step < options.steps; ++step) {
      EXPECT_LE(Relative(run.numbers[step].loss, want[step].loss), 1e-5) << "step " << step;
      EXPECT_LE(Relative(run.numbers[step].grad_norm, want[step].grad_norm), 1e-4);
    }
  }
}

TEST_P(Parity, ExportedWeightsAreTheReferences) {
  const GangOptions options = GetParam().Run(MixedPrecision::kFp64, 3);
  const ModelConfig config = TestConfig(options.model);
  ReferenceTrainer reference = MakeReference(options, at::kDouble);
  for (int step = 0; step < options.steps; ++step) {
    reference.Step(AllBatches(config, step, options.world_size), kLr);
  }
  const std::vector<RankRun> runs = RunGang(options);
  const float* next = runs[0].exported.data();
  const FlatLayout layout(SplitModel(config, 1, options.model.lora).trained, 1);
  ASSERT_EQ(static_cast<std::int64_t>(runs[0].exported.size()), layout.parameter_count());
  for (const UnitTensor& tensor : TensorsOf(layout)) {
    const at::Tensor want = reference.weights().at(tensor.name).detach().to(at::kFloat);
    EXPECT_EQ(std::memcmp(next, want.contiguous().data_ptr(), want.nbytes()) == 0 ||
                  ((at::from_blob(const_cast<float*>(next), tensor.shape) - want).abs().max() /
                   want.abs().max())
                          .item<double>() < 2e-7,
              true)
        << tensor.name;
    next += want.numel();
  }
  for (std::size_t r = 1; r < runs.size(); ++r) EXPECT_TRUE(runs[r].exported.empty());
}

INSTANTIATE_TEST_SUITE_P(Ways, Parity, testing::ValuesIn(Ways()),
                         [](const auto& info) { return info.param.name; });

// Against the reference, which has every document in a row of its own: nothing leaks from one to
// the next, in forward or backward, nor where blocks are computed twice.
TEST(Packed, DocumentsTrainAsInRowsOfTheirOwn) {
  for (const auto checkpointing :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kFull}) {
    GangOptions options =
        Way{.world_size = 2, .checkpointing = checkpointing}.Run(MixedPrecision::kFp64, 3);
    options.packed = true;
    const std::vector<ReferenceNumbers> want = ReferenceRun(options, at::kDouble);
    for (const RankRun& run : RunGang(options)) {
      for (int step = 0; step < options.steps; ++step) {
        EXPECT_LE(Relative(run.numbers[step].loss, want[step].loss), 1e-10) << "step " << step;
        EXPECT_LE(Relative(run.numbers[step].grad_norm, want[step].grad_norm), 1e-9);
      }
    }
  }
}

TEST(Packed, InFp32DocumentsStayWithinItsRounding) {
  GangOptions options = Way{.world_size = 2}.Run(MixedPrecision::kFp32, 3);
  options.packed = true;
  const std::vector<ReferenceNumbers> want = ReferenceRun(options, at::kDouble);
  const std::vector<RankRun> runs = RunGang(options);
  for (int step = 0; step < options.steps; ++step) {
    EXPECT_LE(Relative(runs[0].numbers[step].loss, want[step].loss), 1e-5) << "step " << step;
    EXPECT_LE(Relative(runs[0].numbers[step].grad_norm, want[step].grad_norm), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Mixtures, Parity, testing::ValuesIn(Mixtures()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(AdaptedMixtures, Parity, testing::ValuesIn(AdaptedMixtures()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(Models()),
                         [](const auto& info) { return info.param.name; });

TEST(LongRun, FiftyFp64StepsStayWithTheReference) {
  const GangOptions options = Way{.world_size = 3}.Run(MixedPrecision::kFp64, 50);
  const std::vector<ReferenceNumbers> want = ReferenceRun(options, at::kDouble);
  const std::vector<RankRun> runs = RunGang(options);
  for (int step = 0; step < options.steps; ++step) {
    EXPECT_LE(Relative(runs[0].numbers[step].loss, want[step].loss), 1e-9) << "step " << step;
  }
}

TEST(LongRun, FiftyFp32StepsStayWithinTheirRounding) {
  const GangOptions options = Way{.world_size = 2}.Run(MixedPrecision::kFp32, 50);
  const std::vector<ReferenceNumbers> want = ReferenceRun(options, at::kDouble);
  const std::vector<RankRun> runs = RunGang(options);
  for (int step = 0; step < options.steps; ++step) {
    const double tolerance = step == 0 ? 1e-6 : step < 20 ? 1e-5 : 1e-4;
    EXPECT_LE(Relative(runs[0].numbers[step].loss, want[step].loss), tolerance) << "step " << step;
  }
}

// Types that round: held against what they should be near to, not against themselves.
struct Rounding {
  std::string name;
  FsdpSpec fsdp;
  StateType master_weights = StateType::kAuto;
  StateType moments = StateType::kAuto;
  double loss = 0.02;  // relative distance to fp64
};

void PrintTo(const Rounding& rounding, std::ostream* out) { *out << rounding.name; }

class Rounded : public testing::TestWithParam<Rounding> {};

TEST_P(Rounded, StaysCloseToFp64) {
  for (const int world_size : {1, 2}) {
    GangOptions options{.world_size = world_size, .steps = 20, .fsdp = GetParam().fsdp};
    options.optimizer.master_weights = GetParam().master_weights;
    options.optimizer.moments = GetParam().moments;
    options.loss_scale = 64;
    const std::vector<RankRun> got = RunGang(options);
    options.fsdp = {.mixed_precision = MixedPrecision::kFp64};
    options.optimizer = TestOptimizer();
    const std::vector<RankRun> exact = RunGang(options);
    for (int step = 0; step < options.steps; ++step) {
      EXPECT_LE(Relative(got[0].numbers[step].loss, exact[0].numbers[step].loss), GetParam().loss);
      EXPECT_FALSE(got[0].numbers[step].overflow);
    }
    EXPECT_NE(got[0].numbers[0].loss, exact[0].numbers[0].loss);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, Rounded,
    testing::Values(
        Rounding{.name = "bf16", .fsdp = {.mixed_precision = MixedPrecision::kBf16}},
        Rounding{.name = "fp16", .fsdp = {.mixed_precision = MixedPrecision::kFp16}, .loss = 0.005},
        Rounding{
            .name = "bf16_reduced_in_bf16",
            .fsdp = {.mixed_precision = MixedPrecision::kBf16, .reduce_dtype = StateType::kBf16}},
        Rounding{
            .name = "bf16_rotary_table",
            .fsdp = {.mixed_precision = MixedPrecision::kFp32, .buffer_dtype = StateType::kBf16}},
        Rounding{
            .name = "bf16_state",
            .fsdp = {.mixed_precision = MixedPrecision::kBf16, .reduce_dtype = StateType::kBf16},
            .master_weights = StateType::kBf16,
            .moments = StateType::kBf16,
            .loss = 0.04},
        Rounding{.name = "bf16_moments",
                 .fsdp = {.mixed_precision = MixedPrecision::kFp32},
                 .moments = StateType::kBf16}),
    [](const auto& info) { return info.param.name; });

// World size, whether the ranks share memory, and precision.
class Bits : public testing::TestWithParam<std::tuple<int, bool, MixedPrecision>> {
 protected:
  GangOptions Options(int steps) const {
    const auto [world_size, shares, precision] = GetParam();
    return {.world_size = world_size,
            .steps = steps,
            .fsdp = {.mixed_precision = precision},
            .shares_memory = shares};
  }
};

TEST_P(Bits, TwoRunsAreEqual) {
  const std::vector<RankRun> first = RunGang(Options(4));
  const std::vector<RankRun> second = RunGang(Options(4));
  for (std::size_t r = 0; r < first.size(); ++r) {
    EXPECT_TRUE(first[r].arrays == second[r].arrays);
    EXPECT_EQ(Losses(first[r]), Losses(second[r]));
  }
}

TEST_P(Bits, SharedMemoryChangesNothing) {
  GangOptions options = Options(4);
  const std::vector<RankRun> one = RunGang(options);
  options.shares_memory = !options.shares_memory;
  const std::vector<RankRun> other = RunGang(options);
  for (std::size_t r = 0; r < one.size(); ++r) EXPECT_TRUE(one[r].arrays == other[r].arrays);
}

TEST_P(Bits, ResumedEqualsUndisturbed) {
  const std::vector<RankRun> whole = RunGang(Options(6));
  const std::vector<RankRun> before = RunGang(Options(3));
  GangOptions rest = Options(3);
  rest.first_step = 3;
  rest.resume_from = &before;
  const std::vector<RankRun> after = RunGang(rest);
  ExpectResumedAlike(whole, after, rest.first_step);
  EXPECT_FALSE(before[0].arrays == after[0].arrays);
}

TEST_P(Bits, AStepThatLostItsGangLeavesNoTrace) {
  GangOptions broken = Options(4);
  if (broken.world_size == 1) return;  // nobody to lose
  broken.broken_step = 2;
  const std::vector<RankRun> whole = RunGang(Options(4));
  const std::vector<RankRun> again = RunGang(broken);
  for (std::size_t r = 0; r < whole.size(); ++r) {
    EXPECT_TRUE(whole[r].arrays == again[r].arrays);
    EXPECT_EQ(Losses(whole[r]), Losses(again[r]));
  }
}

// What is computed again is computed alike.
TEST_P(Bits, RecomputationChangesNothing) {
  const std::vector<RankRun> kept = RunGang(Options(3));
  for (const ActivationCheckpointing level :
       {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull,
        ActivationCheckpointing::kFullOffload}) {
    GangOptions options = Options(3);
    options.fsdp.activation_checkpointing = level;
    const std::vector<RankRun> again = RunGang(options);
    for (std::size_t r = 0; r < kept.size(); ++r) EXPECT_TRUE(kept[r].arrays == again[r].arrays);
  }
}

std::string BitsName(const testing::TestParamInfo<Bits::ParamType>& info) {
  const auto [world_size, shares, precision] = info.param;
  return std::to_string(world_size) + (shares ? "_shared_" : "_sockets_") +
         (precision == MixedPrecision::kBf16 ? "bf16" : "fp32");
}

INSTANTIATE_TEST_SUITE_P(Worlds, Bits,
                         testing::Combine(testing::Values(1, 2, 3), testing::Bool(),
                                          testing::Values(MixedPrecision::kFp32,
                                                          MixedPrecision::kBf16)),
                         BitsName);

struct OffloadCase {
  std::string name;
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int world_size = 1;
  bool once_per_step = false;  // gradients are reduced
};

void PrintTo(const OffloadCase& each, std::ostream* out) { *out << each.name; }

std::vector<OffloadCase> OffloadCases() {
  using enum ShardingStrategy;
  return {{"full_1", kFullShard, 1},       {"full_2", kFullShard, 2},
          {"once_3", kFullShard, 3, true}, {"grad_op_2", kShardGradOp, 2},
          {"hybrid_4", kHybridShard, 4},   {"replicas_2", kNoShard, 2}};
}

class Offload : public testing::TestWithParam<OffloadCase> {};

TEST_P(Offload, ChangesNoBit) {
  const auto& [name, strategy, world_size, once] = GetParam();
  GangOptions options{.world_size = world_size,
                      .steps = 4,
                      .fsdp = {.strategy = strategy,
                               .mixed_precision = MixedPrecision::kBf16,
                               .reduce_every_micro_batch = !once},
                      .ranks_per_node = 2,
                      .shares_memory = false};
  const std::vector<RankRun> on_device = RunGang(options);
  options.apart_from_host = true;
  options.fsdp.cpu_offload = true;
  options.fsdp.activation_checkpointing = ActivationCheckpointing::kFullOffload;
  const std::vector<RankRun> offloaded = RunGang(options);
  for (std::size_t r = 0; r < on_device.size(); ++r) {
    EXPECT_EQ(Losses(on_device[r]), Losses(offloaded[r]));
    if (strategy != ShardingStrategy::kNoShard && strategy != ShardingStrategy::kHybridShard) {
      EXPECT_TRUE(on_device[r].arrays == offloaded[r].arrays);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Offload, testing::ValuesIn(OffloadCases()),
                         [](const auto& info) { return info.param.name; });

// How often the reference's routers choose each expert, one sparse layer behind the other.
std::vector<double> ChoicesOfTheReference(const GangOptions& options) {
  const ModelConfig config = TestConfig(options.model);
  const ReferenceTrainer reference = MakeReference(options, at::kDouble);
  std::vector<double> counts(
      static_cast<std::size_t>(config.SparseLayers() * config.experts->count));
  for (const MicroBatch& batch : AllBatches(config, 0, options.world_size)) {
    ReferenceTrainer::Gates gates;
    reference.Logits(at::tensor(batch.input_ids, at::kLong).view({batch.rows, batch.length}),
                     &gates);
    const at::Tensor all = at::stack(gates.chosen).sum(1).flatten();
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] += all[static_cast<std::int64_t>(i)].item<double>();
  }
  return counts;
}

TEST(ExpertChoices, AreThoseOfAllRanksAndOfNoRecomputation) {
  for (const Family family : {Family::kQwen3Moe, Family::kOlmoe}) {
    for (const int world : {1, 3}) {
      for (const auto level : {ActivationCheckpointing::kNone, ActivationCheckpointing::kFull}) {
        GangOptions options{
            .world_size = world,
            .steps = 1,
            .fsdp = {.mixed_precision = MixedPrecision::kFp64, .activation_checkpointing = level}};
        options.model.family = family;
        for (const RankRun& run : RunGang(options))
          EXPECT_EQ(run.numbers[0].expert_choices, ChoicesOfTheReference(options)) << world;
      }
    }
  }
  EXPECT_TRUE(RunGang({.steps = 1})[0].numbers[0].expert_choices.empty());
}

TEST(LossScale, AnOverflowLeavesTheWeightsAndHalvesTheScale) {
  GangOptions options{.world_size = 2,
                      .steps = 0,
                      .fsdp = {.mixed_precision = MixedPrecision::kFp16},
                      .loss_scale = 0x1p24};
  const std::vector<RankRun> before = RunGang(options);
  options.steps = 1;
  const std::vector<RankRun> after = RunGang(options);
  EXPECT_TRUE(after[0].numbers[0].overflow);
  EXPECT_TRUE(after[0].numbers[0].finite());
  EXPECT_TRUE(before[0].arrays == after[0].arrays);
  EXPECT_EQ(after[0].loss_scale, before[0].loss_scale / 2);
}

}  // namespace
}  // namespace muster::parity
