// Whole configurations, and a job file beside them.
#include "common/job_spec/foreign_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/job_spec/parse.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kJob[] =
    "name: j\n"
    "train:\n"
    "  model: {path: m}\n"
    "  data: {train: d.jsonl}\n";

std::string TestData(const std::string& name) {
  return MUSTER_SOURCE_DIR "/common/job_spec/testdata/" + name;
}

Result<MergedJob> Merge(const std::string& job, const std::string& file) {
  MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config, ReadForeignConfig(TestData(file)));
  return MergeForeignConfig(job, "job.yaml", config);
}

JobSpec Merged(const std::string& job, const std::string& file) {
  const auto merged = Merge(job, file);
  EXPECT_TRUE(merged.ok()) << merged.status().ToString();
  if (!merged.ok()) return {};
  const auto spec = ParseJobSpec(merged->yaml);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return spec.ok() ? *spec : JobSpec{};
}

TEST(ForeignConfigTest, FsdpOfVersionOneBecomesAJob) {
  const JobSpec spec =
      Merged(std::string(kJob) + "  schedule: {epochs: 1}\n", "accelerate_fsdp1.yaml");
  EXPECT_EQ(spec.resources.nodes, 2);
  EXPECT_EQ(spec.resources.ranks_per_node, 8);
  EXPECT_EQ(spec.resources.device, "cuda");
  EXPECT_EQ(spec.train->fsdp.strategy, ShardingStrategy::kHybridShard);
  EXPECT_EQ(spec.train->fsdp.mixed_precision, MixedPrecision::kBf16);
  EXPECT_EQ(spec.train->fsdp.activation_checkpointing, ActivationCheckpointing::kFull);
  EXPECT_FALSE(spec.train->fsdp.cpu_offload);
}

TEST(ForeignConfigTest, FsdpOfVersionTwoBecomesAJob) {
  const JobSpec spec =
      Merged(std::string(kJob) + "  schedule: {epochs: 1}\n", "accelerate_fsdp2.yaml");
  EXPECT_EQ(spec.resources.ranks_per_node, 4);
  EXPECT_EQ(spec.resources.device, "cpu");
  EXPECT_EQ(spec.train->fsdp.strategy, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(spec.train->fsdp.mixed_precision, MixedPrecision::kFp32);
  EXPECT_EQ(spec.train->fsdp.activation_checkpointing, ActivationCheckpointing::kSelective);
  EXPECT_TRUE(spec.train->fsdp.cpu_offload);
}

TEST(ForeignConfigTest, ZeroTwoBringsOptimizerScheduleAndBatch) {
  const JobSpec spec = Merged("name: j\nresources: {nodes: 2}\n" + std::string(kJob).substr(8),
                              "deepspeed_zero2.json");
  const TrainSpec& train = *spec.train;
  EXPECT_EQ(train.fsdp.strategy, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(train.fsdp.mixed_precision, MixedPrecision::kFp16);
  EXPECT_EQ(train.optimizer.lr, 3e-5);
  EXPECT_EQ(train.optimizer.beta1, 0.8);
  EXPECT_EQ(train.optimizer.beta2, 0.999);
  EXPECT_EQ(train.optimizer.weight_decay, 3e-7);
  EXPECT_EQ(train.optimizer.grad_clip, 0.5);
  EXPECT_EQ(train.schedule.kind, "linear");
  EXPECT_EQ(train.schedule.warmup_steps, 500);
  EXPECT_EQ(train.schedule.max_steps, 2000);
  EXPECT_EQ(train.batch.per_rank, 4);
  EXPECT_EQ(train.batch.accumulation, 4);  // 32 rows over 2 ranks of 4
  EXPECT_EQ(train.logging_every, 10);
}

TEST(ForeignConfigTest, AccelerateNamesADeepSpeedFileBesideIt) {
  const JobSpec spec =
      Merged(std::string(kJob) + "  schedule: {max_steps: 5}\n", "accelerate_deepspeed.yaml");
  EXPECT_EQ(spec.resources.ranks_per_node, 2);
  EXPECT_EQ(spec.train->fsdp.strategy, ShardingStrategy::kFullShard);
  EXPECT_TRUE(spec.train->fsdp.cpu_offload);
  EXPECT_EQ(spec.train->batch.accumulation, 4);
}

TEST(ForeignConfigTest, TheJobFileWinsAndWhatIsTakenIsReported) {
  const std::string job =
      std::string(kJob) +
      "  schedule: {epochs: 1}\n  fsdp: {strategy: no_shard, mixed_precision: bf16}\n";
  EXPECT_EQ(Merged(job, "accelerate_fsdp1.yaml").train->fsdp.strategy, ShardingStrategy::kNoShard);
  const auto merged = Merge(job, "accelerate_fsdp1.yaml");
  EXPECT_THAT(merged->report,
              Contains(AllOf(HasSubstr("fsdp_sharding_strategy: HYBRID_SHARD is not taken"),
                             HasSubstr("job.yaml has train.fsdp.strategy: no_shard"))));
  EXPECT_THAT(merged->report, Contains(HasSubstr("num_machines: 2 -> resources.nodes: 2")));
  EXPECT_THAT(merged->report, Contains(HasSubstr("fsdp_use_orig_params: tensors keep")));
  // Both say bf16, so there is nothing to tell.
  EXPECT_THAT(merged->report, ::testing::Not(Contains(HasSubstr("mixed_precision"))));
}

TEST(ForeignConfigTest, EpochsOfTheJobStandAgainstAConfigurationsSteps) {
  const auto merged = Merge("name: j\nresources: {nodes: 8}\n" + std::string(kJob).substr(8) +
                                "  schedule: {epochs: 2}\n",
                            "deepspeed_zero2.json");
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  EXPECT_THAT(merged->report, Contains(HasSubstr("job.yaml has train.schedule.epochs: 2")));
  EXPECT_EQ(ParseJobSpec(merged->yaml)->train->schedule.epochs, 2);
}

TEST(ForeignConfigTest, AnotherBatchThanTheConfigurationsIsRefused) {
  const auto merged = Merge("name: j\nresources: {nodes: 3}\n" + std::string(kJob).substr(8),
                            "deepspeed_zero2.json");
  ASSERT_FALSE(merged.ok());
  EXPECT_THAT(merged.status().message(), HasSubstr("train_batch_size: 32: job.yaml trains on 12"));
}

TEST(ForeignConfigTest, ACommandTakesTheMachinesAlone) {
  const auto merged = Merge("name: j\ncommand: [python, train.py]\n", "accelerate_fsdp1.yaml");
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  const auto spec = ParseJobSpec(merged->yaml);
  EXPECT_EQ(spec->world_size(), 16);
  EXPECT_FALSE(spec->train);
  EXPECT_THAT(merged->report, Contains(HasSubstr("is for the built-in trainer")));
}

TEST(ForeignConfigTest, FaultsOfTheJobAreReportedWithItsOwnLines) {
  const std::string schedule = "  schedule: {epochs: 1}\n";
  EXPECT_EQ(Merge(kJob + schedule + "  seed: x\n", "accelerate_fsdp1.yaml").status().message(),
            "job.yaml:6: train.seed: expected a whole number, got 'x'");
  const auto brought =
      Merge(kJob + schedule + "  optimizer: {moments: bf16}\n  fsdp: {reduce_dtype: bf16}\n",
            "accelerate_fsdp2.yaml");
  EXPECT_THAT(brought.status().message(),
              HasSubstr("accelerate_fsdp2.yaml: train.fsdp.reduce_dtype:"));
}

TEST(ForeignConfigTest, WhatCannotBeReadNamesFileAndLine) {
  const auto broken = ParseAccelerateConfig("a: 1\nb: {c\n", "broken.yaml");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.status().message(), HasSubstr("broken.yaml:"));
  EXPECT_EQ(ParseAccelerateConfig("compute_environment: LOCAL_MACHINE\ngpu_ids: '0,1'\n", "a.yaml")
                .status()
                .message(),
            "a.yaml:2: gpu_ids: 0,1: a worker offers the GPUs that its CUDA_VISIBLE_DEVICES names");
  EXPECT_FALSE(ParseDeepSpeedConfig("[1, 2]", "d.json").ok());
  EXPECT_EQ(ReadForeignConfig("nowhere.yaml").status().code(), StatusCode::kNotFound);
}

TEST(ForeignConfigTest, KeysThatBelongTogetherAreReadTogether) {
  const auto odd = ParseAccelerateConfig("num_machines: 3\nnum_processes: 8\n", "a.yaml");
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.status().message(), HasSubstr("a.yaml:2: num_processes: 8"));
  EXPECT_FALSE(
      ParseDeepSpeedConfig("{bf16: {enabled: true}, fp16: {enabled: true}}", "d.json").ok());
  const auto peaks = ParseDeepSpeedConfig(
      "{optimizer: {params: {lr: 1e-4}}, scheduler: {params: {warmup_max_lr: 2e-4}}}", "d.json");
  ASSERT_FALSE(peaks.ok());
  EXPECT_THAT(peaks.status().message(), HasSubstr("another peak"));
  const auto hybrid = ParseAccelerateConfig(
      "fsdp_config: {fsdp_version: 2, fsdp_sharding_strategy: FULL_SHARD, "
      "fsdp_reshard_after_forward: true}\n"
      "parallelism_config: {parallelism_config_dp_replicate_size: 2}\n",
      "a.yaml");
  ASSERT_TRUE(hybrid.ok()) << hybrid.status().ToString();
  ASSERT_EQ(hybrid->settings.size(), 1u);
  EXPECT_EQ(hybrid->settings[0].value, "hybrid_shard");
}

std::vector<std::string> ValuesOf(const ForeignConfig& config, const std::string& key) {
  std::vector<std::string> values;
  for (const ForeignSetting& setting : config.settings)
    if (setting.key == key) values.push_back(setting.value);
  return values;
}

TEST(ForeignConfigTest, ABf16ThatIsOffIsFp32) {
  for (const char* fp16 : {"", ", fp16: {enabled: auto}", ", fp16: {enabled: false}"}) {
    const auto config =
        ParseDeepSpeedConfig("{bf16: {enabled: false}" + std::string(fp16) + "}", "d.json");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_THAT(ValuesOf(*config, "train.fsdp.mixed_precision"), ::testing::ElementsAre("fp32"))
        << fp16;
  }
  const auto fp16 =
      ParseDeepSpeedConfig("{bf16: {enabled: false}, fp16: {enabled: true}}", "d.json");
  EXPECT_THAT(ValuesOf(*fp16, "train.fsdp.mixed_precision"), ::testing::ElementsAre("fp16"));
}

TEST(ForeignConfigTest, EitherOldKeyOffloads) {
  for (const char* keys : {"cpu_offload: true, cpu_offload_params: false",
                           "cpu_offload: false, cpu_offload_params: true",
                           "cpu_offload_params: false, offload_optimizer: {device: cpu}"}) {
    const auto config =
        ParseDeepSpeedConfig("{zero_optimization: {" + std::string(keys) + "}}", "d.json");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_THAT(ValuesOf(*config, "train.fsdp.cpu_offload"), ::testing::ElementsAre("true"))
        << keys;
  }
}

TEST(ForeignConfigTest, TwoValuesOfOneKeyAreRefused) {
  const auto sums = ParseDeepSpeedConfig(
      "{data_types: {grad_accum_dtype: bf16}, communication_data_type: fp32}", "d.json");
  EXPECT_EQ(sums.status().message(),
            "d.json:1: communication_data_type: fp32: gives another train.fsdp.reduce_dtype than "
            "data_types.grad_accum_dtype: bf16; leave one of them");
  EXPECT_TRUE(ParseDeepSpeedConfig(
                  "{data_types: {grad_accum_dtype: bf16}, communication_data_type: bf16}", "d.json")
                  .ok());
}

TEST(ForeignConfigTest, TwoFilesWithDifferentValuesOfOneKeyAreRefused) {
  const std::string file =
      ::testing::TempDir() + "accelerate_" + std::to_string(::getpid()) + ".yaml";
  std::ofstream(file) << "distributed_type: DEEPSPEED\nmixed_precision: bf16\n"
                         "deepspeed_config: {deepspeed_config_file: "
                      << TestData("deepspeed_zero2.json") << "}\n";
  const auto config = ReadForeignConfig(file);
  std::filesystem::remove(file);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(),
              AllOf(HasSubstr("deepspeed_zero2.json: fp16.enabled: true: gives another "
                              "train.fsdp.mixed_precision than mixed_precision: bf16 of "),
                    HasSubstr(file)));
}

TEST(ForeignConfigTest, TheFirstRateIsComparedWithThePeak) {
  const auto with = [](const std::string& first) {
    return ParseDeepSpeedConfig(
        "{optimizer: {params: {lr: 2e-5}}, scheduler: {params: "
        "{warmup_min_lr: " +
            first + "}}}",
        "d.json");
  };
  EXPECT_THAT(with("2e-5").status().message(), HasSubstr("the peak is 2e-5"))
      << "no warm-up at all";
  EXPECT_FALSE(with("1e-6").ok());
  EXPECT_FALSE(with("-1e-9").ok());
  EXPECT_TRUE(with("1e-8").ok());
  EXPECT_TRUE(with("0").ok());
}

TEST(ForeignConfigTest, DefaultsThatDifferAreReported) {
  const std::string job = std::string(kJob) + "  schedule: {max_steps: 5}\n";
  const auto merged = Merge(job, "deepspeed_zero3.json");
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  EXPECT_THAT(merged->report, Contains(AllOf(HasSubstr("scheduler.type is absent"),
                                             HasSubstr("train.schedule.kind"))));
  EXPECT_THAT(merged->report, ::testing::Not(Contains(HasSubstr("clipping is absent"))))
      << "it is auto";
  const auto said = Merge(std::string(kJob) + "  schedule: {max_steps: 5, kind: constant}\n",
                          "deepspeed_zero3.json");
  ASSERT_TRUE(said.ok()) << said.status().ToString();
  EXPECT_THAT(said->report, ::testing::Not(Contains(HasSubstr("is absent"))));
  const auto config = ParseDeepSpeedConfig("{optimizer: {type: AdamW}}", "d.json");
  const auto bare = MergeForeignConfig(job, "job.yaml", *config);
  for (const char* key : {"bf16.enabled", "gradient_clipping", "optimizer.params.betas",
                          "optimizer.params.weight_decay", "scheduler.type"}) {
    EXPECT_THAT(bare->report, Contains(HasSubstr(std::string(key) + " is absent"))) << key;
  }
}

}  // namespace
}  // namespace muster
