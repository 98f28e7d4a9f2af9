#include "trainer/plan/memory_plan.h"

#include <gtest/gtest.h>

#include "trainer/plan/testing/plan_testing.h"

namespace muster {
namespace {

constexpr double kGB = 1e9;

MemoryPlan Planned(const PlanJob& job) {
  const Result<MemoryPlan> plan = PlanMemory(job);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *plan : MemoryPlan{};
}

double DeviceGB(const MemoryPlan& plan) { return static_cast<double>(plan.device_bytes) / kGB; }

TEST(MemoryPlanTest, EightBillionOverEightGpusKeepTwelveGigabytesOfStateEach) {
  const MemoryPlan plan = Planned(GpuJob(Llama8B(), 1, 8));
  const double state = static_cast<double>(plan.Of("master weights") + plan.Of("moments"));
  EXPECT_NEAR(state / kGB, 12.05, 0.05);
}

TEST(MemoryPlanTest, SeventyBillionNeedSixteenGpusAndMomentsInSixteenBits) {
  PlanJob job = GpuJob(Llama70B(), 1, 8);
  EXPECT_GT(DeviceGB(Planned(job)), 85);
  job.resources.nodes = 2;
  EXPECT_GT(DeviceGB(Planned(job)), 85);
  job.train.optimizer.moments = StateType::kBf16;
  EXPECT_LT(DeviceGB(Planned(job)), 85);
  job.resources.nodes = 1;
  EXPECT_GT(DeviceGB(Planned(job)), 85);
}

TEST(MemoryPlanTest, StrategiesDecideWhatIsSharded) {
  PlanJob job = GpuJob(Llama8B(), 2, 4);
  const auto master = [&job](ShardingStrategy strategy) {
    job.train.fsdp.strategy = strategy;
    return Planned(job).Of("master weights");
  };
  const auto gathered = [&job](ShardingStrategy strategy) {
    job.train.fsdp.strategy = strategy;
    return Planned(job).Of("unsharded parameters");
  };
  const std::int64_t whole = master(ShardingStrategy::kNoShard);
  EXPECT_NEAR(static_cast<double>(whole) / (8.03 * kGB), 4, 0.01);
  EXPECT_EQ(master(ShardingStrategy::kFullShard), whole / 8);
  EXPECT_EQ(master(ShardingStrategy::kHybridShard), whole / 4);
  EXPECT_LT(4 * gathered(ShardingStrategy::kFullShard), gathered(ShardingStrategy::kShardGradOp));
  EXPECT_EQ(gathered(ShardingStrategy::kShardGradOp), whole / 2);
}

// A layer's experts are 1.41 B parameters. 4096 rows a micro-batch go out, and as many come, in
// scratch memory that no other half of a block has a part of.
TEST(MemoryPlanTest, DividedExpertsAreGatheredInPartsAndRowsTakeRoomTwice) {
  PlanJob job = GpuJob(Mixture47B(), 1, 8);
  const MemoryPlan whole = Planned(job);
  job.train.fsdp.expert_parallel = 8;
  const MemoryPlan divided = Planned(job);
  const auto less = [&](const char* part) {
    return static_cast<double>(whole.Of(part) - divided.Of(part)) / kGB;
  };
  EXPECT_NEAR(less("unsharded parameters"), 1.409 * 2 * 7 / 8, 0.01);
  EXPECT_NEAR(less("gradient slots"), (1.409 - 0.525) * 2 * 2, 0.02);
  EXPECT_NEAR(less("master weights"), 0, 0.001);
  const double rows = 4096.0 * 4096 * 2 / kGB;
  EXPECT_GT(-less("activations"), 1.5 * rows);
  EXPECT_LT(-less("activations"), 6 * rows);
}

TEST(MemoryPlanTest, OffloadMovesTheStateToTheHost) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  const MemoryPlan kept = Planned(job);
  job.train.fsdp.cpu_offload = true;
  const MemoryPlan moved = Planned(job);
  EXPECT_LT(moved.device_bytes, kept.device_bytes - kept.Of("gradient sums"));
  // With snapshots the state lies in the slots, which are there anyway.
  EXPECT_EQ(moved.Of("master weights"), 0);
  job.supervised = false;
  EXPECT_GT(Planned(job).host_bytes, 12 * kGB);
}

TEST(MemoryPlanTest, MoreIsComputedAgainLessIsKept) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  std::int64_t before = INT64_MAX;
  for (const ActivationCheckpointing level :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective,
        ActivationCheckpointing::kFull, ActivationCheckpointing::kFullOffload}) {
    job.train.fsdp.activation_checkpointing = level;
    EXPECT_LT(Planned(job).device_bytes, before);
    before = Planned(job).device_bytes;
  }
}

// bitsandbytes: 4.5 bits, and 4.127 with the scales of scales; embedding and head stay as they are.
TEST(MemoryPlanTest, FrozenWeightsTakeFourBitsAndTheirScales) {
  PlanJob job = GpuJob(Llama70B(), 1, 1);
  job.train.lora.emplace();
  const auto frozen = [&job](std::optional<QuantizationSpec> quantization) {
    job.train.quantization = quantization;
    return static_cast<double>(Planned(job).Of("frozen weights"));
  };
  const double ends = 2.0 * 128256 * 8192 * 2;
  const double linear = 80.0 * 855.6e6;
  EXPECT_NEAR(frozen(std::nullopt) / (2 * 70.55e9), 1, 0.001);
  EXPECT_NEAR((frozen(QuantizationSpec{.double_quant = false}) - ends) * 8 / linear, 4.5, 0.01);
  EXPECT_NEAR((frozen(QuantizationSpec{}) - ends) * 8 / linear, 4.127, 0.01);
}

TEST(MemoryPlanTest, AdaptersAreTrainedAndTheRestIsNot) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  job.train.lora.emplace();
  const Result<PlanLayout> layout = LayOutPlan(job);
  ASSERT_TRUE(layout.ok());
  // PEFT prints 41,943,040 for r = 16 on all linear layers of this model.
  EXPECT_EQ(layout->adapter_parameters, 41943040);
  const MemoryPlan plan = Planned(job);
  EXPECT_LT(plan.Of("master weights"), 22e6);
  EXPECT_LT(plan.Of("gradient slots"), 20e6);
  EXPECT_NEAR(static_cast<double>(plan.Of("frozen weights")), 2 * 8.03e9 / 8, 5e6);
}

// Qwen3-30B-A3B.
ModelConfig Mixture() {
  ModelConfig config;
  config.architecture = "Qwen3MoeForCausalLM";
  config.hidden_size = 2048;
  config.intermediate_size = 6144;
  config.num_hidden_layers = 48;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 4;
  config.head_dim = 128;
  config.vocab_size = 151936;
  config.qk_norms = QkNorms::kPerHead;
  config.experts = {.count = 128, .per_token = 8, .intermediate_size = 768};
  return config;
}

TEST(MemoryPlanTest, AdaptersOnExpertsAreTrainedForEachOfThem) {
  PlanJob job = GpuJob(Mixture(), 1, 8);
  job.train.lora.emplace().target_modules = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  const Result<PlanLayout> layout = LayOutPlan(job);
  ASSERT_TRUE(layout.ok());
  const std::int64_t of_layer = 16 * 128 * (2048 + 2 * 768 + 768 + 2048);
  EXPECT_EQ(layout->adapter_parameters, 48 * of_layer);
  EXPECT_EQ(layout->active_adapter_parameters, 48 * of_layer / 16) << "8 of 128 experts";
  // Hidden values and their gradients of 8 rows for each token, and B with its gradient in fp32;
  // adapters on attention keep and compute other hidden values.
  job.train.batch.per_rank = 1;
  job.train.data.max_seq_len = 32;
  PlanJob attention = job;
  attention.train.lora->target_modules = {"q_proj"};
  const std::int64_t b = std::int64_t{128} * 2048 * 16, hidden = std::int64_t{32} * 8 * 16;
  const std::int64_t of_attention = 2 * 32 * 16 * 2;
  EXPECT_EQ(Planned(job).Of("activations") - Planned(attention).Of("activations") + of_attention,
            2 * hidden * 2 + b * (2 + 4));
}

// A layer's experts are 604 M parameters.
TEST(MemoryPlanTest, FrozenExpertsAreGatheredInPartsAndTheirAdaptersWhole) {
  PlanJob job = GpuJob(Mixture(), 1, 8);
  job.train.lora.emplace().target_modules = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  const MemoryPlan whole = Planned(job);
  job.train.fsdp.expert_parallel = 8;
  const MemoryPlan divided = Planned(job);
  EXPECT_NEAR(
      static_cast<double>(whole.Of("unsharded parameters") - divided.Of("unsharded parameters")) /
          kGB,
      0.604 * 2 * 7 / 8, 0.01);
  EXPECT_EQ(whole.Of("gradient slots"), divided.Of("gradient slots"));
  EXPECT_EQ(whole.Of("master weights"), divided.Of("master weights"));
}

// The array of a host's ranks has the experts of all, of which each has pages of its own ones.
TEST(MemoryPlanTest, ARankOfAHostHasPagesOfItsOwnExperts) {
  for (const bool adapters : {false, true}) {
    PlanJob job = GpuJob(Mixture(), 1, 4);
    job.resources.device = "cpu";
    if (adapters) job.train.lora.emplace().target_modules = {"q_proj"};
    const char* const array = adapters ? "frozen weights" : "unsharded parameters";
    const MemoryPlan whole = Planned(job);
    job.train.fsdp.expert_parallel = 4;
    const MemoryPlan divided = Planned(job);
    const double experts = 48 * 0.604 * 2;
    const double less = static_cast<double>(whole.Of(array) - divided.Of(array)) / kGB;
    EXPECT_NEAR(less, experts * 3 / 4, 0.05);
    const auto whole_array = [&](const MemoryPlan& plan) {
      const std::int64_t peers = plan.Of("peers' slots");
      return plan.node_host_bytes - peers - 4 * (plan.host_bytes - plan.Of(array) - peers);
    };
    EXPECT_NEAR(static_cast<double>(whole_array(divided) - whole_array(whole)) / kGB, 0, 0.05)
        << "the node has one array of all";
  }
}

// Of three blocks the second is dense.
TEST(MemoryPlanTest, AdaptersOnSharedExpertsAndDenseLayersAreCounted) {
  ModelConfig config = Mixture();
  config.architecture = "Qwen2MoeForCausalLM";
  config.qk_norms = QkNorms::kNone;
  config.num_hidden_layers = 3;
  config.experts->shared_intermediate_size = 5632;
  config.experts->sparse_layers = {true, false, true};
  PlanJob job = GpuJob(config, 1, 1);
  job.train.lora.emplace();
  const Result<PlanLayout> layout = LayOutPlan(job);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  const std::int64_t attention = 2 * (2048 + 4096) + 2 * (2048 + 512);
  const auto of_mlp = [](std::int64_t inner) { return 3 * (2048 + inner); };
  const std::int64_t gate = 2048 + 1;
  EXPECT_EQ(layout->adapter_parameters,
            16 * (3 * attention + 2 * (of_mlp(5632) + gate) + of_mlp(6144)));
  EXPECT_EQ(layout->active_adapter_parameters, layout->adapter_parameters);
}

TEST(MemoryPlanTest, AMatrixThatIsMadeWholeIsAnActivation) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  job.train.lora.emplace();
  const std::int64_t plain = Planned(job).Of("activations");
  job.train.quantization.emplace();
  const std::int64_t gate_and_up = std::int64_t{2} * 14336 * 4096;
  EXPECT_EQ(Planned(job).Of("activations") - plain, 2 * gate_and_up);
}

TEST(MemoryPlanTest, ExpertsTakeFourBitsAndOneOfThemIsMadeWholeAtATime) {
  PlanJob job = GpuJob(Mixture(), 1, 1);
  job.train.lora.emplace().target_modules = {"q_proj"};
  const MemoryPlan plain = Planned(job);
  job.train.quantization = QuantizationSpec{.double_quant = false};
  const MemoryPlan packed = Planned(job);
  const double attention = 48.0 * 2048 * (2 * 4096 + 2 * 512),
               experts = 48.0 * 128 * 3 * 2048 * 768;
  EXPECT_NEAR(static_cast<double>(plain.Of("frozen weights") - packed.Of("frozen weights")) /
                  (attention + experts),
              2 - 4.5 / 8, 0.001);
  const std::int64_t of_attention = std::int64_t{2048} * (4096 + 2 * 512);
  const std::int64_t of_expert = std::int64_t{2} * 768 * 2048;
  EXPECT_EQ(packed.Of("activations") - plain.Of("activations"), 2 * (of_attention + of_expert));
}

TEST(MemoryPlanTest, TheGradientOfAHeadOverSeveralChunksAddsUpInFp32) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  const auto sums = [&job] {
    const std::int64_t trained = Planned(job).Of("head and logits");
    PlanJob adapters = job;
    adapters.train.lora.emplace();
    return trained - Planned(adapters).Of("head and logits");
  };
  EXPECT_EQ(sums(), 0) << "one chunk";
  job.train.data.max_seq_len = 8192;
  EXPECT_EQ(sums(), std::int64_t{4} * 128256 * 4096);
  job.train.fsdp.mixed_precision = MixedPrecision::kFp32;
  EXPECT_EQ(sums(), 0);
}

TEST(MemoryPlanTest, AModuleThatTheModelHasNotIsRefused) {
  PlanJob job = GpuJob(Llama8B(), 1, 8);
  job.train.lora = LoraSpec{.modules_to_save = {"c_attn"}};
  const Result<MemoryPlan> plan = PlanMemory(job);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("c_attn"), std::string::npos);
}

// 70 B on two cards of 24 GB: frozen weights in host memory, adapters on the device.
TEST(MemoryPlanTest, SeventyBillionTrainAdaptersOnTwoSmallGpus) {
  PlanJob job = GpuJob(Llama70B(), 1, 2);
  job.train.lora.emplace();
  job.train.quantization.emplace();
  EXPECT_GT(DeviceGB(Planned(job)), 23.6);
  job.train.fsdp.cpu_offload = true;
  const MemoryPlan plan = Planned(job);
  EXPECT_LT(DeviceGB(plan), 22.8);
  EXPECT_LT(static_cast<double>(plan.node_host_bytes), 180 * kGB);
}

// Slots are the largest units; on one host the gathered model is one array for all.
TEST(MemoryPlanTest, RanksOfOneHostShareTheGatheredWeights) {
  PlanJob job = GpuJob(Llama8B(), 1, 4);
  job.resources.device = "cpu";
  job.supervised = false;
  const MemoryPlan plan = Planned(job);
  EXPECT_EQ(plan.device_bytes, 0);
  EXPECT_NEAR(static_cast<double>(plan.Of("unsharded parameters")), 2 * 8.03e9, 5e6);
  EXPECT_LT(plan.node_host_bytes, 4 * plan.host_bytes - 2 * plan.Of("unsharded parameters"));
}

}  // namespace
}  // namespace muster
