#include "trainer/formats/init_model.h"

#include <filesystem>

#include "common/base/files.h"
#include "common/base/json.h"
#include "trainer/text/tokenizer/byte_alphabet.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxCopiedBytes = 256 << 20;

struct SpecialToken {
  std::int32_t id;
  const char* text;
};
constexpr SpecialToken kSpecialTokens[] = {
    {kEndOfTextId, "<|endoftext|>"}, {kImStartId, "<|im_start|>"}, {kImEndId, "<|im_end|>"}};

Json SpecialTokenJson(const char* text) {
  return {{"content", text},
          {"lstrip", false},
          {"normalized", false},
          {"rstrip", false},
          {"single_word", false}};
}

// The config.json that the model was asked for by, with the ids of the tokenizer that lies beside
// it; that of a preset is a Llama's.
Json ConfigJson(const ModelConfig& config) {
  if (!config.raw_json.empty()) {
    Json given = Json::parse(config.raw_json);
    given.erase("quantization_config");  // random weights are numbers
    given.update({{"bos_token_id", kEndOfTextId},
                  {"eos_token_id", {kEndOfTextId, kImEndId}},
                  {"pad_token_id", kEndOfTextId}});
    return given;
  }
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", kEndOfTextId},
          {"eos_token_id", {kEndOfTextId, kImEndId}},
          {"pad_token_id", kEndOfTextId},
          {"hidden_act", "silu"},
          {"hidden_size", config.hidden_size},
          {"initializer_range", 0.02},
          {"intermediate_size", config.intermediate_size},
          {"max_position_embeddings", config.max_position_embeddings},
          {"mlp_bias", false},
          {"num_attention_heads", config.num_attention_heads},
          {"num_hidden_layers", config.num_hidden_layers},
          {"num_key_value_heads", config.num_key_value_heads},
          {"head_dim", config.head_dim},
          {"rms_norm_eps", config.rms_norm_eps},
          {"rope_scaling", nullptr},
          {"rope_theta", config.rope_theta},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"torch_dtype", config.torch_dtype},
          {"use_cache", true},
          {"vocab_size", config.vocab_size}};
}

Json TokenizerJson() {
  Json added = Json::array();
  for (const SpecialToken& token : kSpecialTokens) {
    Json json = {{"id", token.id}};
    json.update(SpecialTokenJson(token.text));
    json["special"] = true;
    added.push_back(json);
  }
  Json vocab = Json::object();
  for (std::size_t byte = 0; byte < 256; ++byte) vocab[ByteAlphabet()[byte]] = byte;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", Json::array()}}}};
}

Json TokenizerConfigJson(const ModelConfig& config) {
  Json decoder = Json::object();
  for (const SpecialToken& token : kSpecialTokens) {
    decoder[std::to_string(token.id)] = SpecialTokenJson(token.text);
    decoder[std::to_string(token.id)]["special"] = true;
  }
  return {{"add_prefix_space", false},
          {"added_tokens_decoder", decoder},
          {"additional_special_tokens", {"<|im_start|>", "<|im_end|>"}},
          {"bos_token", "<|endoftext|>"},
          {"chat_template", kChatmlJinja},
          {"clean_up_tokenization_spaces", false},
          {"eos_token", "<|endoftext|>"},
          {"model_max_length", config.max_position_embeddings},
          {"pad_token", "<|endoftext|>"},
          {"tokenizer_class", "PreTrainedTokenizerFast"}};
}

Json SpecialTokensMapJson() {
  return {{"additional_special_tokens", {"<|im_start|>", "<|im_end|>"}},
          {"bos_token", SpecialTokenJson("<|endoftext|>")},
          {"eos_token", SpecialTokenJson("<|endoftext|>")},
          {"pad_token", SpecialTokenJson("<|endoftext|>")}};
}

Json GenerationConfigJson() {
  return {{"bos_token_id", kEndOfTextId},
          {"eos_token_id", {kEndOfTextId, kImEndId}},
          {"pad_token_id", kEndOfTextId}};
}

const std::vector<std::string> kTokenizerFiles = {"tokenizer.json",
                                                  "tokenizer.model",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "chat_template.jinja",
                                                  "chat_template.json"};

// Those of `names` that are there.
Result<std::vector<std::string>> CopyFiles(const std::vector<std::string>& names,
                                           const std::string& from, const std::string& to) {
  std::vector<std::string> copied;
  for (const std::string& name : names) {
    const std::string source = from + "/" + name;
    std::error_code error;
    if (!std::filesystem::exists(source, error)) continue;
    MUSTER_ASSIGN_OR_RETURN(const std::string content, ReadFile(source, kMaxCopiedBytes));
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(to + "/" + name, content));
    copied.push_back(name);
  }
  return copied;
}

}  // namespace

Result<ModelConfig> PresetConfig(const std::string& name) {
  ModelConfig config;
  config.bos_token_id = kEndOfTextId;
  config.eos_token_ids = {kEndOfTextId, kImEndId};
  config.head_dim = 64;
  config.max_position_embeddings = 2048;
  if (name == "tiny") {
    config.hidden_size = 256;
    config.intermediate_size = 688;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 512;
    return config;
  }
  if (name == "small") {
    config.hidden_size = 512;
    config.intermediate_size = 1408;
    config.num_hidden_layers = 8;
    config.num_attention_heads = 8;
    config.num_key_value_heads = 4;
    config.vocab_size = 8192;
    return config;
  }
  return InvalidArgument("there is no preset " + name + "; there are tiny and small");
}

Status WriteModelFiles(const std::string& dir, const ModelConfig& config) {
  if (config.vocab_size < kByteVocabSize)
    return InvalidArgument("vocab_size " + std::to_string(config.vocab_size) +
                           " is too small for the byte-level tokenizer, which needs " +
                           std::to_string(kByteVocabSize));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir));
  const std::pair<const char*, Json> files[] = {
      {"config.json", ConfigJson(config)},
      {"generation_config.json", GenerationConfigJson()},
      {"tokenizer.json", TokenizerJson()},
      {"tokenizer_config.json", TokenizerConfigJson(config)},
      {"special_tokens_map.json", SpecialTokensMapJson()},
  };
  for (const auto& [name, json] : files)
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(dir + "/" + name, json.dump(2) + "\n"));
  return OkStatus();
}

Result<std::vector<std::string>> CopyModelFiles(const std::string& from, const std::string& to) {
  std::error_code error;
  if (!std::filesystem::exists(from + "/config.json", error)) {
    return NotFound("there is no " + from + "/config.json to copy");
  }
  MUSTER_RETURN_IF_ERROR(MakeDirectories(to));
  MUSTER_ASSIGN_OR_RETURN(std::vector<std::string> copied,
                          CopyFiles({"config.json", "generation_config.json"}, from, to));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> tokenizer,
                          CopyFiles(kTokenizerFiles, from, to));
  copied.insert(copied.end(), tokenizer.begin(), tokenizer.end());
  return copied;
}

Status CopyTokenizerFiles(const std::string& from, const std::string& to) {
  return CopyFiles(kTokenizerFiles, from, to).status();
}

}  // namespace muster
