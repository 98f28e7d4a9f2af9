// The train block's values and which of them go together; parse_test.cc has what every key shares.
#include "common/job_spec/train_block.h"

#include <gtest/gtest.h>

#include "common/job_spec/parse.h"

namespace muster {
namespace {

// A job whose train block ends with `more`, which begins on line 7.
Result<TrainSpec> Train(const std::string& more, const std::string& schedule = "max_steps: 100") {
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec,
                          ParseJobSpec("name: j\ntrain:\n  model: {path: m}\n"
                                       "  data: {train: d.jsonl}\n"
                                       "  schedule: {" +
                                           schedule + "}\n  seed: 1\n  " + more + "\n",
                                       "job.yaml"));
  return *spec.train;
}

std::string Refusal(const std::string& more) {
  const auto train = Train(more);
  return train.ok() ? "" : train.status().message();
}

TEST(TrainBlock, ReadsEveryStrategy) {
  const std::pair<const char*, ShardingStrategy> strategies[] = {
      {"full_shard", ShardingStrategy::kFullShard},
      {"shard_grad_op", ShardingStrategy::kShardGradOp},
      {"no_shard", ShardingStrategy::kNoShard},
      {"hybrid_shard", ShardingStrategy::kHybridShard},
      {"hybrid_shard_zero2", ShardingStrategy::kHybridShardZero2}};
  for (const auto& [word, strategy] : strategies) {
    const auto train = Train(std::string("fsdp: {strategy: ") + word + ", blocks_per_unit: 4}");
    ASSERT_TRUE(train.ok()) << train.status().ToString();
    EXPECT_EQ(train->fsdp.strategy, strategy);
    EXPECT_EQ(train->fsdp.blocks_per_unit, 4);
  }
}

// The model block of a job, on line 3.
Result<ModelSpec> Model(const std::string& more) {
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec,
                          ParseJobSpec("name: j\ntrain:\n  model: {path: m, " + more +
                                           "}\n  data: {train: d.jsonl}\n"
                                           "  schedule: {max_steps: 1}\n",
                                       "job.yaml"));
  return spec.train->model;
}

TEST(TrainBlock, ReadsNewTokens) {
  EXPECT_FALSE(Model("add_tokens: null")->add_tokens.has_value());
  EXPECT_TRUE(Model("add_tokens: []")->add_tokens->empty());
  const auto model = Model(
      "add_tokens: ['<|x|>', {content: '<tool>', special: false}, {content: <y>}], "
      "pad_vocab_to: 64");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->pad_vocab_to, 64);
  ASSERT_EQ(model->add_tokens->size(), 3u);
  EXPECT_EQ((*model->add_tokens)[0].content, "<|x|>");
  EXPECT_TRUE((*model->add_tokens)[0].special);
  EXPECT_EQ((*model->add_tokens)[1].content, "<tool>");
  EXPECT_FALSE((*model->add_tokens)[1].special);
  EXPECT_TRUE((*model->add_tokens)[2].special);
}

TEST(TrainBlock, RefusesTokensThatAreNone) {
  const auto refusal = [](const std::string& more) { return Model(more).status().message(); };
  EXPECT_EQ(refusal("add_tokens: ''"),
            "job.yaml:3: train.model.add_tokens: expected a list of tokens such as ['<|tool|>', "
            "'<|end|>']");
  EXPECT_EQ(refusal("add_tokens: ['']"),
            "job.yaml:3: train.model.add_tokens: has an entry without a text");
  EXPECT_EQ(refusal("add_tokens: [[a]]"),
            "job.yaml:3: train.model.add_tokens: has an entry without a text");
  EXPECT_EQ(refusal("add_tokens: [a, b, a]"),
            "job.yaml:3: train.model.add_tokens: names 'a' twice");
  EXPECT_NE(refusal("add_tokens: [{content: a, lstrip: true}]").find("add_tokens[0].lstrip"),
            std::string::npos);
  EXPECT_NE(refusal("add_tokens: [{special: true}]").find("train.model.add_tokens[0].content"),
            std::string::npos);
  EXPECT_EQ(refusal("pad_vocab_to: 0"),
            "job.yaml:3: train.model.pad_vocab_to: must be from 1 to 65536, got 0");
}

TEST(TrainBlock, ReadsAdapters) {
  EXPECT_FALSE(Train("lora: null")->lora.has_value());
  const auto plain = Train("lora: {}");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(plain->lora->r, 16);
  EXPECT_EQ(plain->lora->alpha, 32);
  EXPECT_EQ(plain->lora->target_modules, kAllLinear);
  const auto all = Train(
      "lora: {r: 8, dropout: 0.25, rslora: true, bias: lora_only, target_modules: [v_proj, q_proj, "
      "v_proj], modules_to_save: [embed_tokens], init_from: adapters/a}");
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_EQ(all->lora->alpha, 16) << "twice the rank";
  EXPECT_EQ(all->lora->dropout, 0.25);
  EXPECT_EQ(plain->lora->dropout, 0);
  EXPECT_NE(
      Refusal("lora: {dropout: 1}").find("train.lora.dropout: must be at least 0 and below 1"),
      std::string::npos);
  // It ended a rank with an error of ours, and the job was tried again.
  EXPECT_NE(Refusal("lora: {alpha: 1e300}").find("train.lora.alpha: must be above 0, at most"),
            std::string::npos);
  EXPECT_TRUE(all->lora->rslora);
  EXPECT_EQ(all->lora->bias, LoraBias::kLoraOnly);
  EXPECT_EQ(all->lora->target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(all->lora->modules_to_save, std::vector<std::string>{"embed_tokens"});
  EXPECT_EQ(all->lora->init_from, "adapters/a");
  const auto experts =
      Train("lora: {target_modules: [mlp.experts.down_proj, o_proj, mlp.experts.gate_up_proj]}");
  ASSERT_TRUE(experts.ok()) << experts.status().ToString();
  EXPECT_EQ(
      experts->lora->target_modules,
      (std::vector<std::string>{"o_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  const auto shared =
      Train("lora: {target_modules: [shared_expert_gate, shared_expert.up_proj, q_proj]}");
  ASSERT_TRUE(shared.ok()) << shared.status().ToString();
  EXPECT_EQ(shared->lora->target_modules,
            (std::vector<std::string>{"q_proj", "shared_expert.up_proj", "shared_expert_gate"}));
}

TEST(TrainBlock, ReadsQuantizationBesideAdapters) {
  EXPECT_FALSE(Train("lora: {}")->quantization.has_value());
  const auto plain = Train("lora: {}\n  quantization: {}");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_TRUE(plain->quantization->double_quant);
  const auto once = Train("lora: {}\n  quantization: {kind: nf4, double_quant: false}");
  ASSERT_TRUE(once.ok()) << once.status().ToString();
  EXPECT_FALSE(once->quantization->double_quant);
  EXPECT_NE(Refusal("quantization: {}").find("needs a lora section"), std::string::npos);
  EXPECT_NE(Refusal("lora: {}\n  quantization: {kind: int8}").find("not supported"),
            std::string::npos);
}

// A job with rows to evaluate on, whose eval section begins on line 6.
Result<TrainSpec> Evaluated(const std::string& eval, const std::string& more = "") {
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec,
                          ParseJobSpec("name: j\ntrain:\n  model: {path: m}\n"
                                       "  data: {train: d.jsonl, eval_ratio: 0.1}\n"
                                       "  schedule: {max_steps: 100}\n  eval: " +
                                           eval + "\n" + more,
                                       "job.yaml"));
  return *spec.train;
}

TEST(TrainBlock, ReadsWhenAndHowItEvaluates) {
  const auto plain = Evaluated("null", "  checkpoint: {every: 20}\n");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_TRUE(plain->evaluates());
  EXPECT_TRUE(plain->keeps_best());
  EXPECT_EQ(plain->eval_every(), 20);
  EXPECT_EQ(plain->eval.early_stop.patience, 0);
  EXPECT_EQ(plain->output_export, ExportedState::kLast);
  const auto all = Evaluated(
      "{every: 7, at_start: true, samples: ['Who is it?', Once], max_new_tokens: 9,\n"
      "    early_stop: {patience: 3, min_delta: 0.01}}",
      "  output: {export: best}\n");
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_EQ(all->eval_every(), 7);
  EXPECT_TRUE(all->eval.at_start);
  EXPECT_EQ(all->eval.samples, (std::vector<std::string>{"Who is it?", "Once"}));
  EXPECT_EQ(all->eval.max_new_tokens, 9);
  EXPECT_EQ(all->eval.early_stop.patience, 3);
  EXPECT_EQ(all->eval.early_stop.min_delta, 0.01);
  EXPECT_EQ(all->output_export, ExportedState::kBest);
  EXPECT_FALSE(Evaluated("{keep_best: false}")->keeps_best());
  EXPECT_FALSE(Train("eval: null")->evaluates());
}

TEST(TrainBlock, RefusesEvaluationsThatMeanNothing) {
  const auto refusal = [](const std::string& eval, const std::string& more = "") {
    return Evaluated(eval, more).status().message();
  };
  EXPECT_EQ(refusal("{every: 0}"),
            "job.yaml:6: train.eval.every: must be from 1 to 1000000000, "
            "got 0");
  EXPECT_EQ(refusal("{max_new_tokens: 5000}"),
            "job.yaml:6: train.eval.max_new_tokens: must be from 1 to 4096, got 5000");
  EXPECT_EQ(refusal("{samples: [a, '']}"),
            "job.yaml:6: train.eval.samples: has a prompt without text");
  EXPECT_EQ(refusal("{early_stop: {patience: 0}}"),
            "job.yaml:6: train.eval.early_stop.patience: must be from 1 to 1000000, got 0");
  EXPECT_EQ(refusal("{early_stop: {patience: 2, min_delta: -1}}"),
            "job.yaml:6: train.eval.early_stop.min_delta: must be 0 or more, got -1");
  EXPECT_NE(refusal("{early_stop: {min_delta: 1}}").find("train.eval.early_stop"),
            std::string::npos);
  EXPECT_NE(refusal("{evry: 3}").find("train.eval.evry"), std::string::npos);
  EXPECT_EQ(refusal("{keep_best: false}", "  output: {export: best}\n"),
            "job.yaml:7: train.output.export: best needs eval.keep_best: true");
}

TEST(TrainBlock, ReadsTheChatTemplateByNameOrPath) {
  const auto data = [](const std::string& chat_template) {
    return ParseJobSpec(
        "name: j\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl, chat_template: " +
            chat_template + "}\n  schedule: {max_steps: 1}\n",
        "job.yaml");
  };
  for (const char* word : {"auto", "none", "chatml", "llama2", "llama3", "mistral", "zephyr",
                           "openassistant", "templates/mine.jinja"}) {
    const auto spec = data(word);
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->train->data.chat_template, word);
  }
  EXPECT_EQ(data("vicuna").status().message(),
            "job.yaml:4: train.data.chat_template: must be auto, none, chatml, llama2, llama3, "
            "mistral, zephyr, openassistant, or the path of a .jinja file, got 'vicuna'");
}

// The data block of a job whose rows are described by `data`, on line 4.
Result<DataSpec> Data(const std::string& data) {
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec,
                          ParseJobSpec("name: j\ntrain:\n  model: {path: m}\n  data: {" + data +
                                           "}\n  schedule: {max_steps: 1}\n",
                                       "job.yaml"));
  return spec.train->data;
}

TEST(TrainBlock, ReadsTheDayThatTemplatesWrite) {
  EXPECT_EQ(Data("train: d.jsonl, chat_date: 2026-01-31")->chat_date, "2026-01-31");
  for (const char* day : {"2026-02-30", "today", "2026-01-31T03:42", "31.1.2026"})
    EXPECT_EQ(Data("train: d.jsonl, chat_date: " + std::string(day)).status().message(),
              "job.yaml:4: train.data.chat_date: must be a day such as 2026-01-31, got '" +
                  std::string(day) + "'");
}

TEST(TrainBlock, ReadsWhichRowsAndWhatOfThem) {
  const auto list = Data("train: [a.jsonl, b/], text_field: content, cache: /tmp/tokens");
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  EXPECT_EQ(list->train, (std::vector<std::string>{"a.jsonl", "b/"}));
  EXPECT_EQ(list->text_field, "content");
  EXPECT_EQ(list->cache, "/tmp/tokens");
  EXPECT_EQ(Data("train: d.jsonl, eval: null, cache: none")->cache, "none");
  EXPECT_EQ(Data("train: d.jsonl, eval: [e.jsonl, more/]")->eval,
            (std::vector<std::string>{"e.jsonl", "more/"}));
  EXPECT_EQ(Data("train: d.jsonl, eval_ratio: 0.05")->eval_ratio, 0.05);
  EXPECT_EQ(Data("train: d.jsonl")->text_field, "text");
  EXPECT_TRUE(Data("train: d.jsonl, packing: true")->packing);
  EXPECT_FALSE(Data("train: d.jsonl")->packing);
  EXPECT_TRUE(Data("train: d.jsonl, group_by_length: true")->group_by_length);
  EXPECT_TRUE(Data("train: d.jsonl, train_on: all")->train_on_all);
  EXPECT_FALSE(Data("train: d.jsonl, train_on: answers")->train_on_all);
}

TEST(TrainBlock, RefusesRowsThatAreNotRead) {
  const auto refusal = [](const std::string& data) { return Data(data).status().message(); };
  EXPECT_EQ(refusal("train: [a.jsonl, b.csv]"),
            "job.yaml:4: train.data.train: expected rows in .jsonl or .json (also with .gz), token "
            "ids in .npy or .bin, or a folder of them (with / at its end), got 'b.csv'");
  EXPECT_EQ(refusal("train: []"), "job.yaml:4: train.data.train: names no file");
  EXPECT_EQ(refusal("train: {a: b}"), "job.yaml:4: train.data.train: expected a text, got a map");
  EXPECT_EQ(refusal("train: d.jsonl, eval_ratio: 1"),
            "job.yaml:4: train.data.eval_ratio: must be above 0 and below 1, got 1");
  EXPECT_EQ(refusal("train: d.jsonl, eval: e.jsonl, eval_ratio: 0.1"),
            "job.yaml:4: train.data.eval_ratio: give either eval or eval_ratio, not both");
  EXPECT_EQ(refusal("train: d.jsonl, eval: []"), "job.yaml:4: train.data.eval: names no file");
  EXPECT_EQ(refusal("train: d.jsonl, group_by_length: true, packing: true"),
            "job.yaml:4: train.data.group_by_length: packed rows are all as long; give either it "
            "or packing");
  EXPECT_EQ(refusal("train: d.jsonl, group_by_length: true, shuffle: false"),
            "job.yaml:4: train.data.group_by_length: changes the order of rows; leave shuffle out");
  EXPECT_EQ(refusal("train: d.jsonl, text_field: 7"),
            "job.yaml:4: train.data.text_field: expected a text, got 7; put it in quotes");
}

TEST(TrainBlock, ReadsEveryPrecisionAndTheTypesBesideIt) {
  const auto train = Train(
      "fsdp: {mixed_precision: fp16, reduce_dtype: fp16, buffer_dtype: bf16, reduce: step}\n"
      "  optimizer: {master_weights: bf16, moments: fp32}");
  ASSERT_TRUE(train.ok()) << train.status().ToString();
  EXPECT_EQ(train->fsdp.mixed_precision, MixedPrecision::kFp16);
  EXPECT_EQ(train->fsdp.reduce_dtype, StateType::kFp16);
  EXPECT_EQ(train->fsdp.buffer_dtype, StateType::kBf16);
  EXPECT_FALSE(train->fsdp.reduce_every_micro_batch);
  EXPECT_EQ(train->optimizer.master_weights, StateType::kBf16);
  EXPECT_EQ(train->optimizer.moments, StateType::kFp32);
  EXPECT_EQ(Train("fsdp: {mixed_precision: bf16}")->fsdp.mixed_precision, MixedPrecision::kBf16);
  EXPECT_EQ(Train("fsdp: {mixed_precision: fp32}")->fsdp.mixed_precision, MixedPrecision::kFp32);
  const auto wide = Train("fsdp: {mixed_precision: fp64, reduce_dtype: fp64, buffer_dtype: fp64}");
  ASSERT_TRUE(wide.ok()) << wide.status().ToString();
  EXPECT_EQ(wide->fsdp.mixed_precision, MixedPrecision::kFp64);
}

TEST(TrainBlock, ReadsHowLargeTheFilesOfTheModelMayBe) {
  EXPECT_EQ(Train("")->output_max_shard_bytes, 5'000'000'000);
  EXPECT_EQ(Train("output: {max_shard_size: 200MiB}")->output_max_shard_bytes, 200 << 20);
  EXPECT_EQ(Train("output: {max_shard_size: 1000000}")->output_max_shard_bytes, 1'000'000);
  EXPECT_EQ(Refusal("output: {max_shard_size: 5 shards}"),
            "job.yaml:7: train.output.max_shard_size: expected a size such as 5GB, 512MiB or a "
            "number of bytes, got '5 shards'");
}

TEST(TrainBlock, ReadsHowActivationsAndStateAreKept) {
  const std::pair<const char*, ActivationCheckpointing> kinds[] = {
      {"none", ActivationCheckpointing::kNone},
      {"selective", ActivationCheckpointing::kSelective},
      {"full", ActivationCheckpointing::kFull},
      {"full_offload", ActivationCheckpointing::kFullOffload}};
  for (const auto& [word, kind] : kinds) {
    const auto train = Train(std::string("fsdp: {activation_checkpointing: ") + word + "}");
    ASSERT_TRUE(train.ok()) << train.status().ToString();
    EXPECT_EQ(train->fsdp.activation_checkpointing, kind);
    EXPECT_FALSE(train->fsdp.cpu_offload);
  }
  EXPECT_TRUE(Train("fsdp: {cpu_offload: true}")->fsdp.cpu_offload);
}

TEST(TrainBlock, ReadsWarmUpAsRatioOrSteps) {
  EXPECT_FALSE(Train("", "max_steps: 9, kind: linear, warmup_ratio: 0.5")->schedule.warmup_steps);
  const auto train = Train("", "max_steps: 9, kind: linear, warmup_steps: 0");
  ASSERT_TRUE(train.ok()) << train.status().ToString();
  EXPECT_EQ(train->schedule.kind, "linear");
  EXPECT_EQ(train->schedule.warmup_steps, 0);
}

TEST(TrainBlock, ReadsWhereTheStateComesFrom) {
  EXPECT_EQ(Train("init_from: null")->init_from.path, "");
  const auto path = Train("init_from: old/checkpoints");
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  EXPECT_EQ(path->init_from.path, "old/checkpoints");
  EXPECT_FALSE(path->init_from.optimizer);
  const auto map = Train("init_from: {path: old.safetensors, optimizer: true}");
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_EQ(map->init_from.path, "old.safetensors");
  EXPECT_TRUE(map->init_from.optimizer);
}

TEST(TrainBlock, ReadsTheProfileAndTheNonFinitePolicy) {
  const auto train = Train("profile: {start: 98, steps: 3}\n  nonfinite: skip");
  ASSERT_TRUE(train.ok()) << train.status().ToString();
  EXPECT_EQ(train->profile.start, 98);
  EXPECT_EQ(train->profile.steps, 3);
  EXPECT_EQ(train->nonfinite, NonFinitePolicy::kSkip);
  EXPECT_EQ(Train("")->profile.start, 0);
  EXPECT_EQ(Train("nonfinite: stop")->nonfinite, NonFinitePolicy::kStop);
  EXPECT_TRUE(Train("profile: {start: 5000}", "epochs: 1").ok()) << "how long is not known yet";
}

TEST(TrainBlock, RefusesWhatDoesNotGoTogether) {
  EXPECT_EQ(Refusal("fsdp: {reduce_dtype: fp16}"),
            "job.yaml:7: train.fsdp.reduce_dtype: must be fp32 or bf16 with mixed_precision bf16, "
            "got 'fp16'");
  EXPECT_EQ(Refusal("fsdp: {mixed_precision: fp32, reduce_dtype: bf16}"),
            "job.yaml:7: train.fsdp.reduce_dtype: must be fp32 with mixed_precision fp32, got "
            "'bf16'");
  EXPECT_EQ(Refusal("fsdp: {mixed_precision: fp16, reduce_dtype: bf16}"),
            "job.yaml:7: train.fsdp.reduce_dtype: must be fp32 or fp16 with mixed_precision fp16, "
            "got 'bf16'");
  EXPECT_EQ(Refusal("fsdp: {mixed_precision: fp64, reduce_dtype: fp32}"),
            "job.yaml:7: train.fsdp.reduce_dtype: must be fp64 with mixed_precision fp64, got "
            "'fp32'");
  EXPECT_EQ(Refusal("fsdp: {buffer_dtype: fp64}"),
            "job.yaml:7: train.fsdp.buffer_dtype: can be fp64 only with mixed_precision fp64");
  EXPECT_EQ(Refusal("fsdp: {mixed_precision: fp64}\n  optimizer: {master_weights: bf16}"),
            "job.yaml:8: train.optimizer.master_weights: is fp64 with mixed_precision fp64; leave "
            "it out");
  EXPECT_EQ(Refusal("fsdp: {mixed_precision: fp64}\n  optimizer: {moments: fp32}"),
            "job.yaml:8: train.optimizer.moments: is fp64 with mixed_precision fp64; leave it out");
  EXPECT_EQ(Refusal("profile: {start: 99}"),
            "job.yaml:7: train.profile.start: the last profiled step would be 101, but "
            "schedule.max_steps is 100");
}

TEST(TrainBlock, RefusesWarmUpsThatDoNotFit) {
  const auto both = Train("", "max_steps: 9, warmup_ratio: 0.1, warmup_steps: 1");
  EXPECT_EQ(both.status().message(),
            "job.yaml:5: train.schedule.warmup_steps: give either warmup_ratio or warmup_steps, "
            "not both");
  EXPECT_EQ(Train("", "max_steps: 9, warmup_steps: 10").status().message(),
            "job.yaml:5: train.schedule.warmup_steps: must not be more than max_steps");
}

TEST(TrainBlock, RefusesUnknownValuesByName) {
  EXPECT_EQ(Refusal("fsdp: {strategy: zero3}"),
            "job.yaml:7: train.fsdp.strategy: expected full_shard, shard_grad_op, no_shard, "
            "hybrid_shard or hybrid_shard_zero2, got 'zero3'");
  EXPECT_EQ(Refusal("fsdp: {mixed_precision: fp8}"),
            "job.yaml:7: train.fsdp.mixed_precision: not supported in this version: 'fp8'; use "
            "bf16, fp16, fp32 or fp64");
  EXPECT_EQ(Refusal("fsdp: {blocks_per_unit: 0}"),
            "job.yaml:7: train.fsdp.blocks_per_unit: must be from 1 to 1024, got 0");
  EXPECT_EQ(Refusal("fsdp: {expert_parallel: 0}"),
            "job.yaml:7: train.fsdp.expert_parallel: must be from 1 to 1024, got 0");
  EXPECT_EQ(Refusal("fsdp: {expert_parallel: 2}"),
            "job.yaml:7: train.fsdp.expert_parallel: must divide the 1 ranks of the job, got 2");
  EXPECT_EQ(Refusal("fsdp: {expert_parallel: 2, strategy: hybrid_shard}"),
            "job.yaml:7: train.fsdp.expert_parallel: must divide the 1 ranks of a node, got 2");
  EXPECT_EQ(Refusal("fsdp: {expert_parallel: 2, strategy: no_shard}"),
            "job.yaml:7: train.fsdp.expert_parallel: divides experts among ranks that share a "
            "model, and with no_shard none do; use full_shard");
  EXPECT_EQ(Refusal("optimizer: {moments: fp16}"),
            "job.yaml:7: train.optimizer.moments: expected fp32 or bf16, got 'fp16'");
  EXPECT_EQ(Refusal("nonfinite: ignore"),
            "job.yaml:7: train.nonfinite: expected stop or skip, got 'ignore'");
  EXPECT_EQ(Refusal("profile: {steps: 3}"),
            "job.yaml:7: train.profile.start: is missing; give the first step to profile, counted "
            "from 1");
  EXPECT_EQ(Refusal("init_from: {optimizer: true}"),
            "job.yaml:7: train.init_from.path: is missing; give the path of a checkpoint or of a "
            "full state dict");
  EXPECT_EQ(Refusal("init_from: 7"),
            "job.yaml:7: train.init_from: expected a text, got 7; put it in quotes");
}

}  // namespace
}  // namespace muster
