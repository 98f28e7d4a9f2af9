#include "common/job_spec/train_block.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "common/base/wall_time.h"
#include "common/job_spec/adapter_block.h"
#include "common/job_spec/eval_block.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxCount = 1'000'000'000;

const NumberRange kPositive = {"above 0", [](double v) { return v > 0; }};
const NumberRange kNotNegative = {"0 or more", [](double v) { return v >= 0; }};
const NumberRange kRatio = {"from 0 to 1", [](double v) { return v >= 0 && v <= 1; }};
const NumberRange kInnerRatio = {"above 0 and below 1", [](double v) { return v > 0 && v < 1; }};
const NumberRange kBeta = {"at least 0 and below 1", [](double v) { return v >= 0 && v < 1; }};

// The word of a job file for each value.
template <typename Enum, std::size_t kCount>
using Words = std::array<std::pair<std::string_view, Enum>, kCount>;

constexpr Words<ShardingStrategy, 5> kStrategies = {{
    {"full_shard", ShardingStrategy::kFullShard},
    {"shard_grad_op", ShardingStrategy::kShardGradOp},
    {"no_shard", ShardingStrategy::kNoShard},
    {"hybrid_shard", ShardingStrategy::kHybridShard},
    {"hybrid_shard_zero2", ShardingStrategy::kHybridShardZero2},
}};
constexpr Words<MixedPrecision, 4> kPrecisions = {{
    {"bf16", MixedPrecision::kBf16},
    {"fp16", MixedPrecision::kFp16},
    {"fp32", MixedPrecision::kFp32},
    {"fp64", MixedPrecision::kFp64},
}};
constexpr Words<StateType, 4> kTypes = {{
    {"fp32", StateType::kFp32},
    {"bf16", StateType::kBf16},
    {"fp16", StateType::kFp16},
    {"fp64", StateType::kFp64},
}};
constexpr Words<StateType, 2> kOptimizerTypes = {{
    {"fp32", StateType::kFp32},
    {"bf16", StateType::kBf16},
}};
constexpr Words<ActivationCheckpointing, 4> kCheckpointing = {{
    {"none", ActivationCheckpointing::kNone},
    {"selective", ActivationCheckpointing::kSelective},
    {"full", ActivationCheckpointing::kFull},
    {"full_offload", ActivationCheckpointing::kFullOffload},
}};
constexpr Words<bool, 2> kReductions = {{{"micro_batch", true}, {"step", false}}};
constexpr Words<bool, 2> kTrainedOn = {{{"answers", false}, {"all", true}}};

constexpr Words<NonFinitePolicy, 2> kNonFinite = {{
    {"stop", NonFinitePolicy::kStop},
    {"skip", NonFinitePolicy::kSkip},
}};

template <typename Enum, std::size_t kCount>
void ReadWord(MapReader& map, const std::string& key, const Words<Enum, kCount>& words,
              std::vector<std::string> later, Enum* out) {
  TextChoices choices{.later = std::move(later)};
  for (const auto& [word, value] : words) choices.allowed.emplace_back(word);
  std::string text;
  map.Choice(key, choices, &text);
  for (const auto& [word, value] : words)
    if (word == text) *out = value;
}

template <typename Enum, std::size_t kCount>
std::string WordOf(Enum value, const Words<Enum, kCount>& words) {
  for (const auto& [word, known] : words)
    if (known == value) return std::string(word);
  return "";
}

// Texts, or maps that say more of one.
void ReadTokens(MapReader& model, std::optional<std::vector<TokenSpec>>* out) {
  static constexpr char kKey[] = "add_tokens";
  const auto node = model.Node(kKey);
  if (!node || node->IsNull()) return;
  if (!node->IsSequence())
    return model.Error(kKey, "expected a list of tokens such as ['<|tool|>', '<|end|>']");
  std::vector<TokenSpec>& tokens = out->emplace();
  for (std::size_t i = 0; i < node->size(); ++i) {
    const YAML::Node item = (*node)[i];
    TokenSpec& token = tokens.emplace_back();
    if (item.IsMap()) {
      MapReader map = model.MapWithin(kKey, item, i);
      map.Require("content", "give the token's text");
      map.Text("content", &token.content);
      map.Boolean("special", &token.special);
      map.Finish();
    } else if (item.IsScalar()) {
      token.content = item.Scalar();
    }
    if (token.content.empty()) return model.Error(kKey, "has an entry without a text");
    const auto same = [&](const TokenSpec& other) { return other.content == token.content; };
    if (std::count_if(tokens.begin(), tokens.end(), same) > 1)
      return model.Error(kKey, "names '" + token.content + "' twice");
  }
}

void ReadModel(MapReader& train, ModelSpec* out) {
  train.Require("model", "give the Hugging Face directory as model: {path: DIR}");
  auto map = train.Map("model");
  if (!map) return;
  map->Require("path", "give the path of a Hugging Face directory");
  map->Text("path", &out->path);
  if (out->path.starts_with("hf:") || out->path.find("://") != std::string::npos)
    map->Error("path",
               "expected a directory or a name on the Hugging Face Hub, such as ORG/NAME or "
               "ORG/NAME@REVISION, got '" +
                   out->path + "'");
  ReadTokens(*map, &out->add_tokens);
  map->Integer("pad_vocab_to", {1, 65536}, &out->pad_vocab_to);
  map->Finish();
}

// A path alone, or a map of path and optimizer.
void ReadInitFrom(MapReader& train, InitFromSpec* out) {
  const auto node = train.Node("init_from");
  if (!node || node->IsNull()) return;
  if (!node->IsMap()) return train.Text("init_from", &out->path);
  auto map = train.Map("init_from");
  map->Require("path", "give the path of a checkpoint or of a full state dict");
  map->Text("path", &out->path);
  map->Boolean("optimizer", &out->optimizer);
  map->Finish();
}

// The name of a built-in template (trainer/text/chat/built_in.h), or the path of a .jinja file.
void ReadChatTemplate(MapReader& data, DataSpec* out) {
  static constexpr std::string_view kNames[] = {"auto",   "none",    "chatml", "llama2",
                                                "llama3", "mistral", "zephyr", "openassistant"};
  data.Text("chat_template", &out->chat_template);
  const std::string& chosen = out->chat_template;
  if (chosen.ends_with(".jinja") || std::ranges::find(kNames, chosen) != std::end(kNames)) return;
  std::string names;
  for (const std::string_view name : kNames) names += std::string(name) + ", ";
  data.Error("chat_template",
             "must be " + names + "or the path of a .jinja file, got '" + chosen + "'");
}

void ReadChatDate(MapReader& data, DataSpec* out) {
  data.Text("chat_date", &out->chat_date);
  std::string_view rest = out->chat_date;
  if (!rest.empty() && (rest.size() != 10 || !TakeCivilTime(&rest)))
    data.Error("chat_date", "must be a day such as 2026-01-31, got '" + out->chat_date + "'");
}

// What is a file by its ending must be one that is read; anything else is taken for a folder.
void CheckRowsEnding(MapReader& data, const std::string& key, const std::string& path) {
  static constexpr std::string_view kRead[] = {".jsonl",   ".json", ".jsonl.gz",
                                               ".json.gz", ".npy",  ".bin"};
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  if (name.find('.', 1) == std::string_view::npos) return;
  if (std::ranges::any_of(kRead, [&](std::string_view end) { return name.ends_with(end); })) return;
  if (name.ends_with(".parquet"))
    return data.Error(key, "Parquet is not read, got '" + path +
                               "'; write its rows as .jsonl once, for example with pandas: "
                               "read_parquet(FILE).to_json(OUT, orient='records', lines=True)");
  data.Error(key,
             "expected rows in .jsonl or .json (also with .gz), token ids in .npy or .bin, or a "
             "folder of them (with / at its end), got '" +
                 path + "'");
}

// A path alone, or a list of them.
void ReadRowFiles(MapReader& data, const std::string& key, std::vector<std::string>* out) {
  const auto node = data.Node(key);
  if (!node) return;
  if (node->IsSequence()) {
    data.TextList(key, out);
    if (node->size() == 0) data.Error(key, "names no file");
  } else {
    std::string path;
    data.Text(key, &path);
    if (!path.empty()) out->push_back(std::move(path));
  }
  for (const std::string& path : *out) CheckRowsEnding(data, key, path);
}

void ReadEvalRows(MapReader& data, DataSpec* out) {
  if (const auto node = data.Node("eval"); node && !node->IsNull())
    ReadRowFiles(data, "eval", &out->eval);
  data.Number("eval_ratio", kInnerRatio, &out->eval_ratio);
  if (!out->eval.empty() && out->eval_ratio > 0)
    data.Error("eval_ratio", "give either eval or eval_ratio, not both");
}

void ReadData(MapReader& train, DataSpec* out) {
  train.Require("data", "give the training rows as data: {train: FILE}");
  auto map = train.Map("data");
  if (!map) return;
  map->Require("train", "give the path of a .jsonl, .json, .npy or .bin file, or a folder");
  ReadRowFiles(*map, "train", &out->train);
  ReadEvalRows(*map, out);
  map->Integer("max_seq_len", {2, 1 << 20}, &out->max_seq_len);
  map->Text("text_field", &out->text_field);
  ReadChatTemplate(*map, out);
  ReadChatDate(*map, out);
  map->Boolean("shuffle", &out->shuffle);
  map->Boolean("group_by_length", &out->group_by_length);
  map->Boolean("packing", &out->packing);
  ReadWord(*map, "train_on", kTrainedOn, {}, &out->train_on_all);
  if (out->group_by_length && out->packing)
    map->Error("group_by_length", "packed rows are all as long; give either it or packing");
  if (out->group_by_length && !out->shuffle)
    map->Error("group_by_length", "changes the order of rows; leave shuffle out");
  map->Text("cache", &out->cache);
  map->Finish();
}

// Gradients are added up in what they are computed in, or wider; fp64 is for checks and uniform.
bool MayReduceIn(StateType type, MixedPrecision precision) {
  switch (precision) {
    case MixedPrecision::kBf16: return type == StateType::kBf16 || type == StateType::kFp32;
    case MixedPrecision::kFp16: return type == StateType::kFp16 || type == StateType::kFp32;
    case MixedPrecision::kFp32: return type == StateType::kFp32;
    case MixedPrecision::kFp64: return type == StateType::kFp64;
  }
  return false;
}

void CheckReduceType(MapReader& fsdp, const FsdpSpec& spec) {
  if (spec.reduce_dtype == StateType::kAuto || MayReduceIn(spec.reduce_dtype, spec.mixed_precision))
    return;
  std::string allowed;
  for (const auto& [word, type] : kTypes)
    if (MayReduceIn(type, spec.mixed_precision))
      allowed += (allowed.empty() ? "" : " or ") + std::string(word);
  fsdp.Error("reduce_dtype", "must be " + allowed + " with mixed_precision " +
                                 WordOf(spec.mixed_precision, kPrecisions) + ", got '" +
                                 WordOf(spec.reduce_dtype, kTypes) + "'");
}

void CheckExpertParallel(MapReader& fsdp, const ResourceSpec& resources, const FsdpSpec& spec) {
  if (spec.expert_parallel == 1) return;
  const bool hybrid = spec.strategy == ShardingStrategy::kHybridShard ||
                      spec.strategy == ShardingStrategy::kHybridShardZero2;
  const int ranks = resources.ranks_per_node * (hybrid ? 1 : resources.nodes);
  if (spec.strategy == ShardingStrategy::kNoShard) {
    fsdp.Error("expert_parallel",
               "divides experts among ranks that share a model, and with "
               "no_shard none do; use full_shard");
  } else if (ranks % spec.expert_parallel != 0) {
    fsdp.Error("expert_parallel", "must divide the " + std::to_string(ranks) + " ranks " +
                                      (hybrid ? "of a node" : "of the job") + ", got " +
                                      std::to_string(spec.expert_parallel));
  }
}

void ReadFsdp(MapReader& train, const ResourceSpec& resources, FsdpSpec* out) {
  auto map = train.Map("fsdp");
  if (!map) return;
  ReadWord(*map, "strategy", kStrategies, {}, &out->strategy);
  map->Integer("blocks_per_unit", {1, 1024}, &out->blocks_per_unit);
  map->Integer("expert_parallel", {1, 1024}, &out->expert_parallel);
  CheckExpertParallel(*map, resources, *out);
  ReadWord(*map, "mixed_precision", kPrecisions, {"fp8"}, &out->mixed_precision);
  ReadWord(*map, "reduce_dtype", kTypes, {}, &out->reduce_dtype);
  CheckReduceType(*map, *out);
  ReadWord(*map, "buffer_dtype", kTypes, {}, &out->buffer_dtype);
  if (out->buffer_dtype == StateType::kFp64 && out->mixed_precision != MixedPrecision::kFp64)
    map->Error("buffer_dtype", "can be fp64 only with mixed_precision fp64");
  ReadWord(*map, "reduce", kReductions, {}, &out->reduce_every_micro_batch);
  ReadWord(*map, "activation_checkpointing", kCheckpointing, {}, &out->activation_checkpointing);
  map->Boolean("cpu_offload", &out->cpu_offload);
  map->Finish();
}

void ReadBetas(MapReader& optimizer, OptimizerSpec* out) {
  const auto node = optimizer.Node("betas");
  if (!node) return;
  if (!node->IsSequence() || node->size() != 2)
    return optimizer.Error("betas", "expected two numbers such as [0.9, 0.95]");
  double* const betas[] = {&out->beta1, &out->beta2};
  for (std::size_t i = 0; i < 2; ++i) {
    const YAML::Node element = (*node)[i];
    const ScalarKind kind = element.IsScalar() ? KindOfScalar(element) : ScalarKind::kNull;
    if (kind != ScalarKind::kInteger && kind != ScalarKind::kNumber)
      return optimizer.Error("betas", "expected two numbers such as [0.9, 0.95]");
    const double value = element.as<double>();
    if (!kBeta.contains(value))
      return optimizer.Error(
          "betas", "each must be " + std::string(kBeta.words) + ", got " + element.Scalar());
    *betas[i] = value;
  }
}

void ReadOptimizer(MapReader& train, MixedPrecision precision, OptimizerSpec* out) {
  auto map = train.Map("optimizer");
  if (!map) return;
  map->Number("lr", kPositive, &out->lr);
  ReadBetas(*map, out);
  map->Number("eps", kPositive, &out->eps);
  map->Number("weight_decay", kNotNegative, &out->weight_decay);
  map->Number("grad_clip", kNotNegative, &out->grad_clip);
  ReadWord(*map, "master_weights", kOptimizerTypes, {"none"}, &out->master_weights);
  ReadWord(*map, "moments", kOptimizerTypes, {}, &out->moments);
  static constexpr char kUniform[] = "is fp64 with mixed_precision fp64; leave it out";
  if (precision == MixedPrecision::kFp64 && out->master_weights != StateType::kAuto)
    map->Error("master_weights", kUniform);
  if (precision == MixedPrecision::kFp64 && out->moments != StateType::kAuto)
    map->Error("moments", kUniform);
  map->Finish();
}

void ReadSchedule(MapReader& train, ScheduleSpec* out) {
  static constexpr char kHow[] = "give max_steps or epochs as schedule: {max_steps: N}";
  train.Require("schedule", kHow);
  auto map = train.Map("schedule");
  if (!map) return;
  map->Choice("kind", {{"cosine", "linear", "constant"}, {"wsd"}}, &out->kind);
  map->Number("warmup_ratio", kRatio, &out->warmup_ratio);
  std::int64_t warmup_steps = 0;
  map->Integer("warmup_steps", {0, kMaxCount}, &warmup_steps);
  if (map->Has("warmup_steps")) out->warmup_steps = warmup_steps;
  if (map->Has("warmup_ratio") && out->warmup_steps)
    map->Error("warmup_steps", "give either warmup_ratio or warmup_steps, not both");
  map->Integer("max_steps", {1, kMaxCount}, &out->max_steps);
  map->Number("epochs", kPositive, &out->epochs);
  if (map->Has("max_steps") && map->Has("epochs"))
    map->Error("epochs", "give either max_steps or epochs, not both");
  else if (!map->Has("max_steps") && !map->Has("epochs"))
    map->Require("max_steps", "give max_steps or epochs");
  if (out->max_steps > 0 && warmup_steps > out->max_steps)
    map->Error("warmup_steps", "must not be more than max_steps");
  map->Finish();
}

void ReadProfile(MapReader& train, std::int64_t max_steps, ProfileSpec* out) {
  auto map = train.Map("profile");
  if (!map) return;
  map->Require("start", "give the first step to profile, counted from 1");
  map->Integer("start", {1, kMaxCount}, &out->start);
  map->Integer("steps", {1, 1000}, &out->steps);
  if (max_steps > 0 && out->start + out->steps - 1 > max_steps)
    map->Error("start", "the last profiled step would be " +
                            std::to_string(out->start + out->steps - 1) +
                            ", but schedule.max_steps is " + std::to_string(max_steps));
  map->Finish();
}

void ReadSmallSections(MapReader& train, TrainSpec* out) {
  if (auto map = train.Map("batch")) {
    map->Integer("per_rank", {1, 1 << 16}, &out->batch.per_rank);
    map->Integer("accumulation", {1, 1 << 16}, &out->batch.accumulation);
    map->Finish();
  }
  if (auto map = train.Map("snapshot")) {
    static constexpr Words<BuddyCopies, 3> kBuddy = {
        {{"auto", BuddyCopies::kAuto}, {"on", BuddyCopies::kOn}, {"off", BuddyCopies::kOff}}};
    map->Integer("every", {0, kMaxCount}, &out->snapshot.every);
    ReadWord(*map, "buddy", kBuddy, {}, &out->snapshot.buddy);
    map->Finish();
  }
  if (auto map = train.Map("checkpoint")) {
    map->Integer("every", {1, kMaxCount}, &out->checkpoint.every);
    map->Integer("keep", {1, 1000}, &out->checkpoint.keep);
    map->Finish();
  }
  if (auto map = train.Map("logging")) {
    map->Integer("every", {1, kMaxCount}, &out->logging_every);
    map->Finish();
  }
  ReadEvaluation(train, out);
  if (auto map = train.Map("output")) {
    map->Text("dir", &out->output_dir);
    map->Bytes("max_shard_size", &out->output_max_shard_bytes);
    ReadExportedState(*map, out);
    map->Finish();
  }
}

}  // namespace

void ReadTrainBlock(MapReader& map, const ResourceSpec& resources, TrainSpec* out) {
  ReadModel(map, &out->model);
  ReadInitFrom(map, &out->init_from);
  ReadAdapters(map, out);
  ReadData(map, &out->data);
  ReadFsdp(map, resources, &out->fsdp);
  ReadOptimizer(map, out->fsdp.mixed_precision, &out->optimizer);
  ReadSchedule(map, &out->schedule);
  ReadProfile(map, out->schedule.max_steps, &out->profile);
  ReadSmallSections(map, out);
  ReadWord(map, "nonfinite", kNonFinite, {}, &out->nonfinite);
  map.Boolean("deterministic", &out->deterministic);
  if (!out->deterministic)
    map.RefuseLater("deterministic", "training is always deterministic; leave it out");
  map.Unsigned("seed", &out->seed);
  map.Finish();
}

}  // namespace muster
