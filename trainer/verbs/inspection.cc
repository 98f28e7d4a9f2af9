#include "trainer/verbs/inspection.h"

#include <filesystem>
#include <map>

#include "common/base/files.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/safetensors.h"
#include "trainer/hub/hub_id.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/stored_model.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kContext = 1024;  // tokens that the memory of keys and values is given for

Json TensorList(const SafetensorsModel& model) {
  Json tensors = Json::array();
  for (const std::string& name : model.names()) {
    const TensorSpec& tensor = *model.Find(name);
    tensors.push_back(
        {{"name", name}, {"type", TensorTypeName(tensor.type)}, {"shape", tensor.shape}});
  }
  return tensors;
}

// Elements and bytes, in all and of each type.
Json WeightSums(const SafetensorsModel& model) {
  std::int64_t elements = 0, bytes = 0;
  std::map<std::string, std::int64_t> types;
  for (const std::string& name : model.names()) {
    const TensorSpec& tensor = *model.Find(name);
    elements += tensor.count();
    bytes += tensor.count() * TensorTypeSize(tensor.type);
    types[std::string(TensorTypeName(tensor.type))] += tensor.count();
  }
  return {{"tensors", model.names().size()},
          {"elements", elements},
          {"bytes", bytes},
          {"elements_by_type", types}};
}

Json SafetensorsJson(const SafetensorsModel& model) {
  Json json = {{"kind", "safetensors"}};
  json.update(WeightSums(model));
  if (!model.metadata().empty()) json["metadata"] = model.metadata();
  json["tensors"] = TensorList(model);
  return json;
}

Json ShapeJson(const ModelConfig& config) {
  Json json = {{"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"layers", config.num_hidden_layers},
               {"heads", config.num_attention_heads},
               {"kv_heads", config.num_key_value_heads},
               {"head_dim", config.head_dim},
               {"vocab_size", config.vocab_size},
               {"context", config.ContextLength()},
               {"tied_embeddings", config.tie_word_embeddings}};
  if (config.sliding_window) json["sliding_window"] = *config.sliding_window;
  return json;
}

// Bytes that using the model takes.
Json MemoryJson(const ModelConfig& config) {
  const std::int64_t parameters = config.ParameterCount();
  const std::int64_t keys_and_values =
      2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * kContext;
  return {{"weights_float32", 4 * parameters},
          {"weights_bfloat16", 2 * parameters},
          {"kv_cache_bfloat16_per_1024_tokens", 2 * keys_and_values}};
}

Json TokenizerSummary(const std::string& dir) {
  const Result<Tokenizer> tokenizer = Tokenizer::Load(dir);
  if (!tokenizer.ok()) return tokenizer.status().message();
  return {{"vocab_size", tokenizer->vocab_size()}};
}

Result<Json> ModelJson(const std::string& dir, const InspectionOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(dir));
  MUSTER_RETURN_IF_ERROR(OpenModelWeights(config, dir).status());
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel weights, SafetensorsModel::Open(dir));
  Json json = {{"kind", "model"},
               {"path", dir},
               {"architecture", config.architecture},
               {"parameters", config.ParameterCount()},
               {"dtype", config.torch_dtype},
               {"shape", ShapeJson(config)},
               {"end_of_text_ids", config.eos_token_ids},
               {"tokenizer", TokenizerSummary(dir)},
               {"weights", WeightSums(weights)},
               {"memory", MemoryJson(config)}};
  if (options.tensors) json["tensors"] = TensorList(weights);
  return json;
}

Result<Json> CheckpointJson(const std::string& checkpoints, const std::string& directory,
                            const InspectionOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(checkpoints, directory));
  const std::string dir = checkpoints + "/" + directory;
  Json json = {{"kind", "checkpoint"}};
  json.update(Json::parse(ManifestToJson(manifest)));
  std::uint64_t bytes = 0;
  for (const ShardRecord& shard : manifest.shards) {
    bytes += shard.bytes;
    if (options.verify) MUSTER_RETURN_IF_ERROR(VerifyShard(dir, shard));
  }
  MUSTER_ASSIGN_OR_RETURN(const ShardHeader header,
                          ReadShardHeader(dir + "/" + manifest.shards.front().file));
  if (header.adapter) json["adapter"] = Json::parse(AdapterOriginToJson(*header.adapter));
  json["bytes"] = bytes;
  json["samples"] = header.cursor.samples;
  json["tokens"] = header.cursor.tokens;
  json["verified"] = options.verify;
  return json;
}

Json ShardJson(const ShardHeader& header) {
  Json arrays = Json::array();
  for (const ShardArray& array : header.arrays) {
    arrays.push_back(
        {{"name", array.name}, {"count", array.count}, {"tensors", array.intervals.size()}});
  }
  return {{"kind", "shard"},
          {"job_id", header.job_id},
          {"generation", header.generation},
          {"rank", header.rank},
          {"world_size", header.world_size},
          {"step", header.cursor.step},
          {"samples", header.cursor.samples},
          {"tokens", header.cursor.tokens},
          {"arrays", std::move(arrays)}};
}

Result<Json> InspectDirectory(const std::string& path, const InspectionOptions& options) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path dir = whole.has_filename() ? whole : whole.parent_path();
  if (fs::exists(dir / kManifestFile)) {
    return CheckpointJson(dir.parent_path().string(), dir.filename().string(), options);
  }
  if (fs::exists(dir / "config.json")) return ModelJson(dir.string(), options);
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel model, SafetensorsModel::Open(dir.string()));
  return SafetensorsJson(model);
}

bool IsTable(const Json& json) {
  return json.is_array() && !json.empty() && json.front().is_object();
}

std::string ScalarText(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void AppendText(const Json& json, const std::string& indent, std::string* out) {
  for (const auto& [key, value] : json.items()) {
    if (IsTable(value)) continue;
    *out += indent + key;
    if (value.is_object()) {
      *out += "\n";
      AppendText(value, indent + "  ", out);
    } else {
      *out += " " + ScalarText(value) + "\n";
    }
  }
}

}  // namespace

Result<Json> InspectPath(const std::string& path, const InspectionOptions& options) {
  if (!fs::exists(path)) {
    if (!ParseHubId(path)) return NotFound(path + ": there is no such file or directory");
    MUSTER_ASSIGN_OR_RETURN(const std::string snapshot, ResolveModel(path));
    return InspectDirectory(snapshot, options);
  }
  if (fs::is_directory(path)) return InspectDirectory(path, options);
  if (fs::path(path).extension() == ".shard") {
    MUSTER_ASSIGN_OR_RETURN(const ShardHeader header, ReadShardHeader(path));
    return ShardJson(header);
  }
  if (fs::path(path).filename() == kManifestFile) {
    return InspectDirectory(fs::absolute(path).parent_path().string(), options);
  }
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel model, SafetensorsModel::OpenFile(path));
  return SafetensorsJson(model);
}

std::string InspectionText(const Json& json) {
  std::string text;
  AppendText(json, "", &text);
  for (const auto& [key, value] : json.items()) {
    if (!IsTable(value)) continue;
    text += key + " (" + std::to_string(value.size()) + ")\n";
    for (const Json& entry : value) {
      for (const auto& item : entry.items()) text += "  " + ScalarText(item.value());
      text += "\n";
    }
  }
  return text;
}

}  // namespace muster
