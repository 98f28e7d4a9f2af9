// Every key of the tables of foreign configurations: what it becomes, or that it means nothing, or
// why it cannot be had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "common/job_spec/foreign_config.h"
#include "common/job_spec/foreign_reader.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// A file in YAML with one dotted key.
std::string FileWith(const std::string& key, const std::string& value) {
  std::string text, open;
  for (const char c : key) text += c == '.' ? std::string(": {") : std::string(1, c);
  text += ": " + value;
  for (const char c : key)
    if (c == '.') text += "}";
  return text + "\n";
}

using Parser = Result<ForeignConfig> (*)(std::string_view, std::string_view);

std::string Became(Parser parse, const std::string& key, const std::string& value) {
  const auto config = parse(FileWith(key, value), "f");
  if (!config.ok()) return config.status().message();
  std::string text;
  for (const ForeignSetting& setting : config->settings) text += setting.key + "=" + setting.value;
  if (config->train_batch_size) text += "rows=" + std::to_string(*config->train_batch_size);
  return text + config->deepspeed_file;
}

struct Case {
  const char* key;
  const char* value;
  const char* became;  // "": nothing
};

constexpr Case kAccelerate[] = {
    {"distributed_type", "FSDP", ""},
    {"distributed_type", "MULTI_GPU", "train.fsdp.strategy=no_shard"},
    {"distributed_type", "XLA", "FSDP, DEEPSPEED"},
    {"mixed_precision", "'no'", "train.fsdp.mixed_precision=fp32"},
    {"mixed_precision", "bf16", "train.fsdp.mixed_precision=bf16"},
    {"mixed_precision", "fp16", "train.fsdp.mixed_precision=fp16"},
    {"mixed_precision", "fp8", "no, bf16 and fp16"},
    {"use_cpu", "true", "resources.device=cpu"},
    {"use_cpu", "false", "resources.device=cuda"},
    {"use_cpu", "3", "expected true or false"},
    {"num_processes", "4", "resources.ranks_per_node=4"},
    {"num_processes", "0", "from 1 on"},
    {"num_processes", "1e300", "from 1 on"},
    {"num_machines", "3", "resources.nodes=3"},
    {"num_machines", "1.5", "from 1 on"},
    {"parallelism_config.parallelism_config_dp_replicate_size", "2", ""},
    {"parallelism_config.parallelism_config_dp_replicate_size", "x", "from 1 on"},
    {"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD", "train.fsdp.strategy=full_shard"},
    {"fsdp_config.fsdp_sharding_strategy", "1", "train.fsdp.strategy=full_shard"},
    {"fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP", "train.fsdp.strategy=shard_grad_op"},
    {"fsdp_config.fsdp_sharding_strategy", "2", "train.fsdp.strategy=shard_grad_op"},
    {"fsdp_config.fsdp_sharding_strategy", "3", "train.fsdp.strategy=no_shard"},
    {"fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD", "train.fsdp.strategy=hybrid_shard"},
    {"fsdp_config.fsdp_sharding_strategy", "5", "train.fsdp.strategy=hybrid_shard_zero2"},
    {"fsdp_config.fsdp_sharding_strategy", "ZERO", "expected FULL_SHARD"},
    {"fsdp_config.fsdp_reshard_after_forward", "true", "train.fsdp.strategy=full_shard"},
    {"fsdp_config.fsdp_reshard_after_forward", "false", "train.fsdp.strategy=shard_grad_op"},
    {"fsdp_config.fsdp_reshard_after_forward", "NO_SHARD", "train.fsdp.strategy=no_shard"},
    {"fsdp_config.fsdp_reshard_after_forward", "8", "resharding to so many ranks"},
    {"fsdp_config.fsdp_offload_params", "true", "train.fsdp.cpu_offload=true"},
    {"fsdp_config.fsdp_offload_params", "maybe", "expected true or false"},
    {"fsdp_config.fsdp_activation_checkpointing", "true",
     "train.fsdp.activation_checkpointing=full"},
    {"fsdp_config.fsdp_activation_checkpointing", "false", ""},
    {"deepspeed_config.deepspeed_config_file", "ds.json", "ds.json"},
    {"deepspeed_config.zero_stage", "2", "train.fsdp.strategy=shard_grad_op"},
    {"deepspeed_config.zero_stage", "2.0", "train.fsdp.strategy=shard_grad_op"},
    {"deepspeed_config.zero_stage", "4", "from 0 to 3"},
    {"deepspeed_config.offload_optimizer_device", "cpu", "train.fsdp.cpu_offload=true"},
    {"deepspeed_config.offload_optimizer_device", "none", ""},
    {"deepspeed_config.offload_param_device", "nvme", "nowhere else"},
    {"deepspeed_config.gradient_accumulation_steps", "4", "train.batch.accumulation=4"},
    {"deepspeed_config.gradient_clipping", "0.5", "train.optimizer.grad_clip=0.5"},
    {"deepspeed_config.gradient_clipping", "much", "expected a number"},
};

constexpr Case kDeepSpeed[] = {
    {"zero_optimization.stage", "0", "train.fsdp.strategy=no_shard"},
    {"zero_optimization.stage", "1", "train.fsdp.strategy=shard_grad_op"},
    {"zero_optimization.stage", "2.0", "train.fsdp.strategy=shard_grad_op"},
    {"zero_optimization.stage", "3", "train.fsdp.strategy=full_shard"},
    {"zero_optimization.stage", "5", "from 0 to 3"},
    {"zero_optimization.offload_optimizer.device", "cpu", "train.fsdp.cpu_offload=true"},
    {"zero_optimization.offload_param.device", "nvme", "nowhere else"},
    {"zero_optimization.cpu_offload", "true", "train.fsdp.cpu_offload=true"},
    {"zero_optimization.cpu_offload_params", "false", "train.fsdp.cpu_offload=false"},
    {"zero_optimization.cpu_offload_param", "true", "train.fsdp.cpu_offload=true"},
    {"bf16.enabled", "true", "train.fsdp.mixed_precision=bf16"},
    {"bf16.enabled", "false", "train.fsdp.mixed_precision=fp32"},
    {"bf16.enabled", "auto", ""},
    {"bf16.enabled", "7", "expected true or false"},
    {"fp16.enabled", "true", "train.fsdp.mixed_precision=fp16"},
    {"fp16.enabled", "false", "train.fsdp.mixed_precision=fp32"},
    {"data_types.grad_accum_dtype", "bf16", "train.fsdp.reduce_dtype=bf16"},
    {"communication_data_type", "fp32", "train.fsdp.reduce_dtype=fp32"},
    {"communication_data_type", "int8", "fp32, bf16 or fp16"},
    {"train_micro_batch_size_per_gpu", "2", "train.batch.per_rank=2"},
    {"train_micro_batch_size_per_gpu", "0", "from 1 on"},
    {"gradient_accumulation_steps", "8", "train.batch.accumulation=8"},
    {"train_batch_size", "64", "rows=64"},
    {"train_batch_size", "-1", "from 1 on"},
    {"train_batch_size", "64.5", "from 1 on"},
    {"gradient_clipping", "1.0", "train.optimizer.grad_clip=1.0"},
    {"optimizer.type", "AdamW", ""},
    {"optimizer.type", "Lion", "AdamW is the optimizer"},
    {"optimizer.params.lr", "3e-5", "train.optimizer.lr=3e-5"},
    {"optimizer.params.betas", "[0.9, 0.99]", "train.optimizer.betas=[0.9, 0.99]"},
    {"optimizer.params.betas", "0.9", "expected two numbers"},
    {"optimizer.params.eps", "1e-8", "train.optimizer.eps=1e-8"},
    {"optimizer.params.weight_decay", "0.1", "train.optimizer.weight_decay=0.1"},
    {"scheduler.type", "WarmupLR", "train.schedule.kind=constant"},
    {"scheduler.type", "WarmupDecayLR", "train.schedule.kind=linear"},
    {"scheduler.type", "WarmupCosineLR", "train.schedule.kind=cosine"},
    {"scheduler.type", "OneCycle", "can be had"},
    {"scheduler.params.warmup_max_lr", "1e-4", "train.optimizer.lr=1e-4"},
    {"scheduler.params.warmup_min_lr", "0", ""},
    {"scheduler.params.warmup_min_lr", "1e-9", "there is no peak"},
    {"scheduler.params.warmup_min_ratio", "0.5", "begin and end at 0"},
    {"scheduler.params.cos_min_ratio", "0.0001", ""},
    {"scheduler.params.warmup_num_steps", "100", "train.schedule.warmup_steps=100"},
    {"scheduler.params.warmup_num_steps", "0", "train.schedule.warmup_steps=0"},
    {"scheduler.params.total_num_steps", "900", "train.schedule.max_steps=900"},
    {"activation_checkpointing.cpu_checkpointing", "true",
     "train.fsdp.activation_checkpointing=full_offload"},
    {"steps_per_print", "20", "train.logging.every=20"},
    {"steps_per_print", "inf", ""},
};

struct Table {
  const char* name;
  Parser parse;
  std::span<const ForeignRule> rules;
  std::span<const Case> cases;
};

class ForeignKeys : public ::testing::TestWithParam<Table> {
 protected:
  // One that takes no surprise, and tells the two kinds apart.
  static std::string name_of_first_key() {
    return std::string(GetParam().name) == "Accelerate" ? "compute_environment" : "steps_per_print";
  }
};

TEST_P(ForeignKeys, AreTakenOverOrRefused) {
  for (const Case& each : GetParam().cases) {
    const std::string became = Became(GetParam().parse, each.key, each.value);
    const bool refused = became.starts_with("f:1: " + std::string(each.key) + ": ");
    if (refused) {
      EXPECT_THAT(became, HasSubstr(each.became)) << each.key;
      EXPECT_STRNE(each.became, "") << each.key << " " << became;
    } else {
      EXPECT_EQ(became, each.became) << each.key << ": " << each.value;
    }
  }
}

TEST_P(ForeignKeys, ThatAreTakenOverAreAllTestedAbove) {
  std::set<std::string> tested;
  for (const Case& each : GetParam().cases) tested.insert(each.key);
  for (const ForeignRule& rule : GetParam().rules)
    EXPECT_TRUE(rule.map == nullptr || tested.contains(std::string(rule.key))) << rule.key;
}

// A section stands for its keys.
std::string SomeKeyOf(const ForeignRule& rule) {
  std::string key(rule.key);
  if (key.ends_with(".*")) key.replace(key.size() - 1, 1, "some_key");
  return key;
}

TEST_P(ForeignKeys, ThatMeanNothingAreAcceptedAndReported) {
  for (const ForeignRule& rule : GetParam().rules) {
    if (rule.map != nullptr || !rule.only.empty()) continue;
    const auto config = GetParam().parse(FileWith(SomeKeyOf(rule), "surprise"), "f");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_TRUE(config->settings.empty()) << rule.key;
    ASSERT_EQ(config->notes.size(), 1u) << rule.key;
    EXPECT_THAT(config->notes[0], HasSubstr(std::string(rule.note)));
    EXPECT_FALSE(rule.note.empty()) << rule.key;
  }
}

TEST_P(ForeignKeys, ThatWouldChangeTheNumbersAreRefusedByName) {
  for (const ForeignRule& rule : GetParam().rules) {
    if (rule.only.empty()) continue;
    const std::string key = SomeKeyOf(rule);
    const std::string allowed(rule.only.substr(0, rule.only.find('|')));
    EXPECT_EQ(Became(GetParam().parse, key, allowed.empty() ? "null" : allowed), "") << key;
    EXPECT_EQ(Became(GetParam().parse, key, "surprise"),
              "f:1: " + key + ": surprise: " + std::string(rule.note));
  }
}

// tests/migrate/list_keys.py makes the lists from the tools' own sources.
TEST_P(ForeignKeys, ThatTheToolHasAreAllKnown) {
  const std::string name = GetParam().name;
  std::ifstream list(std::string(MUSTER_SOURCE_DIR) + "/tests/migrate/testdata/keys/" +
                     (name == "Accelerate" ? "accelerate" : "deepspeed") + ".txt");
  int count = 0;
  for (std::string key; std::getline(list, key);) {
    if (key.starts_with('#')) continue;
    ++count;
    EXPECT_TRUE(std::ranges::any_of(GetParam().rules, [&](const ForeignRule& rule) {
      const std::string section(rule.key.substr(0, rule.key.size() - 2));
      return rule.key == key ||
             (rule.key.ends_with(".*") && (key == section || key.starts_with(section + ".")));
    })) << key;
  }
  EXPECT_GT(count, 50);
}

TEST_P(ForeignKeys, ThatCannotBeHadAreAllNamed) {
  const auto config = ExamineForeignConfig(
      name_of_first_key() + ": surprise\nno_such_thing_at_all: 1\nnor_this: 2\n", "f");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->refusals.size(), 3u);
}

TEST_P(ForeignKeys, ThatAreUnknownAreRefused) {
  EXPECT_THAT(Became(GetParam().parse, "no_such_thing_at_all", "1"), HasSubstr("unknown key"));
}

INSTANTIATE_TEST_SUITE_P(
    Of, ForeignKeys,
    ::testing::Values(Table{"Accelerate", ParseAccelerateConfig, AccelerateRules(), kAccelerate},
                      Table{"DeepSpeed", ParseDeepSpeedConfig, DeepSpeedRules(), kDeepSpeed}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ForeignKeysTest, ASlipOfTheFingerIsGuessed) {
  EXPECT_THAT(Became(ParseAccelerateConfig, "mixed_precison", "bf16"),
              HasSubstr("did you mean 'mixed_precision'?"));
}

}  // namespace
}  // namespace muster
