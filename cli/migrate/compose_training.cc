// Implements the part of fields.h that makes a train job of a training configuration.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/migrate/fields.h"
#include "common/base/strings.h"
#include "common/job_spec/job_spec.h"
#include "common/job_spec/lora_targets.h"

namespace muster::migrate {
namespace {

constexpr int kUnlimitedRows = 8192;  // tokens, where the tool cuts no row

// Stanford Alpaca's words around an instruction, which axolotl and torchtune write as well.
constexpr char kAlpaca[] =
    R"(def alpaca(row):
    more, given = ", paired with an input that provides further context", row.get("input")
    prompt = "Below is an instruction that describes a task" + (more if given else "")
    prompt += ". Write a response that appropriately completes the request.\n\n"
    prompt += "### Instruction:\n" + row["instruction"] + "\n\n"
    prompt += ("### Input:\n" + given + "\n\n" if given else "") + "### Response:\n"
    return {"prompt": prompt, "completion": row["output"]}
)";
// Other names for the keys of turns, and for roles.
constexpr char kTurns[] =
    R"(ROLES = {"human": "user", "gpt": "assistant"}
def turns(row, names):
    said = [{names.get(k, k): v for k, v in turn.items()} for turn in row["messages"]]
    return {"messages": [dict(t, role=ROLES.get(t["role"], t["role"])) for t in said]}
)";

std::string Flow(const std::vector<std::string>& elements) {
  std::string text;
  for (const std::string& each : elements) text += (text.empty() ? "" : ", ") + each;
  return "[" + text + "]";
}

void ComposeMachines(Fields& f) {
  std::string dir = f.GetOr("output_dir", "");
  while (dir.ends_with('/')) dir.pop_back();
  std::string stem = std::filesystem::path(f.document().file).stem().string();
  if (!dir.empty()) stem = std::filesystem::path(dir).filename().string();
  f.SetText("name", JobName(stem, "migrated"));
  f.Set("resources",
        "{nodes: 1, ranks_per_node: " + f.GetOr("ranks", "1") +
            ", device: " + std::string(f.On("use_cpu") ? "cpu" : "cuda") + "}",
        {"use_cpu", "ranks"});
  if (f.Given("ranks")) return;
  f.Remark(
      "resources: the configuration does not say on how many GPUs it runs; set resources.nodes and "
      "resources.ranks_per_node. A step reads batch.per_rank x batch.accumulation x ranks rows");
}

void ComposeModel(Fields& f) {
  const std::string model = f.GetOr("model", "");
  const std::string revision = f.GetOr("model_revision", "main");
  if (model.empty())
    return f.Refuse("model", "the model is missing; add --set train.model.path=DIR");
  f.SetText("train.model.path", model + (revision == "main" ? "" : "@" + revision),
            {"model", "model_revision"});
}

constexpr std::string_view kAdapterFields[] = {
    "lora_r",     "lora_alpha",  "lora_dropout", "lora_target_modules", "lora_modules_to_save",
    "use_rslora", "adapter_init"};

void ComposeTargets(Fields& f) {
  std::vector<std::string> modules = f.List("lora_target_modules");
  for (std::string& each : modules) {
    if (each == "output_proj") each = "o_proj";
    if (each == "all-linear" || each == "all")
      return f.Set("train.lora.target_modules", "all-linear", {"lora_target_modules"});
    if (std::ranges::count(kAdapterModules, each) == 0)
      return f.Refuse("lora_target_modules", "adapters are on " + Join(kAdapterModules) +
                                                 ", not on '" + each +
                                                 "'; train it whole by train.lora.modules_to_save");
  }
  if (!modules.empty()) f.Set("train.lora.target_modules", Flow(modules), {"lora_target_modules"});
}

void ComposeAdapters(Fields& f) {
  const bool four_bits = f.On("load_in_4bit");
  if (!f.On("use_peft")) {
    for (const std::string_view field : kAdapterFields)
      f.Explain(field, "the model is trained whole, without adapters");
    if (four_bits) f.Refuse("load_in_4bit", "a model in 4 bits is trained with adapters only");
    f.Explain("use_peft", "the model is trained whole");
    f.Explain("load_in_4bit", "weights are not quantised");
    for (const std::string_view field : {"quant_type", "double_quant"})
      f.Explain(field, "weights are not quantised");
    return;
  }
  f.SetNumber("train.lora.r", "lora_r", true);
  f.SetNumber("train.lora.alpha", "lora_alpha");
  f.SetNumber("train.lora.dropout", "lora_dropout");
  if (f.Get("use_rslora"))
    f.Set("train.lora.rslora", f.On("use_rslora") ? "true" : "false", {"use_rslora"});
  ComposeTargets(f);
  if (const auto saved = f.List("lora_modules_to_save"); !saved.empty())
    f.Set("train.lora.modules_to_save", Flow(saved), {"lora_modules_to_save"});
  if (const std::string init = f.GetOr("adapter_init", ""); !init.empty())
    f.SetText("train.lora.init_from", init, {"adapter_init"});
  f.Explain("use_peft", "the train.lora section");
  if (!four_bits) {
    for (const std::string_view field : {"load_in_4bit", "quant_type", "double_quant"})
      f.Explain(field, "weights are not quantised");
    return;
  }
  const std::string twice = f.On("double_quant") ? "true" : "false";
  f.Set("train.quantization", "{kind: nf4, double_quant: " + twice + "}",
        {"load_in_4bit", "quant_type", "double_quant"});
}

bool IsLocalFile(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".json") || path.ends_with(".jsonl.gz") ||
         path.ends_with(".json.gz");
}

// Whether the file of a source is read as it is.
bool IsReady(const RowSource& rows) {
  return IsLocalFile(rows.path) && rows.form.empty() && rows.rename.empty() &&
         rows.turn_rename.empty() && rows.column.empty() && rows.limit.empty();
}

std::string FileOf(const RowSource& rows) {
  if (IsReady(rows)) return rows.path;
  std::string name = rows.path + (rows.subset.empty() ? "" : "-" + rows.subset) +
                     (rows.split == "train" ? "" : "-" + rows.split);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.')
      c = '-';
  return "rows/" + name + ".jsonl";
}

void ComposeRows(Fields& f) {
  const auto files = [](const std::vector<RowSource>& sources) {
    std::vector<std::string> paths;
    for (const RowSource& each : sources) paths.push_back(Quoted(FileOf(each)));
    return Flow(paths);
  };
  if (f.rows.empty())
    return f.Refuse("dataset", "the rows are missing; add --set train.data.train=FILE");
  f.Set("train.data.train", files(f.rows), {"dataset"});
  if (!f.eval_rows.empty()) f.Set("train.data.eval", files(f.eval_rows), {"eval_dataset"});
  const double share = f.Number("val_size").value_or(0);
  if (share >= 1)
    f.Refuse("val_size", "a number of rows; give a share of them below 1");
  else if (share > 0)
    f.SetNumber("train.data.eval_ratio", "val_size");
  else
    f.Explain("val_size", "no rows are set aside");
}

void ComposeData(Fields& f) {
  ComposeRows(f);
  if (f.GetOr("max_length", "") == "unlimited") {
    f.Set("train.data.max_seq_len", std::to_string(kUnlimitedRows), {"max_length"});
    f.Remark("train.data.max_seq_len: " + f.out().tool +
             " cuts no row here; longer rows than this are cut, and the job says how many");
  } else {
    f.SetNumber("train.data.max_seq_len", "max_length", true);
  }
  if (const std::string field = f.GetOr("text_field", "text"); field != "text")
    f.SetText("train.data.text_field", field, {"text_field"});
  f.Explain("text_field", "the default of train.data.text_field");
  f.SetText("train.data.chat_template", f.GetOr("chat_template", "auto"), {"chat_template"});
  f.Set("train.data.train_on", f.On("train_on_all") ? "all" : "answers", {"train_on_all"});
  const std::string order = f.GetOr("sampling", "random");
  f.Set("train.data.shuffle", order == "sequential" ? "false" : "true", {"sampling"});
  const bool packs = f.On("packing");
  f.Set("train.data.packing", packs ? "true" : "false", {"packing"});
  if (order != "group_by_length") return;
  if (packs) return f.Explain("sampling", "packed rows are all as long");
  f.Set("train.data.group_by_length", "true", {"sampling"});
}

void ComposePrecision(Fields& f) {
  const bool fp16 = f.On("fp16");
  const bool bf16 = f.On("bf16") && !fp16;
  const std::string type = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
  f.Set("train.fsdp.mixed_precision", type, {"bf16", "fp16"});
  const std::string weights = f.On("use_peft") ? "adapters_type" : "weights_type";
  const bool pure = bf16 && f.GetOr(weights, "fp32") == "bf16";
  f.Set("train.optimizer.master_weights", pure ? "bf16" : "fp32", {"weights_type"});
  f.Set("train.optimizer.moments", pure ? "bf16" : "fp32");
  if (pure)
    f.Remark(
        "train.optimizer.master_weights: " + f.out().tool +
        " holds weights and moments in bf16 here, which loses small updates; fp32 trains better");
}

void ComposeSharding(Fields& f) {
  for (const std::string& word : f.List("fsdp")) {
    if (word == "auto_wrap" || word == "offload" || word == "true") continue;
    if (word != "full_shard" && word != "shard_grad_op" && word != "no_shard" &&
        word != "hybrid_shard" && word != "hybrid_shard_zero2")
      return f.Refuse("fsdp", "expected full_shard, shard_grad_op, no_shard or hybrid_shard");
    f.Set("train.fsdp.strategy", word, {"fsdp"});
  }
  f.Explain("fsdp_reshard", "train.fsdp.strategy: full_shard reshards after forward");
  if (f.GetOr("fsdp_reshard", "") == "false")
    f.Set("train.fsdp.strategy", "shard_grad_op", {"fsdp_reshard"});
  if (const auto strategy = f.Get("fsdp_strategy"))
    f.Set("train.fsdp.strategy", AsciiLower(*strategy), {"fsdp_strategy"});
  const auto words = f.List("fsdp");
  if (f.On("fsdp_offload") || std::ranges::count(words, "offload") > 0)
    f.Set("train.fsdp.cpu_offload", "true", {"fsdp_offload", "fsdp"});
  f.Explain("fsdp_offload", "state stays on the devices");
  const std::string checkpointing = f.GetOr("gradient_checkpointing", "false");
  const bool offloads = f.On("activation_offloading") || checkpointing == "offload";
  if (offloads)
    f.Set("train.fsdp.activation_checkpointing", "full_offload",
          {"activation_offloading", "gradient_checkpointing"});
  else if (BooleanIn(checkpointing).value_or(true))
    f.Set("train.fsdp.activation_checkpointing", "full", {"gradient_checkpointing"});
  f.Explain("activation_offloading",
            "off; all levels of train.fsdp.activation_checkpointing give the same numbers");
  if (!offloads)
    f.Explain("gradient_checkpointing",
              "train.fsdp.activation_checkpointing, whose levels all give the same numbers");
  f.out().deepspeed_file = f.GetOr("deepspeed", "");
  if (!f.out().deepspeed_file.empty()) f.Explain("deepspeed", "its settings are put into the job");
}

void ComposeOptimizer(Fields& f) {
  f.SetNumber("train.optimizer.lr", "learning_rate");
  f.Set("train.optimizer.betas",
        "[" + f.GetOr("adam_beta1", "0.9") + ", " + f.GetOr("adam_beta2", "0.999") + "]",
        {"adam_beta1", "adam_beta2"});
  f.SetNumber("train.optimizer.eps", "adam_epsilon");
  f.SetNumber("train.optimizer.weight_decay", "weight_decay");
  if (f.GetOr("decay", "") == "matrices" && f.Number("weight_decay").value_or(0) > 0 &&
      !f.On("use_peft"))
    f.Remark("train.optimizer.weight_decay: " + f.out().tool +
             " leaves norms and biases out of the decay; here it is on all weights");
  f.SetNumber("train.optimizer.grad_clip", "max_grad_norm");
  const std::string kind = f.GetOr("optim", "adamw");
  f.Explain("optim", kind == "adamw" ? "AdamW is the optimizer there is"
                                     : "AdamW; its moments are kept in more bits here "
                                       "(train.optimizer.moments)");
}

void ComposeSchedule(Fields& f) {
  const std::string kind = f.GetOr("lr_scheduler_type", "linear");
  const bool warms = kind != "constant";
  f.Set("train.schedule.kind", kind == "constant_with_warmup" ? "constant" : kind,
        {"lr_scheduler_type"});
  const double steps = f.Number("warmup_steps").value_or(0);
  if (!warms || (steps == 0 && f.Number("warmup_ratio").value_or(0) == 0)) {
    f.Set("train.schedule.warmup_steps", "0", {"warmup_steps", "warmup_ratio"});
  } else if (steps >= 1) {
    f.SetNumber("train.schedule.warmup_steps", "warmup_steps", true);
    f.Explain("warmup_ratio", "the number of steps counts");
  } else {
    f.SetNumber("train.schedule.warmup_ratio", steps > 0 ? "warmup_steps" : "warmup_ratio");
    f.Explain("warmup_steps", "the share of steps counts");
  }
  if (f.Number("max_steps").value_or(0) > 0) {
    f.SetNumber("train.schedule.max_steps", "max_steps", true);
    f.Explain("num_train_epochs", "the number of steps counts");
  } else {
    f.SetNumber("train.schedule.epochs", "num_train_epochs");
    f.Explain("max_steps", "the number of epochs counts");
  }
  f.SetNumber("train.batch.per_rank", "per_device_train_batch_size", true);
  f.SetNumber("train.batch.accumulation", "gradient_accumulation_steps", true);
}

// Steps between what happens at times; shares of a training and epochs are no steps.
void ComposeEvery(Fields& f, const std::string& job_key, std::string_view field,
                  const std::string& strategy) {
  const double every = f.Number(field).value_or(0);
  if (strategy == "steps" && every >= 1) return f.SetNumber(job_key, field, true);
  f.Explain(
      field,
      job_key + " counts steps; how many are an epoch depends on the rows, so its default stands");
}

void ComposeRest(Fields& f) {
  const bool evaluates = !f.eval_rows.empty() || f.Number("val_size").value_or(0) > 0;
  const std::string saves = f.GetOr("save_strategy", "steps");
  ComposeEvery(f, "train.checkpoint.every", "save_steps", saves);
  if (const double keep = f.Number("save_total_limit").value_or(0); keep >= 1 && keep <= 1000)
    f.SetNumber("train.checkpoint.keep", "save_total_limit", true);
  f.Explain("save_strategy", saves == "no" ? "checkpoints are what a job goes on from after a fault"
                                           : "train.checkpoint.every");
  const std::string when = f.GetOr("eval_strategy", evaluates ? "steps" : "no");
  if (evaluates && when != "no") {
    if (f.Get("eval_steps")) ComposeEvery(f, "train.eval.every", "eval_steps", when);
    if (f.On("eval_on_start")) f.Set("train.eval.at_start", "true", {"eval_on_start"});
    f.SetNumber("train.eval.early_stop.patience", "early_stopping_patience", true);
    if (f.On("load_best_model_at_end"))
      f.Set("train.output.export", "best", {"load_best_model_at_end"});
  }
  for (const std::string_view field : {"eval_steps", "eval_on_start", "early_stopping_patience"})
    if (!evaluates || when == "no") f.Explain(field, "nothing is evaluated");
  f.Explain("load_best_model_at_end", f.On("load_best_model_at_end")
                                          ? "train.output.export: best"
                                          : "the last state is exported");
  f.Explain("eval_strategy", "train.eval.every; nothing is evaluated without rows for it");
  if (f.Number("logging_steps").value_or(0) >= 1)
    f.SetNumber("train.logging.every", "logging_steps", true);
  f.Explain("logging_steps", "metrics.jsonl has every step");
  if (const std::string dir = f.GetOr("output_dir", ""); !dir.empty())
    f.SetText("train.output.dir", dir, {"output_dir"});
  f.SetNumber("train.seed", "seed", true);
}

}  // namespace

std::string RowRecipe(const std::vector<RowSource>& rows) {
  std::string recipe;
  for (const RowSource& each : rows) {
    if (IsReady(each)) continue;
    const bool local = IsLocalFile(each.path);
    const std::string what =
        local ? "\"json\", data_files=" + Quoted(each.path)
              : Quoted(each.path) + (each.subset.empty() ? "" : ", " + Quoted(each.subset));
    recipe +=
        "rows = load_dataset(" + what + ", split=" + Quoted(local ? "train" : each.split) + ")\n";
    if (!each.limit.empty())
      recipe += "rows = rows.select(range(min(" + each.limit + ", len(rows))))\n";
    if (!each.rename.empty()) recipe += "rows = rows.rename_columns(" + each.rename + ")\n";
    if (!each.column.empty())
      recipe += "rows = rows.rename_column(" + Quoted(each.column) + ", \"messages\")\n";
    if (!each.turn_rename.empty())
      recipe += "rows = rows.map(lambda row: turns(row, " + each.turn_rename + "))\n";
    if (each.form == "alpaca")
      recipe += "rows = rows.map(alpaca, remove_columns=rows.column_names)\n";
    recipe += "rows.to_json(" + Quoted(FileOf(each)) + ")\n";
  }
  if (recipe.empty()) return recipe;
  std::string head =
      "import os\nfrom datasets import load_dataset\nos.makedirs(\"rows\", exist_ok=True)\n";
  if (recipe.find("turns(") != std::string::npos) head += kTurns;
  if (recipe.find("(alpaca,") != std::string::npos) head += kAlpaca;
  return head + recipe;
}

void ComposeTraining(Fields& fields) {
  ComposeMachines(fields);
  ComposeModel(fields);
  ComposeAdapters(fields);
  ComposeData(fields);
  ComposePrecision(fields);
  ComposeSharding(fields);
  ComposeOptimizer(fields);
  ComposeSchedule(fields);
  ComposeRest(fields);
  for (const std::string_view field : {"stage", "quant_method", "metric_for_best_model", "fsdp"})
    fields.Explain(field, "is what Muster does");
  fields.Explain("packing_strategy", "documents are packed by best fit (train.data.packing)");
}

}  // namespace muster::migrate
