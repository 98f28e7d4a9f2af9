#include "cli/migrate/migrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/base/files.h"
#include "common/job_spec/parse.h"

namespace muster::migrate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace fs = std::filesystem;

// What an example of a tool becomes; tests/migrate/testdata/examples has those of the tools' own
// files.
struct Converted {
  Migration migration;
  JobSpec job;
  const TrainSpec& train() const { return *job.train; }
};

Converted Convert(const std::string& text, const std::vector<std::string>& overrides = {}) {
  auto migration = Migrate(text, "f", "", overrides);
  EXPECT_TRUE(migration.ok()) << migration.status().ToString();
  if (!migration.ok()) return {};
  EXPECT_TRUE(migration->problem.ok()) << migration->problem.ToString();
  auto job = ParseJobSpec(migration->yaml, "job");
  EXPECT_TRUE(job.ok()) << job.status().ToString() << "\n" << migration->yaml;
  return {*std::move(migration), job.ok() ? *std::move(job) : JobSpec()};
}

std::string Example(const std::string& name) {
  return *ReadFile(std::string(MUSTER_SOURCE_DIR) + "/tests/migrate/testdata/examples/" + name,
                   1 << 20);
}

std::vector<std::string> Refused(const std::string& text) {
  const auto migration = Migrate(text, "f", "", {});
  if (!migration.ok()) return {migration.status().message()};
  std::vector<std::string> keys;
  for (const Finding& each : migration->findings)
    if (each.verdict == Verdict::kRefused) keys.push_back(each.key + ": " + each.reason);
  return keys;
}

std::string VerdictOn(const Migration& migration, const std::string& key) {
  for (const Finding& each : migration.findings) {
    if (each.key != key) continue;
    return each.verdict == Verdict::kTaken ? each.reason : "explained: " + each.reason;
  }
  return "none";
}

std::string Remarks(const Migration& migration) {
  std::string all;
  for (const std::string& each : migration.remarks) all += each + "\n";
  return all;
}

// ---- The tools' own examples

TEST(MigrateExamples, AreAllConvertedAndEveryKeyHasAVerdict) {
  std::map<std::string, int> count;
  for (const auto& entry : fs::recursive_directory_iterator(std::string(MUSTER_SOURCE_DIR) +
                                                            "/tests/migrate/testdata/examples")) {
    if (!entry.is_regular_file()) continue;
    const std::string tool = entry.path().parent_path().filename().string();
    SCOPED_TRACE(entry.path().string());
    ++count[tool];
    std::vector<std::string> missing;
    if (tool == "accelerate" || tool == "deepspeed")
      missing = {"train.model.path=m", "train.data.train=r.jsonl", "train.schedule.epochs=1"};
    const auto migration = Migrate(*ReadFile(entry.path().string(), 1 << 20), "f", "", missing);
    ASSERT_TRUE(migration.ok()) << migration.status().ToString();
    EXPECT_EQ(migration->tool, tool) << "recognised by its keys";
    EXPECT_FALSE(migration->refused()) << Report(*migration, "f", true);
    EXPECT_TRUE(migration->problem.ok()) << migration->problem.ToString();
    EXPECT_TRUE(ParseJobSpec(migration->yaml).ok());
    for (const Finding& each : migration->findings) EXPECT_NE(each.reason, "") << each.key;
  }
  EXPECT_EQ(count.size(), Tools().size());
  for (const auto& [tool, examples] : count) EXPECT_GE(examples, 5) << tool;
}

// ---- axolotl

TEST(MigrateAxolotl, TakesAQuantisedAdapterWithAlpacasPrompts) {
  const Converted made = Convert(Example("axolotl/qlora_llama.yaml"));
  const TrainSpec& train = made.train();
  EXPECT_EQ(train.model.path, "NousResearch/Llama-3.2-1B");
  ASSERT_TRUE(train.lora && train.quantization);
  EXPECT_EQ(train.lora->r, 32);
  EXPECT_EQ(train.lora->alpha, 16);
  EXPECT_EQ(train.lora->dropout, 0.05);
  EXPECT_THAT(train.lora->target_modules, ElementsAre("q_proj", "k_proj", "v_proj", "o_proj",
                                                      "gate_proj", "up_proj", "down_proj"));
  EXPECT_TRUE(train.quantization->double_quant);
  EXPECT_THAT(train.data.train, ElementsAre("rows/teknium-GPT4-LLM-Cleaned.jsonl"));
  EXPECT_EQ(train.data.eval_ratio, 0.1);
  EXPECT_EQ(train.data.chat_template, "none") << "alpaca's prompts are no chat";
  EXPECT_FALSE(train.data.train_on_all);
  EXPECT_TRUE(train.data.packing);
  EXPECT_EQ(train.optimizer.beta2, 0.999) << "transformers' default, not a job's";
  EXPECT_EQ(train.optimizer.weight_decay, 0);
  EXPECT_EQ(train.optimizer.grad_clip, 1);
  EXPECT_EQ(train.schedule.kind, "cosine");
  EXPECT_EQ(train.schedule.warmup_ratio, 0.1);
  EXPECT_EQ(train.batch.per_rank, 2);
  EXPECT_EQ(train.batch.accumulation, 4);
  EXPECT_EQ(train.optimizer.master_weights, StateType::kFp32) << "adapters are fp32";
  EXPECT_THAT(made.migration.yaml, AllOf(HasSubstr("# The rows"), HasSubstr("### Instruction"),
                                         HasSubstr("load_dataset(\"teknium/GPT4-LLM-Cleaned\"")));
  EXPECT_THAT(Remarks(made.migration), HasSubstr("drops rows that are longer"));
}

TEST(MigrateAxolotl, TakesFsdpAndRenamesTurns) {
  const Converted made = Convert(Example("axolotl/full_llama_fsdp.yaml"));
  const TrainSpec& train = made.train();
  EXPECT_FALSE(train.lora.has_value());
  EXPECT_EQ(train.fsdp.strategy, ShardingStrategy::kFullShard);
  EXPECT_TRUE(train.fsdp.cpu_offload);
  EXPECT_EQ(train.fsdp.activation_checkpointing, ActivationCheckpointing::kFull);
  EXPECT_EQ(train.data.chat_template, "llama3");
  EXPECT_EQ(train.optimizer.master_weights, StateType::kFp32) << "FSDP keeps them in fp32 there";
  EXPECT_THAT(made.migration.yaml,
              AllOf(HasSubstr("rename_column(\"conversations\", \"messages\")"),
                    HasSubstr("{\"from\": \"role\", \"value\": \"content\"}")));
  const Converted alone = Convert(Example("axolotl/full_llama.yaml"));
  EXPECT_EQ(alone.train().optimizer.master_weights, StateType::kBf16)
      << "axolotl loads weights in bf16";
}

constexpr char kAxolotl[] =
    "base_model: m\ndatasets: [{path: r.jsonl, type: chat_template}]\nlearning_rate: 1e-4\n";

TEST(MigrateAxolotl, WritesTheToolsDefaults) {
  const Converted made = Convert(kAxolotl);
  EXPECT_EQ(made.train().data.max_seq_len, 512);
  EXPECT_EQ(made.train().schedule.epochs, 1);
  EXPECT_EQ(made.train().schedule.warmup_ratio, 0.03);
  EXPECT_THAT(made.train().data.train, ElementsAre("r.jsonl"));
  EXPECT_THAT(made.migration.yaml, Not(HasSubstr("load_dataset")));
}

TEST(MigrateAxolotl, RefusesWhatWouldTrainOtherwise) {
  const std::string head = kAxolotl;
  EXPECT_THAT(Refused(head + "load_in_8bit: true\n"),
              ElementsAre(HasSubstr("load_in_8bit: 8-bit")));
  EXPECT_THAT(Refused(head + "load_in_8bit: false\n"), IsEmpty());
  EXPECT_THAT(Refused(head + "rl: dpo\ntrl: {beta: 0.1}\n"),
              ElementsAre(HasSubstr("rl: "), HasSubstr("trl.beta: ")));
  EXPECT_THAT(Refused(head + "optimizer: muon\n"), ElementsAre(HasSubstr("AdamW")));
  EXPECT_THAT(Refused(head + "neftune_noise_alpha: 5\n"), ElementsAre(HasSubstr("leave it out")));
  EXPECT_THAT(Refused(head + "adapter: lora\nlora_r: 8\nlora_alpha: 8\n"),
              ElementsAre(HasSubstr("add lora_target_linear: true")));
  EXPECT_THAT(Refused(head + "adapter: lora\nlora_target_modules: [lm_head]\n"),
              ElementsAre(HasSubstr("train.lora.modules_to_save")));
  EXPECT_THAT(Refused(head + "load_in_4bit: true\n"), ElementsAre(HasSubstr("with adapters only")));
  EXPECT_THAT(Refused(head + "micro_batch_siez: 3\n"),
              ElementsAre(HasSubstr("did you mean 'micro_batch_size'?")));
  EXPECT_THAT(Refused(head + "val_set_size: 200\n"), ElementsAre(HasSubstr("a share of them")));
  EXPECT_THAT(Refused(head + "fp16: true\nfloat16: false\n"),
              ElementsAre(HasSubstr("another value")));
  EXPECT_THAT(Refused("base_model: m\nsequence_len: 8\ndatasets: [{path: r, type: sharegpt}]\n"),
              ElementsAre(HasSubstr("chat_template, alpaca and completion")));
  EXPECT_THAT(Refused(head + "micro_batch_size: many\n"), ElementsAre(HasSubstr("a whole number")));
}

// ---- LLaMA-Factory

TEST(MigrateLlamaFactory, TakesAnAdapterAndItsDefaults) {
  const Converted made = Convert(Example("llamafactory/qlora_qwen_single.yaml"));
  const TrainSpec& train = made.train();
  ASSERT_TRUE(train.lora && train.quantization);
  EXPECT_EQ(train.lora->r, 8);
  EXPECT_EQ(train.lora->alpha, 16) << "twice the rank where there is none";
  EXPECT_EQ(train.lora->target_modules, kAllLinear);
  EXPECT_FALSE(train.quantization->double_quant);
  EXPECT_EQ(train.optimizer.weight_decay, 0);
  EXPECT_EQ(train.schedule.epochs, 3);
  EXPECT_EQ(train.fsdp.activation_checkpointing, ActivationCheckpointing::kFull)
      << "the default there";
  EXPECT_THAT(train.data.train, ElementsAre("rows/identity.jsonl", "rows/alpaca_en_demo.jsonl"));
  EXPECT_THAT(made.migration.yaml, HasSubstr("select(range(min(1000"));
  EXPECT_EQ(Convert(Example("llamafactory/full_qwen.yaml")).migration.deepspeed_file,
            "examples/deepspeed/ds_z3_config.json");
}

TEST(MigrateLlamaFactory, RefusesWhatWouldTrainOtherwise) {
  const std::string head =
      "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: "
      "r.jsonl\n";
  EXPECT_THAT(Refused(head), IsEmpty());
  EXPECT_THAT(Refused("model_name_or_path: m\nstage: dpo\ndo_train: true\ndataset: d\n"),
              ElementsAre(HasSubstr("stage: Muster")));
  EXPECT_THAT(Refused("model_name_or_path: m\nstage: sft\ndataset: d\n"),
              ElementsAre(HasSubstr("do_train")));
  EXPECT_THAT(Refused(head + "packing: true\n"), ElementsAre(HasSubstr("neat_packing: true")));
  EXPECT_THAT(Refused(head + "packing: true\nneat_packing: true\n"), IsEmpty());
  EXPECT_THAT(Refused(head + "template: gemma\n"),
              ElementsAre(HasSubstr("--set train.data.chat_template")));
  EXPECT_THAT(Refused(head + "quantization_bit: 8\n"), ElementsAre(HasSubstr("4 bits can be had")));
  EXPECT_THAT(Refused(head + "use_galore: true\n"), ElementsAre(HasSubstr("AdamW")));
  EXPECT_THAT(Refused(head + "lr_scheduler_type: polynomial\n"),
              ElementsAre(HasSubstr("linear, cosine")));
}

// ---- torchtune

TEST(MigrateTorchtune, TrainsInPureBf16AndOnPromptsAsItDoes) {
  const Converted made = Convert(Example("torchtune/qlora_llama.yaml"));
  const TrainSpec& train = made.train();
  EXPECT_EQ(train.model.path, "/tmp/Llama-3.2-1B-Instruct");
  ASSERT_TRUE(train.lora && train.quantization) << "by the component's name";
  EXPECT_THAT(train.lora->target_modules,
              ElementsAre("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"));
  EXPECT_EQ(train.optimizer.master_weights, StateType::kBf16);
  EXPECT_EQ(train.optimizer.moments, StateType::kBf16);
  EXPECT_EQ(train.optimizer.grad_clip, 0);
  EXPECT_TRUE(train.data.train_on_all) << "alpaca's default there";
  EXPECT_EQ(train.data.chat_template, "llama3");
  EXPECT_EQ(train.schedule.warmup_steps, 100);
  EXPECT_EQ(train.output_dir, "/tmp/torchtune/llama3_2_1B/qlora_single_device");
  EXPECT_THAT(VerdictOn(made.migration, "metric_logger.log_dir"), HasSubstr("explained"));
  EXPECT_THAT(Remarks(made.migration),
              AllOf(HasSubstr("end-of-text token"), HasSubstr("cuts no row")));
  const Converted whole = Convert(Example("torchtune/full_llama.yaml"));
  EXPECT_EQ(whole.train().schedule.kind, "constant");
  EXPECT_FALSE(whole.train().lora.has_value());
}

TEST(MigrateTorchtune, RefusesOtherFamiliesAndComponents) {
  std::string text = Example("torchtune/lora_llama.yaml");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return Refused(changed.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("torchtune.models.llama3_2.lora", "torchtune.models.gemma.lora"),
              ElementsAre(HasSubstr("Llama, Qwen and Mistral")));
  EXPECT_THAT(with("torch.optim.AdamW", "torch.optim.SGD"),
              ElementsAre(HasSubstr("torch.optim.AdamW")));
  EXPECT_THAT(with("torchtune.datasets.alpaca_cleaned_dataset", "my.dataset"),
              ElementsAre(HasSubstr("chat_dataset")));
  EXPECT_THAT(with("dtype: bf16", "dtype: fp16"), ElementsAre(HasSubstr("bf16 and fp32")));
  EXPECT_THAT(with("max_steps_per_epoch: null", "max_steps_per_epoch: 7"), IsEmpty())
      << "of one epoch";
}

// ---- TRL

TEST(MigrateTrl, TakesFlagsOfItsCommand) {
  const Converted made = Convert(Example("trl/lora.sh"));
  const TrainSpec& train = made.train();
  EXPECT_EQ(made.migration.tool, "trl");
  ASSERT_TRUE(train.lora.has_value());
  EXPECT_THAT(train.lora->target_modules, ElementsAre("q_proj", "v_proj")) << "PEFT's default";
  EXPECT_EQ(train.lora->dropout, 0.05);
  EXPECT_TRUE(train.data.packing);
  EXPECT_TRUE(train.data.train_on_all) << "assistant_only_loss is off";
  EXPECT_THAT(train.data.eval, ElementsAre("rows/trl-lib-Capybara-test.jsonl"));
  EXPECT_EQ(train.eval.every, 100);
  EXPECT_EQ(train.data.max_seq_len, 1024);
  EXPECT_EQ(train.schedule.kind, "linear");
  EXPECT_EQ(train.schedule.warmup_steps, 0);
  EXPECT_THAT(Remarks(made.migration), HasSubstr("--set train.data.train_on=answers"));
  EXPECT_EQ(Convert(Example("trl/zero3.yaml")).job.resources.ranks_per_node, 4);
  EXPECT_EQ(Convert(Example("trl/cli.yaml")).train().batch.per_rank, 8);
}

TEST(MigrateTrl, TakesAnswersOnlyAndStepsBeforeEpochs) {
  const Converted made = Convert(Example("trl/qlora.yaml"));
  EXPECT_FALSE(made.train().data.train_on_all);
  EXPECT_EQ(made.train().schedule.max_steps, 30);
  EXPECT_EQ(made.train().schedule.warmup_steps, 5);
  EXPECT_EQ(made.train().optimizer.master_weights, StateType::kFp32) << "adapters are fp32";
}

TEST(MigrateTrl, ReadsWarmupSharesAndPrecision) {
  const std::string head = "model_name_or_path: m\ndataset_name: r.jsonl\n";
  EXPECT_EQ(Convert(head + "warmup_steps: 0.1\n").train().schedule.warmup_ratio, 0.1);
  EXPECT_EQ(Convert(head + "warmup_ratio: 0.2\n").train().schedule.warmup_ratio, 0.2);
  EXPECT_EQ(Convert(head + "lr_scheduler_type: constant\nwarmup_steps: 9\n")
                .train()
                .schedule.warmup_steps,
            0);
  EXPECT_EQ(Convert(head + "lr_scheduler_type: constant_with_warmup\nwarmup_steps: 9\n")
                .train()
                .schedule.warmup_steps,
            9);
  EXPECT_EQ(Convert(head + "fp16: true\n").train().fsdp.mixed_precision, MixedPrecision::kFp16);
  EXPECT_EQ(Convert(head + "bf16: false\n").train().fsdp.mixed_precision, MixedPrecision::kFp32);
  EXPECT_EQ(Convert(head + "dtype: bfloat16\n").train().optimizer.moments, StateType::kBf16);
  EXPECT_EQ(Convert(head + "max_length: null\n").train().data.max_seq_len, 8192);
  EXPECT_FALSE(Convert(head + "train_sampling_strategy: sequential\n").train().data.shuffle);
  EXPECT_TRUE(Convert(head + "group_by_length: true\n").train().data.group_by_length);
  EXPECT_THAT(Remarks(Convert(head + "weight_decay: 0.1\n").migration),
              HasSubstr("norms and biases"));
}

TEST(MigrateTrl, AnOverrideAnswersWhatIsMissing) {
  const std::string head = "model_name_or_path: m\nuse_peft: true\n";
  EXPECT_THAT(Refused(head), ElementsAre(HasSubstr("--set train.data.train=FILE")));
  const Converted made = Convert(head, {"train.data.train=mine.jsonl"});
  EXPECT_FALSE(made.migration.refused());
  EXPECT_THAT(made.train().data.train, ElementsAre("mine.jsonl"));
}

// ---- accelerate, DeepSpeed

TEST(MigrateForeign, WritesWhatTheConfigurationMeans) {
  const std::vector<std::string> rest = {"train.model.path=m", "train.data.train=r.jsonl",
                                         "train.schedule.epochs=1"};
  const Converted fsdp = Convert(Example("accelerate/fsdp_offload.yaml"), rest);
  EXPECT_TRUE(fsdp.train().fsdp.cpu_offload);
  const Converted many = Convert(Example("accelerate/multi_node.yaml"), rest);
  EXPECT_EQ(many.job.resources.nodes, 2);
  EXPECT_EQ(many.job.resources.ranks_per_node, 4);
  const Converted bare = Convert("{\"train_micro_batch_size_per_gpu\": 4}", rest);
  EXPECT_EQ(bare.train().fsdp.mixed_precision, MixedPrecision::kFp32) << "DeepSpeed's default";
  EXPECT_EQ(bare.train().optimizer.grad_clip, 0);
  EXPECT_EQ(bare.train().schedule.kind, "constant");
  const auto open = Migrate(Example("deepspeed/z2.json"), "f", "", {});
  ASSERT_TRUE(open.ok());
  EXPECT_THAT(open->problem.message(), AllOf(HasSubstr("train.model"), HasSubstr("--set")));
}

TEST(MigrateForeign, NamesEveryRefusal) {
  EXPECT_THAT(
      Refused("{\"zero_optimization\": {\"stage\": 7, \"offload_param\": {\"device\": \"nvme\"}}}"),
      ElementsAre(HasSubstr("from 0 to 3"), HasSubstr("nowhere else")));
}

// ---- Commands

TEST(MigrateTorchrun, BecomesACommandJob) {
  const Converted made = Convert(Example("torchrun/static.sh"));
  EXPECT_EQ(made.job.resources.nodes, 2);
  EXPECT_EQ(made.job.resources.ranks_per_node, 4);
  EXPECT_EQ(made.job.resources.gpus.per_rank, 1);
  EXPECT_THAT(made.job.command, ElementsAre("python3", "-u", "src/train.py", "qwen3 full.yaml"));
  EXPECT_EQ(made.job.env.at("NCCL_DEBUG"), "INFO");
  EXPECT_THAT(VerdictOn(made.migration, "--master-addr"), HasSubstr("explained"));
  const Converted module = Convert(Example("torchrun/module.sh"));
  EXPECT_THAT(module.job.command,
              ElementsAre("python3", "-u", "-m", "axolotl.cli.train", "config.yaml"));
  EXPECT_THAT(Remarks(Convert(Example("torchrun/slurm.sh")).migration),
              HasSubstr("module load cuda"));
  EXPECT_THAT(Refused("torchrun --nproc-per-node 2 --numa-binding node train.py"),
              ElementsAre(HasSubstr("--numa-binding")));
}

TEST(MigrateDetermined, BecomesACommandJob) {
  const Converted made = Convert(Example("determined/full_mistral_zero3.yaml"));
  EXPECT_THAT(made.job.command, ElementsAre("python", "finetune.py"));
  EXPECT_EQ(made.job.resources.ranks_per_node, 2);
  EXPECT_EQ(made.job.restart.max_without_progress, 1);
  EXPECT_EQ(made.job.env.at("NCCL_DEBUG"), "INFO");
  EXPECT_THAT(made.job.env.at("HPARAMS"), HasSubstr("max_steps: 5000"));
  const std::string head =
      "entrypoint: python -m determined.launch.torch_distributed python t.py\n";
  EXPECT_EQ(Convert(head + "resources: {slots_per_trial: 16}\n").job.resources.nodes, 2);
  EXPECT_THAT(Refused(head + "searcher: {name: grid}\n"),
              ElementsAre(HasSubstr("searcher.name: one trial")));
  EXPECT_THAT(Refused(head + "hyperparameters: {r: {type: int, minval: 1, maxval: 4}}\n"),
              Not(IsEmpty()));
  EXPECT_THAT(Refused("entrypoint: model:Trial\nsearcher: {name: single}\n"),
              ElementsAre(HasSubstr("only Determined runs")));
  EXPECT_THAT(Refused("entrypoint: python -m determined.launch.horovod t.py\n"),
              ElementsAre(HasSubstr("torch_distributed and deepspeed")));
  EXPECT_THAT(Convert("entrypoint: cd a && python t.py\nsearcher: {name: single}\n").job.command,
              ElementsAre("sh", "-c", "cd a && python t.py"));
}

TEST(MigrateDetermined, IsNoCommandWhereItsEntrypointIsTorchrun) {
  const Converted made = Convert("entrypoint: torchrun t.py\nsearcher: {name: single}\n");
  EXPECT_EQ(made.migration.tool, "determined");
  EXPECT_THAT(made.job.command, ElementsAre("torchrun", "t.py"));
}

TEST(Migrate, QuotesWhatAConfigurationNames) {
  const Converted made = Convert(
      "base_model: m\nsequence_len: 8\ndatasets: [{path: \"a\\\"b\\nc\", type: chat_template}]\n");
  EXPECT_THAT(made.migration.yaml,
              HasSubstr("#   rows = load_dataset(\"a\\\"b\\nc\", split=\"train\")\n"));
  EXPECT_THAT(Refused("base_model: \xff\n"), ElementsAre(HasSubstr("UTF-8")));
}

TEST(Migrate, SaysWhenNoToolFits) {
  EXPECT_THAT(Refused("a: 1\n"), ElementsAre(HasSubstr("name it by --from")));
  EXPECT_THAT(Refused("just words"), ElementsAre(HasSubstr("expected a map")));
  EXPECT_FALSE(Migrate("a: 1", "f", "torchrun", {}).ok());
}

TEST(Migrate, ReportsRefusalsLast) {
  const auto made = Migrate(std::string(kAxolotl) + "rl: dpo\nwandb_project: p\n", "f", "", {});
  ASSERT_TRUE(made.ok());
  const std::string report = Report(*made, "f", false);
  EXPECT_THAT(report, AllOf(HasSubstr("taken      f:1: base_model: m -> train.model.path"),
                            HasSubstr("explained  f:5: wandb_project: p: metrics.jsonl")));
  EXPECT_TRUE(report.find("refused    f:4: rl: dpo: ") > report.find("look at")) << report;
  EXPECT_THAT(Report(*made, "f", true), Not(HasSubstr("taken ")));
}

}  // namespace
}  // namespace muster::migrate
