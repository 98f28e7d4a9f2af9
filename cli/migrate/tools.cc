// Implements the parts of fields.h for axolotl, LLaMA-Factory, torchtune and TRL.
#include <algorithm>

#include "cli/migrate/fields.h"

namespace muster::migrate {
namespace {

std::string TextAt(const Document& document, const std::string& key, int place) {
  const Entry* entry = document.Find(key, place);
  return entry == nullptr ? "" : entry->text;
}

int CountOf(const Document& document, const std::string& key) {
  int count = 0;
  for (const Entry& entry : document.entries)
    if (entry.key == key || entry.key.starts_with(key + "."))
      count = std::max(count, entry.place + 1);
  return count;
}

// Python's way to write a dict of texts.
void AddName(std::string* dict, const std::string& from, const std::string& to) {
  if (from.empty() || from == to) return;
  const std::string entry = Quoted(from) + ": " + Quoted(to);
  *dict =
      dict->empty() ? "{" + entry + "}" : dict->substr(0, dict->size() - 1) + ", " + entry + "}";
}

// ---- axolotl

// One of `datasets`; its form decides how prompts and answers become text.
RowSource AxolotlRows(Fields& f, const std::string& list, int place, std::string* form) {
  const Document& d = f.document();
  const auto at = [&](const std::string& key) { return TextAt(d, list + "." + key, place); };
  RowSource rows{.path = at("data_files").empty() ? at("path") : at("data_files"),
                 .subset = at("name")};
  if (!at("split").empty()) rows.split = at("split");
  *form = at("type");
  if (*form == "alpaca") rows.form = "alpaca";
  if (*form == "chat_template" || form->empty()) {
    *form = "chat_template";
    if (const std::string column = at("field_messages"); column != "messages") rows.column = column;
    AddName(&rows.turn_rename, at("message_property_mappings.role") + at("message_field_role"),
            "role");
    AddName(&rows.turn_rename,
            at("message_property_mappings.content") + at("message_field_content"), "content");
  }
  if (*form == "completion" && !at("field").empty() && at("field") != "text")
    AddName(&rows.rename, at("field"), "text");
  return rows;
}

void AxolotlForms(Fields& f) {
  std::string first;
  for (const char* const list : {"datasets", "test_datasets"}) {
    for (int i = 0; i < CountOf(f.document(), list); ++i) {
      std::string form;
      auto& rows = list[0] == 'd' ? f.rows : f.eval_rows;
      rows.push_back(AxolotlRows(f, list, i, &form));
      if (form != "chat_template" && form != "alpaca" && form != "completion")
        f.Refuse(
            "row_form",
            "chat_template, alpaca and completion are known; write the rows as messages, or as "
            "prompt and completion, and say type: chat_template");
      if (first.empty()) first = form;
      if (form != first && (form == "alpaca" || first == "alpaca"))
        f.Refuse("row_form",
                 "alpaca's prompts are no chat, and a job has one chat_template; convert each data "
                 "set alone");
    }
  }
  if (first == "alpaca") {
    f.Put("chat_template", "none");
    f.Explain("chat_template", "alpaca's prompts are text, without a chat template");
  }
  f.Explain("row_form", "the form of the rows: the comment in the job file writes them");
}

}  // namespace

void PrepareAxolotl(Fields& f) {
  AxolotlForms(f);
  if (f.On("lora_target_linear")) f.Put("lora_target_modules", "all-linear");
  f.Explain("lora_target_linear", "train.lora.target_modules: all-linear");
  if (f.GetOr("use_peft", "") != "true" && f.GetOr("weights_type", "") == "bf16" &&
      (!f.GetOr("fsdp", "").empty() || f.document().Has("fsdp_config") ||
       !f.GetOr("deepspeed", "").empty()))
    f.Put("weights_type", "fp32");  // both keep the weights that are updated in fp32
  if (f.On("use_peft") && f.List("lora_target_modules").empty())
    f.Refuse("use_peft", "no modules have adapters; add lora_target_linear: true");
  if (f.On("full_precision")) f.Put("bf16", "false");
  f.Explain("full_precision", "train.fsdp.mixed_precision");
  if (f.GetOr("excess", "drop") == "drop")
    f.Remark(
        "train.data.max_seq_len: axolotl drops rows that are longer; here they are cut, and the "
        "job says how many");
  f.Explain("excess", "longer rows are cut here, as with 'truncate'");
  if (!f.Given("warmup_steps") && !f.Given("warmup_ratio"))
    f.Remark(
        "train.schedule.warmup_ratio: axolotl's warm-up is 0.03 of the steps here, 100 at most");
  f.Explain("train_on_eos", "what an assistant says and the end of its turn are trained on");
}

// ---- LLaMA-Factory

void PrepareLlamaFactory(Fields& f) {
  if (!f.On("do_train"))
    f.Refuse("do_train", "nothing is trained; Muster trains: say do_train: true");
  f.Explain("do_train", "a job trains");
  const std::string limit = f.GetOr("max_samples", "");
  if (!limit.empty() && !NumberIn(limit)) f.Refuse("max_samples", "expected a whole number");
  const auto add = [&](std::string_view field, std::vector<RowSource>* to) {
    for (const std::string& name : f.List(field)) to->push_back({.path = name, .limit = limit});
  };
  add("dataset", &f.rows);
  add("eval_dataset", &f.eval_rows);
  if (!f.rows.empty())
    f.Remark(
        "train.data.train: names of data sets are those of dataset_info.json; put the file or the "
        "data set of "
        "the Hub that it says into the comment of the job file, and other names of columns");
  f.Explain("max_samples", "the comment in the job file writes so many rows");
  if (!f.Given("lora_alpha") && f.Number("lora_r"))
    f.Put("lora_alpha", std::to_string(static_cast<int>(2 * *f.Number("lora_r"))));
  if (f.On("no_checkpointing")) f.Put("gradient_checkpointing", "false");
  f.Explain("no_checkpointing", "train.fsdp.activation_checkpointing");
  if (f.On("pure_bf16")) {
    f.Put("weights_type", "bf16");
    f.Put("bf16", "true");
  }
  f.Explain("pure_bf16", "train.optimizer.master_weights and moments");
  if (f.On("packing") && !f.On("neat_packing"))
    f.Refuse(
        "packing",
        "packed rows see each other there; say neat_packing: true, which is train.data.packing");
  if (f.On("neat_packing")) f.Put("packing", "true");
  f.Explain("neat_packing", "train.data.packing: no document sees another");
  if (f.On("no_shuffle")) f.Put("sampling", "sequential");
  f.Explain("no_shuffle", "train.data.shuffle");
}

// ---- torchtune

namespace {

struct TunedFamily {
  std::string_view prefix;  // of the model's component, behind "torchtune.models."
  std::string_view chat_template;
};
constexpr TunedFamily kTunedFamilies[] = {
    {"llama3", "llama3"}, {"llama2", "llama2"},   {"code_llama2", "llama2"},
    {"qwen2", "chatml"},  {"mistral", "mistral"},
};

void TunedModel(Fields& f) {
  std::string model = f.GetOr("component", "");
  constexpr std::string_view kModels = "torchtune.models.";
  if (model.starts_with(kModels)) model.erase(0, kModels.size());
  const std::size_t dot = model.find('.');
  const std::string builder = dot == std::string::npos ? model : model.substr(dot + 1);
  const bool vision = model.find("vision") != std::string::npos;
  const auto* family = std::ranges::find_if(
      kTunedFamilies, [&](const TunedFamily& each) { return model.starts_with(each.prefix); });
  if (family == std::end(kTunedFamilies) || vision || builder.find("reward") != std::string::npos)
    return f.Refuse("component", "Llama, Qwen and Mistral can be trained");
  if (builder.starts_with("lora_") || builder.starts_with("qlora_")) f.Put("use_peft", "true");
  if (builder.starts_with("qlora_")) f.Put("load_in_4bit", "true");
  f.Put("chat_template", std::string(family->chat_template));
  f.Explain("component", "the family is in the model's config.json; adapters: train.lora");
  if (family->chat_template == "llama3" || family->chat_template == "chatml")
    f.Remark(
        "train.data.chat_template: torchtune ends each row with the end-of-text token too, behind "
        "the end of the "
        "last turn");
  std::vector<std::string> modules = f.List("lora_target_modules");
  if (f.On("lora_mlp")) modules.insert(modules.end(), {"gate_proj", "up_proj", "down_proj"});
  std::string list;
  for (const std::string& each : modules) list += (list.empty() ? "" : ", ") + each;
  if (!list.empty()) f.Put("lora_target_modules", list);
  f.Explain("lora_mlp", "train.lora.target_modules");
}

void TunedRows(Fields& f) {
  const std::string set = f.GetOr("row_form", "");
  RowSource rows{.path = f.GetOr("source", ""),
                 .subset = f.GetOr("subset", ""),
                 .split = f.GetOr("split", "train")};
  if (!f.GetOr("data_files", "").empty()) rows.path = f.GetOr("data_files", "");
  if (set == "alpaca" || set == "alpaca_cleaned") {
    if (rows.path.empty())
      rows.path = set == "alpaca" ? "tatsu-lab/alpaca" : "yahma/alpaca-cleaned";
    rows.form = "alpaca";
    if (!f.Given("train_on_all")) f.Put("train_on_all", "true");
  } else if (set == "text") {
    if (const std::string column = f.GetOr("column", "text"); column != "text")
      AddName(&rows.rename, column, "text");
  } else if (set == "chat") {
    if (const std::string column = f.GetOr("conversation_column", "messages"); column != "messages")
      rows.column = column;
    if (f.GetOr("conversation_style", "openai") == "sharegpt")
      rows.turn_rename = "{\"from\": \"role\", \"value\": \"content\"}";
  } else if (set == "instruct") {
    AddName(&rows.rename, "input", "prompt");
    AddName(&rows.rename, "output", "completion");
  }
  f.rows.push_back(rows);
  for (const std::string_view field : {"row_form", "source", "subset", "split", "column",
                                       "conversation_column", "conversation_style", "data_files"})
    f.Explain(field, "the comment in the job file writes these rows");
}

}  // namespace

void PrepareTorchtune(Fields& f) {
  TunedModel(f);
  TunedRows(f);
  if (const double steps = f.Number("max_steps_per_epoch").value_or(0); steps > 0) {
    if (f.Number("num_train_epochs") == 1)
      f.Put("max_steps", f.GetOr("max_steps_per_epoch", ""));
    else
      f.Refuse("max_steps_per_epoch", "say epochs: 1, or give train.schedule.max_steps by --set");
  }
  f.Explain("max_steps_per_epoch", "train.schedule.max_steps");
  std::string model = f.GetOr("model", "");
  while (model.ends_with('/')) model.pop_back();
  if (model.ends_with("/original")) model.resize(model.size() - 9);
  if (!model.empty()) f.Put("model", model);
  const auto betas = f.List("betas");
  if (betas.size() == 2) {
    f.Put("adam_beta1", betas[0]);
    f.Put("adam_beta2", betas[1]);
  }
  f.Explain("betas", "train.optimizer.betas");
  if (!f.Given("seed"))
    f.Remark("train.seed: torchtune draws one where there is none; here it is 42");
}

// ---- TRL

void PrepareTrl(Fields& f) {
  const std::string split = f.GetOr("split", "train");
  if (const std::string name = f.GetOr("dataset", ""); !name.empty()) {
    f.rows.push_back({.path = name, .subset = f.GetOr("subset", ""), .split = split});
    if (f.GetOr("eval_strategy", "no") != "no")
      f.eval_rows.push_back(
          {.path = name, .subset = f.GetOr("subset", ""), .split = f.GetOr("eval_split", "test")});
  }
  for (int i = 0; i < CountOf(f.document(), "datasets"); ++i) {
    RowSource rows{.path = TextAt(f.document(), "datasets.path", i),
                   .subset = TextAt(f.document(), "datasets.name", i)};
    if (const std::string files = TextAt(f.document(), "datasets.data_files", i); !files.empty())
      rows.path = files;
    if (const std::string of = TextAt(f.document(), "datasets.split", i); !of.empty())
      rows.split = of;
    f.rows.push_back(rows);
  }
  for (const std::string_view field : {"subset", "split", "eval_split", "mixture"})
    f.Explain(field, "the comment in the job file writes these rows");
  if (!f.On("answers_only")) {
    f.Put("train_on_all", f.GetOr("completion_only", "") == "true" ? "false" : "true");
    if (!f.Given("completion_only"))
      f.Remark(
          "train.data.train_on: TRL trains on all of messages and texts, and on the completion "
          "alone of rows with "
          "prompt and completion; if the rows are such, add --set train.data.train_on=answers, and "
          "--set "
          "train.data.chat_template=none if they are texts");
  }
  f.Explain("answers_only", "train.data.train_on");
  f.Explain("completion_only", "train.data.train_on");
}

}  // namespace muster::migrate
