#include "trainer/core/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// What distinguishes the families, and what a config.json that leaves it out means.
struct Family {
  const char* architecture;
  const char* model_type;
  bool qkv_bias = false;
  bool qk_norms = false;
  std::int64_t window = 0;           // 0: sliding_window counts for no block; else for all
  std::int64_t key_value_heads = 0;  // 0: as many as query heads
  std::int64_t head_dim = 0;         // 0: hidden_size / num_attention_heads
};
constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM", .model_type = "llama"},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .window = 4096,
     .key_value_heads = 8},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .qkv_bias = true,
     .key_value_heads = 32},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .qk_norms = true,
     .key_value_heads = 32,
     .head_dim = 128},
};
constexpr std::int64_t kMaxConfigBytes = 16 << 20;
// Far beyond any real model, and such that the number of its parameters still fits 64 bits.
constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxIntermediate = 1 << 22;
constexpr std::int64_t kMaxLayers = 1 << 14;
constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxHeadDim = 1 << 12;
constexpr std::int64_t kMaxVocab = 1 << 28;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;

// Reads keys of one JSON object; remembers the first thing that is wrong and names it.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string origin)
      : object_(object), origin_(std::move(origin)) {}

  // A key that is absent or null counts as not given.
  const Json* Find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  // Null is a value of its own to some keys: MistralConfig takes it for "none", and puts its
  // default where the key is absent.
  bool IsNull(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }

  void ReadDimension(const char* key, std::int64_t max, std::int64_t* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number_integer()) return Fail(key, "is " + value->dump() + ", not an integer");
    // An unsigned value beyond 63 bits would wrap to a negative one here and is refused as such.
    const auto number = value->get<std::int64_t>();
    if (number < 1 || number > max)
      return Fail(key,
                  "is " + value->dump() + "; it must lie between 1 and " + std::to_string(max));
    *out = number;
  }

  void RequireDimension(const char* key, std::int64_t max, std::int64_t* out) {
    if (Find(key) == nullptr) return Fail(key, "is missing");
    ReadDimension(key, max, out);
  }

  void ReadPositive(const char* key, double* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number()) return Fail(key, "is " + value->dump() + ", not a number");
    const auto number = value->get<double>();
    if (!(number > 0) || !std::isfinite(number))
      return Fail(key, "is " + value->dump() + "; it must be greater than 0");
    *out = number;
  }

  void ReadBool(const char* key, bool* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(key, "is " + value->dump() + ", not true or false");
    *out = value->get<bool>();
  }

  void ReadString(const char* key, std::string* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(key, "is " + value->dump() + ", not a string");
    *out = value->get<std::string>();
  }

  // One token id or a list of them, all within the vocabulary.
  void ReadTokenIds(const char* key, std::int64_t vocab_size, std::vector<std::int32_t>* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
      if (!id.is_number_integer()) return Fail(key, "holds " + id.dump() + ", not a token id");
      const auto number = id.get<std::int64_t>();
      if (number == -1) continue;  // the usual spelling of "none"
      if (number < 0 || number >= vocab_size)
        return Fail(key, "holds " + id.dump() +
                             ", but the ids of this model end before vocab_size " +
                             std::to_string(vocab_size));
      if (std::find(out->begin(), out->end(), number) == out->end())
        out->push_back(static_cast<std::int32_t>(number));
    }
  }

  void Fail(const std::string& key, const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument(origin_ + ": " + key + " " + what);
  }

  void Refuse(const std::string& what) {
    if (status_.ok()) status_ = Unimplemented(origin_ + ": " + what);
  }

  const Status& status() const { return status_; }

 private:
  const Json& object_;
  std::string origin_;
  Status status_;
};

Result<Json> ParseObject(std::string_view text, const std::string& origin) {
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return InvalidArgument(origin + " holds no JSON object");
  } catch (const Json::exception& error) {
    return InvalidArgument(origin + " is not valid JSON: " + error.what());
  }
}

// The family that config.json names; after a failure any.
const Family& ReadFamily(FieldReader& reader) {
  const Json* list = reader.Find("architectures");
  std::string name, model_type, known;
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string())
    name = list->front().get<std::string>();
  reader.ReadString("model_type", &model_type);
  for (const Family& family : kFamilies) {
    if (name.empty() ? model_type == family.model_type : name == family.architecture) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  known = "this version trains " + known;
  if (name.empty()) {
    reader.Fail("architectures", "does not name an architecture; " + known);
  } else {
    reader.Refuse("the architecture " + name + " is not supported; " + known);
  }
  return kFamilies[0];
}

// Qwen's windows are those of some blocks only.
void RefuseWindowsOfSomeBlocks(FieldReader& reader) {
  bool used = false;
  reader.ReadBool("use_sliding_window", &used);
  if (const Json* types = reader.Find("layer_types"); types != nullptr && types->is_array()) {
    used = used || std::any_of(types->begin(), types->end(),
                               [](const Json& type) { return type != "full_attention"; });
  }
  if (used) reader.Refuse("sliding windows in some blocks are not supported by this version");
}

void RefuseWhatIsNotImplemented(FieldReader& reader) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    bool value = false;
    reader.ReadBool(key, &value);
    if (value) reader.Refuse(std::string(key) + " true is not supported by this version");
  }
  std::string activation = "silu";
  reader.ReadString("hidden_act", &activation);
  if (activation != "silu" && activation != "swish")
    reader.Refuse("hidden_act " + activation + " is not supported; this version knows silu");
  double partial = 1.0;
  reader.ReadPositive("partial_rotary_factor", &partial);
  if (partial != 1.0) reader.Refuse("partial_rotary_factor other than 1 is not supported");
  if (const Json* dropout = reader.Find("attention_dropout"); dropout != nullptr && *dropout != 0)
    reader.Refuse("attention_dropout other than 0 is not supported by this version");
  if (const Json* quantization = reader.Find("quantization_config"); quantization != nullptr)
    reader.Refuse("quantized weights (quantization_config) are not supported by this version");
}

// All four numbers decide about every weight: none of them has a default.
RopeScaling ReadLlama3Scaling(FieldReader& reader) {
  RopeScaling scaling;
  const auto require = [&reader](const char* key, double* value) {
    if (reader.Find(key) == nullptr) return reader.Fail(key, "is missing");
    reader.ReadPositive(key, value);
  };
  require("factor", &scaling.factor);
  require("low_freq_factor", &scaling.low_freq_factor);
  require("high_freq_factor", &scaling.high_freq_factor);
  reader.RequireDimension("original_max_position_embeddings", kMaxPositions,
                          &scaling.original_max_position_embeddings);
  if (scaling.factor < 1) reader.Fail("factor", "is below 1");
  if (scaling.low_freq_factor >= scaling.high_freq_factor)
    reader.Fail("low_freq_factor", "is not below high_freq_factor");
  return scaling;
}

// What a rope_scaling or rope_parameters object asks for; nothing: plain rotary embeddings.
std::optional<RopeScaling> ReadRopeScaling(FieldReader& reader, const Json& rope) {
  for (const char* kind_key : {"rope_type", "type"}) {
    const auto kind = rope.find(kind_key);
    if (kind == rope.end() || kind->is_null()) continue;
    if (*kind == "default") return std::nullopt;
    if (*kind == "llama3") return ReadLlama3Scaling(reader);
    reader.Refuse("the kind " + kind->dump() +
                  " is not supported; this version knows default and llama3");
    return std::nullopt;
  }
  if (rope.contains("factor")) reader.Refuse("a factor without rope_type is not supported");
  return std::nullopt;
}

// transformers 4 has rope_theta and rope_scaling, transformers 5 rope_parameters for both.
Status ReadRope(FieldReader& reader, const std::string& origin, ModelConfig* config) {
  reader.ReadPositive("rope_theta", &config->rope_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = reader.Find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object()) {
      reader.Fail(key, "is no object");
      continue;
    }
    FieldReader inner(*rope, origin + ": " + key);
    inner.ReadPositive("rope_theta", &config->rope_theta);
    double partial = 1.0;
    inner.ReadPositive("partial_rotary_factor", &partial);
    if (partial != 1.0) inner.Refuse("partial_rotary_factor other than 1 is not supported");
    if (const auto scaling = ReadRopeScaling(inner, *rope)) config->rope_scaling = scaling;
    MUSTER_RETURN_IF_ERROR(inner.status());
  }
  return OkStatus();
}

void ReadDtype(FieldReader& reader, std::string* dtype) {
  reader.ReadString("torch_dtype", dtype);
  reader.ReadString("dtype", dtype);  // transformers 5
  if (dtype->starts_with("torch.")) dtype->erase(0, 6);
  if (*dtype != "float32" && *dtype != "bfloat16" && *dtype != "float16")
    reader.Refuse("weights of type " + *dtype +
                  " are not supported; float32, bfloat16 and float16 are");
}

void ReadShape(FieldReader& reader, const Family& family, ModelConfig* config) {
  reader.RequireDimension("hidden_size", kMaxHidden, &config->hidden_size);
  reader.RequireDimension("intermediate_size", kMaxIntermediate, &config->intermediate_size);
  reader.RequireDimension("num_hidden_layers", kMaxLayers, &config->num_hidden_layers);
  reader.RequireDimension("num_attention_heads", kMaxHeads, &config->num_attention_heads);
  reader.RequireDimension("vocab_size", kMaxVocab, &config->vocab_size);
  reader.ReadDimension("max_position_embeddings", kMaxPositions, &config->max_position_embeddings);
  if (!reader.status().ok()) return;
  const bool as_queries = family.key_value_heads == 0 || reader.IsNull("num_key_value_heads");
  config->num_key_value_heads = as_queries ? config->num_attention_heads : family.key_value_heads;
  reader.ReadDimension("num_key_value_heads", kMaxHeads, &config->num_key_value_heads);
  if (config->num_attention_heads % config->num_key_value_heads != 0)
    reader.Fail("num_key_value_heads", "does not divide num_attention_heads");
  const bool derived = reader.Find("head_dim") == nullptr && family.head_dim == 0;
  if (derived && config->hidden_size % config->num_attention_heads != 0)
    reader.Fail("num_attention_heads", "does not divide hidden_size, and head_dim is not given");
  config->head_dim = derived ? config->hidden_size / config->num_attention_heads : family.head_dim;
  reader.ReadDimension("head_dim", kMaxHeadDim, &config->head_dim);
  if (config->head_dim % 2 != 0)
    reader.Fail("head_dim",
                "is " + std::to_string(config->head_dim) + "; rotary embeddings need an even one");
}

Status MissingModelFile(const std::string& dir, const std::string& what) {
  return NotFound(what + "; a model directory holds config.json, tokenizer.json and " +
                  "model.safetensors (or its shards). Name one in train.model.path, or make " +
                  "one: muster-trainer init-model --preset tiny --out " + dir);
}

}  // namespace

std::int64_t ModelConfig::ParameterCount() const {
  const std::int64_t q = num_attention_heads * head_dim * hidden_size;
  const std::int64_t kv = num_key_value_heads * head_dim * hidden_size;
  std::int64_t block = 2 * q + 2 * kv + 3 * intermediate_size * hidden_size + 2 * hidden_size;
  if (qkv_bias) block += (num_attention_heads + 2 * num_key_value_heads) * head_dim;
  if (qk_norms) block += 2 * head_dim;
  const std::int64_t embedding = vocab_size * hidden_size;
  return embedding * (tie_word_embeddings ? 1 : 2) + num_hidden_layers * block + hidden_size;
}

Result<ModelConfig> ParseModelConfig(std::string_view json, const std::string& origin) {
  MUSTER_ASSIGN_OR_RETURN(const Json object, ParseObject(json, origin));
  FieldReader reader(object, origin);
  ModelConfig config;
  const Family& family = ReadFamily(reader);
  config.architecture = family.architecture;
  config.qkv_bias = family.qkv_bias;
  config.qk_norms = family.qk_norms;
  RefuseWhatIsNotImplemented(reader);
  if (family.window == 0) RefuseWindowsOfSomeBlocks(reader);
  ReadShape(reader, family, &config);
  reader.ReadPositive("rms_norm_eps", &config.rms_norm_eps);
  const Status rope_status = ReadRope(reader, origin, &config);
  reader.ReadBool("tie_word_embeddings", &config.tie_word_embeddings);
  if (family.window > 0 && !reader.IsNull("sliding_window"))
    reader.ReadDimension("sliding_window", kMaxPositions,
                         &config.sliding_window.emplace(family.window));
  ReadDtype(reader, &config.torch_dtype);
  std::vector<std::int32_t> bos;
  reader.ReadTokenIds("bos_token_id", config.vocab_size, &bos);
  if (!bos.empty()) config.bos_token_id = bos.front();
  reader.ReadTokenIds("eos_token_id", config.vocab_size, &config.eos_token_ids);
  MUSTER_RETURN_IF_ERROR(reader.status());
  MUSTER_RETURN_IF_ERROR(rope_status);
  config.raw_json = std::string(json);
  return config;
}

Result<std::string> WithVocabSize(std::string_view json, std::int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > kMaxVocab)
    return InvalidArgument("a vocabulary of " + std::to_string(vocab_size) + " rows");
  auto file = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) return InvalidArgument("config.json holds no JSON object");
  file["vocab_size"] = vocab_size;
  return file.dump(2) + "\n";
}

Result<ModelConfig> ReadModelConfig(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error))
    return MissingModelFile(dir, "there is no model directory " + dir);
  const std::string path = dir + "/config.json";
  if (!std::filesystem::exists(path, error)) return MissingModelFile(dir, "there is no " + path);
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, path));

  const std::string generation_path = dir + "/generation_config.json";
  if (!std::filesystem::exists(generation_path, error)) return config;
  MUSTER_ASSIGN_OR_RETURN(const std::string generation, ReadFile(generation_path, kMaxConfigBytes));
  MUSTER_ASSIGN_OR_RETURN(const Json object, ParseObject(generation, generation_path));
  FieldReader reader(object, generation_path);
  reader.ReadTokenIds("eos_token_id", config.vocab_size, &config.eos_token_ids);
  MUSTER_RETURN_IF_ERROR(reader.status());
  return config;
}

}  // namespace muster
