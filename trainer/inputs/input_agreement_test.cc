#include "trainer/inputs/input_agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace muster {
namespace {

using Change = std::function<void(TrainSpec&)>;

// Ranks that differ in one of these would compute, send or save other things.
const Change kChanges[] = {
    [](TrainSpec& t) { t.fsdp.strategy = ShardingStrategy::kNoShard; },
    [](TrainSpec& t) { t.fsdp.blocks_per_unit = 2; },
    [](TrainSpec& t) { t.fsdp.expert_parallel = 2; },
    [](TrainSpec& t) { t.fsdp.mixed_precision = MixedPrecision::kFp16; },
    [](TrainSpec& t) { t.fsdp.mixed_precision = MixedPrecision::kFp64; },
    [](TrainSpec& t) { t.fsdp.reduce_dtype = StateType::kBf16; },
    [](TrainSpec& t) { t.fsdp.buffer_dtype = StateType::kBf16; },
    [](TrainSpec& t) { t.fsdp.activation_checkpointing = ActivationCheckpointing::kFull; },
    [](TrainSpec& t) { t.fsdp.cpu_offload = true; },
    [](TrainSpec& t) { t.fsdp.reduce_every_micro_batch = false; },
    [](TrainSpec& t) { t.optimizer.lr *= 2; },
    [](TrainSpec& t) { t.optimizer.beta1 = 0.8; },
    [](TrainSpec& t) { t.optimizer.beta2 = 0.8; },
    [](TrainSpec& t) { t.optimizer.eps *= 2; },
    [](TrainSpec& t) { t.optimizer.weight_decay = 0; },
    [](TrainSpec& t) { t.optimizer.grad_clip = 0; },
    [](TrainSpec& t) { t.optimizer.master_weights = StateType::kBf16; },
    [](TrainSpec& t) { t.optimizer.moments = StateType::kBf16; },
    [](TrainSpec& t) { t.schedule.kind = "linear"; },
    [](TrainSpec& t) { t.schedule.warmup_ratio = 0; },
    [](TrainSpec& t) { t.schedule.warmup_steps = 0; },
    [](TrainSpec& t) { t.schedule.max_steps = 7; },
    [](TrainSpec& t) { t.schedule.epochs = 7; },
    [](TrainSpec& t) { t.batch.per_rank = 2; },
    [](TrainSpec& t) { t.batch.accumulation = 2; },
    [](TrainSpec& t) { t.data.shuffle = false; },
    [](TrainSpec& t) { t.data.packing = true; },
    [](TrainSpec& t) { t.data.group_by_length = true; },
    [](TrainSpec& t) { t.data.text_field = "content"; },
    [](TrainSpec& t) { t.data.train_on_all = true; },
    [](TrainSpec& t) { t.data.eval_ratio = 0.1; },
    [](TrainSpec& t) { t.data.eval = {"e.jsonl"}; },
    [](TrainSpec& t) { t.lora.emplace(); },
    [](TrainSpec& t) { t.lora = LoraSpec{.r = 8}; },
    [](TrainSpec& t) { t.lora = LoraSpec{.alpha = 8}; },
    [](TrainSpec& t) { t.model.add_tokens.emplace(); },
    [](TrainSpec& t) { t.model.add_tokens = std::vector<TokenSpec>{{.content = "<x>"}}; },
    [](TrainSpec& t) {
      t.model.add_tokens = std::vector<TokenSpec>{{.content = "<x>", .special = false}};
    },
    [](TrainSpec& t) { t.model.pad_vocab_to = 64; },
    [](TrainSpec& t) { t.lora = LoraSpec{.dropout = 0.1}; },
    [](TrainSpec& t) { t.lora = LoraSpec{.rslora = true}; },
    [](TrainSpec& t) { t.lora = LoraSpec{.bias = LoraBias::kAll}; },
    [](TrainSpec& t) { t.lora = LoraSpec{.target_modules = {"q_proj"}}; },
    [](TrainSpec& t) { t.lora = LoraSpec{.modules_to_save = {"lm_head"}}; },
    [](TrainSpec& t) { t.lora = LoraSpec{.init_from = "p"}; },
    [](TrainSpec& t) { t.quantization.emplace(); },
    [](TrainSpec& t) { t.quantization = QuantizationSpec{.double_quant = false}; },
    [](TrainSpec& t) { t.eval.every = 7; },
    [](TrainSpec& t) { t.eval.at_start = true; },
    [](TrainSpec& t) { t.eval.samples = {"a"}; },
    [](TrainSpec& t) { t.eval.samples = {"b"}; },
    [](TrainSpec& t) { t.eval.max_new_tokens = 7; },
    [](TrainSpec& t) { t.eval.early_stop.patience = 7; },
    [](TrainSpec& t) { t.eval.early_stop.min_delta = 7; },
    [](TrainSpec& t) { t.eval.keep_best = false; },
    [](TrainSpec& t) { t.output_export = ExportedState::kBest; },
    [](TrainSpec& t) { t.checkpoint.every = 7; },
    [](TrainSpec& t) { t.snapshot.every = 7; },
    [](TrainSpec& t) { t.snapshot.buddy = BuddyCopies::kOff; },
    [](TrainSpec& t) { t.init_from.path = "p"; },
    [](TrainSpec& t) { t.init_from.optimizer = true; },
    [](TrainSpec& t) { t.profile.start = 7; },
    [](TrainSpec& t) { t.profile.steps = 7; },
    [](TrainSpec& t) { t.nonfinite = NonFinitePolicy::kSkip; },
    [](TrainSpec& t) { t.deterministic = false; },
    [](TrainSpec& t) { t.seed = 43; },
};

TEST(SettingsFingerprint, EverySettingThatCountsMakesAnother) {
  std::set<std::uint64_t> seen = {SettingsFingerprint({})};
  for (std::size_t i = 0; i < std::size(kChanges); ++i) {
    TrainSpec train;
    kChanges[i](train);
    EXPECT_TRUE(seen.insert(SettingsFingerprint(train)).second) << "change " << i;
  }
}

TEST(SettingsFingerprint, SeedsBeyondTheDigitsOfADoubleAreToldApart) {
  TrainSpec a;
  TrainSpec b;
  a.seed = std::uint64_t{1} << 60;
  b.seed = a.seed + 1;
  EXPECT_NE(SettingsFingerprint(a), SettingsFingerprint(b));
}

TEST(SettingsFingerprint, WhereThingsLieAndWhatIsPrintedDoNotCount) {
  TrainSpec train;
  train.model.path = "elsewhere";
  train.data.train = {"elsewhere.jsonl"};
  train.data.cache = "elsewhere";
  train.output_dir = "elsewhere";
  train.logging_every = 1;
  train.checkpoint.keep = 9;
  EXPECT_EQ(SettingsFingerprint(train), SettingsFingerprint({}));
}

}  // namespace
}  // namespace muster
