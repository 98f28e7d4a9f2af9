#include "trainer/model/families/read_config.h"

#include <filesystem>

#include "common/base/files.h"
#include "trainer/model/families/family.h"
#include "trainer/model/families/read_rope.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxConfigBytes = 16 << 20;
// Far beyond any real model, and such that the number of its parameters still fits 64 bits.
constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxIntermediate = 1 << 22;
constexpr std::int64_t kMaxLayers = 1 << 14;
constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxHeadDim = 1 << 12;
constexpr std::int64_t kMaxVocab = 1 << 28;

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
const Family& ReadFamily(ConfigReader& reader) {
  const Json* list = reader.Find("architectures");
  std::string name, model_type, known;
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string())
    name = list->front().get<std::string>();
  reader.ReadString("model_type", &model_type);
  for (const Family& family : Families()) {
    const std::string& architecture = family.defaults.architecture;
    if (name.empty() ? model_type == family.model_type : name == architecture) return family;
    known += (known.empty() ? "" : ", ") + architecture;
  }
  known = "this version trains " + known;
  if (name.empty()) {
    reader.Fail("architectures", "does not name an architecture; " + known);
  } else {
    reader.Refuse("the architecture " + name + " is not supported; " + known);
  }
  return Families().front();
}

// The experts may be in MXFP4, as their tensors then say (stored_model.h).
void RefuseQuantization(ConfigReader& reader, const Family& family) {
  const Json* quantization = reader.Find("quantization_config");
  if (quantization == nullptr) return;
  if (!family.stacked_experts)
    return reader.Refuse(
        "quantized weights (quantization_config) are not supported by this version");
  const Json method =
      quantization->is_object() ? quantization->value("quant_method", Json()) : Json();
  if (method != "mxfp4")
    reader.Refuse("quantization_config: quant_method " + method.dump() +
                  " is not supported; of this architecture this version reads mxfp4 and bf16");
}

void RefuseWhatIsNotImplemented(ConfigReader& reader, const Family& family) {
  const ModelConfig& defaults = family.defaults;
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    bool value = false;
    reader.ReadBool(key, &value);
    if (family.reads_attention_bias && key == std::string_view("attention_bias")) continue;
    if (value) reader.Refuse(std::string(key) + " true is not supported by this version");
  }
  std::string activation = "silu";
  // The others read an activation that they name otherwise.
  if (defaults.activation == Activation::kSilu) reader.ReadString("hidden_act", &activation);
  if (activation != "silu" && activation != "swish")
    reader.Refuse("hidden_act " + activation + " is not supported; this version knows silu");
  if (const Json* dropout = reader.Find("attention_dropout"); dropout != nullptr && *dropout != 0)
    reader.Refuse("attention_dropout other than 0 is not supported by this version");
  RefuseQuantization(reader, family);
}

void ReadDtype(ConfigReader& reader, std::string* dtype) {
  reader.ReadString("torch_dtype", dtype);
  reader.ReadString("dtype", dtype);  // transformers 5
  if (dtype->starts_with("torch.")) dtype->erase(0, 6);
  if (*dtype != "float32" && *dtype != "bfloat16" && *dtype != "float16")
    reader.Refuse("weights of type " + *dtype +
                  " are not supported; float32, bfloat16 and float16 are");
}

void ReadShape(ConfigReader& reader, ModelConfig* config) {
  reader.RequireDimension("hidden_size", kMaxHidden, &config->hidden_size);
  reader.RequireDimension("intermediate_size", kMaxIntermediate, &config->intermediate_size);
  reader.RequireDimension("num_hidden_layers", kMaxLayers, &config->num_hidden_layers);
  reader.RequireDimension("num_attention_heads", kMaxHeads, &config->num_attention_heads);
  reader.RequireDimension("vocab_size", kMaxVocab, &config->vocab_size);
  reader.ReadPositions("max_position_embeddings", &config->max_position_embeddings);
  if (!reader.status().ok()) return;
  if (config->num_key_value_heads == 0 || reader.IsNull("num_key_value_heads"))
    config->num_key_value_heads = config->num_attention_heads;
  reader.ReadDimension("num_key_value_heads", kMaxHeads, &config->num_key_value_heads);
  if (config->num_attention_heads % config->num_key_value_heads != 0)
    reader.Fail("num_key_value_heads", "does not divide num_attention_heads");
  const bool derived = reader.Find("head_dim") == nullptr && config->head_dim == 0;
  if (derived && config->hidden_size % config->num_attention_heads != 0)
    reader.Fail("num_attention_heads", "does not divide hidden_size, and head_dim is not given");
  if (derived) config->head_dim = config->hidden_size / config->num_attention_heads;
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

Result<ModelConfig> ParseModelConfig(std::string_view json, const std::string& origin) {
  MUSTER_ASSIGN_OR_RETURN(const Json object, ParseObject(json, origin));
  ConfigReader reader(object, origin);
  const Family& family = ReadFamily(reader);
  ModelConfig config = family.defaults;
  RefuseWhatIsNotImplemented(reader, family);
  ReadShape(reader, &config);
  reader.ReadPositive("rms_norm_eps", &config.rms_norm_eps);
  const Status rope_status = ReadRope(reader, origin, family, &config);
  reader.ReadBool("tie_word_embeddings", &config.tie_word_embeddings);
  ReadDtype(reader, &config.torch_dtype);
  std::vector<std::int32_t> bos;
  reader.ReadTokenIds("bos_token_id", config.vocab_size, &bos);
  if (!bos.empty()) config.bos_token_id = bos.front();
  reader.ReadTokenIds("eos_token_id", config.vocab_size, &config.eos_token_ids);
  family.read(reader, config);
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

std::string WithQuantization(std::string_view json, bool mxfp4) {
  auto file = nlohmann::ordered_json::parse(json);
  if (!mxfp4) file.erase("quantization_config");
  if (mxfp4 && !file.contains("quantization_config")) {
    file["quantization_config"] = {{"quant_method", "mxfp4"},
                                   {"modules_to_not_convert",
                                    {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                     "model.embed_tokens", "lm_head"}}};
  }
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
  ConfigReader reader(object, generation_path);
  reader.ReadTokenIds("eos_token_id", config.vocab_size, &config.eos_token_ids);
  MUSTER_RETURN_IF_ERROR(reader.status());
  return config;
}

}  // namespace muster
