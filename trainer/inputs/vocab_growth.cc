#include "trainer/inputs/vocab_growth.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "common/base/round_up.h"
#include "trainer/formats/init_model.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;
constexpr char kTokenizerJson[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
constexpr std::size_t kNamedTokens = 8;  // in the line for people

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Adds what the job names; the number of ids that the tokenizer has then.
Result<std::int64_t> Extend(const std::vector<TokenSpec>& named, const std::string& model_dir,
                            VocabGrowth* growth) {
  const std::string path = model_dir + "/" + kTokenizerJson;
  if (!Exists(path)) {
    return InvalidArgument(
        "train.model.add_tokens: there is no " + path +
        " to add them to; write one: transformers.AutoTokenizer.from_pretrained(DIR)"
        ".save_pretrained(DIR)");
  }
  std::vector<NewToken> tokens;
  for (const TokenSpec& token : named) tokens.push_back({token.content, token.special});
  MUSTER_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxTokenizerBytes));
  MUSTER_ASSIGN_OR_RETURN(ExtendedTokenizer extended, ExtendTokenizerJson(json, tokens, path));
  growth->tokens = std::move(extended.added);
  if (growth->tokens.empty()) return std::int64_t{extended.vocab_size};
  growth->tokenizer_json = std::move(extended.json);
  const std::string config_path = model_dir + "/" + kTokenizerConfig;
  if (Exists(config_path)) {
    MUSTER_ASSIGN_OR_RETURN(const std::string config, ReadFile(config_path));
    MUSTER_ASSIGN_OR_RETURN(growth->tokenizer_config,
                            ExtendTokenizerConfig(config, growth->tokenizer_json, config_path));
  }
  return std::int64_t{extended.vocab_size};
}

// A model without a tokenizer has rows for the ids that it is trained on.
Result<std::int64_t> IdsOfTokenizer(const std::string& model_dir) {
  const Result<Tokenizer> tokenizer = Tokenizer::Load(model_dir);
  if (tokenizer.status().code() == StatusCode::kNotFound) return std::int64_t{0};
  if (!tokenizer.ok()) return tokenizer.status();
  return std::int64_t{tokenizer->vocab_size()};
}

}  // namespace

std::string VocabGrowth::Describe() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(tokens.size(), kNamedTokens); ++i) {
    text += (i == 0 ? "new tokens: " : ", ") + tokens[i].content + " (" +
            std::to_string(tokens[i].id) + ")";
  }
  if (tokens.size() > kNamedTokens) {
    text += " and " + std::to_string(tokens.size() - kNamedTokens) + " more";
  }
  text += (text.empty() ? "" : "; ") + ("the embedding has " + std::to_string(rows) + " rows");
  if (!grows()) return text;
  return text + ", " + std::to_string(rows - rows_before) +
         " more than in the model's files: they begin as the mean of the others";
}

Result<std::optional<VocabGrowth>> PlanVocabGrowth(const ModelSpec& spec,
                                                   const std::string& model_dir,
                                                   const ModelConfig& config) {
  if (!spec.add_tokens && spec.pad_vocab_to == 0) return std::optional<VocabGrowth>();
  VocabGrowth growth{.rows_before = config.vocab_size};
  std::int64_t ids = 0;
  if (spec.add_tokens && !spec.add_tokens->empty()) {
    MUSTER_ASSIGN_OR_RETURN(ids, Extend(*spec.add_tokens, model_dir, &growth));
  } else {
    MUSTER_ASSIGN_OR_RETURN(ids, IdsOfTokenizer(model_dir));
  }
  growth.rows =
      RoundUp(std::max(config.vocab_size, ids), std::max<std::int64_t>(1, spec.pad_vocab_to));
  return std::optional<VocabGrowth>(std::move(growth));
}

Result<Tokenizer> LoadTokenizer(const std::string& model_dir, const std::string& tokenizer_json) {
  if (tokenizer_json.empty()) return Tokenizer::Load(model_dir);
  return Tokenizer::Parse(tokenizer_json, model_dir + " with new tokens");
}

Status CheckRowsAreTrained(const VocabGrowth& growth, const ModelConfig& config,
                           const LoraSpec& lora) {
  if (!growth.grows()) return OkStatus();
  const auto missing = [&lora](const char* module) {
    return std::find(lora.modules_to_save.begin(), lora.modules_to_save.end(), module) ==
           lora.modules_to_save.end();
  };
  std::string names;
  if (missing("embed_tokens")) names = "embed_tokens";
  if (!config.tie_word_embeddings && missing("lm_head")) {
    names += (names.empty() ? "" : " and ") + std::string("lm_head");
  }
  if (names.empty()) return OkStatus();
  return InvalidArgument("train.model.add_tokens: the embedding grows from " +
                         std::to_string(growth.rows_before) + " to " + std::to_string(growth.rows) +
                         " rows, and train.lora would leave the new ones untrained; add " + names +
                         " to train.lora.modules_to_save");
}

Status GrowModel(std::int64_t rows, ModelConfig* config, SafetensorsModel* weights) {
  MUSTER_ASSIGN_OR_RETURN(config->raw_json, WithVocabSize(config->raw_json, rows));
  config->vocab_size = rows;
  if (weights == nullptr) return OkStatus();
  for (const UnitTensor& tensor : ModelTensors(*config)) {
    if (tensor.role != TensorRole::kEmbedding && tensor.role != TensorRole::kHead) continue;
    MUSTER_RETURN_IF_ERROR(weights->GrowRows(tensor.name, rows));
  }
  return OkStatus();
}

std::vector<ModelFile> FilesOfGrownModel(const VocabGrowth& growth, const ModelConfig& grown,
                                         bool adapter) {
  std::vector<ModelFile> files;
  if (growth.grows() && !adapter) files.push_back({"config.json", grown.raw_json});
  if (!growth.tokenizer_json.empty()) files.push_back({kTokenizerJson, growth.tokenizer_json});
  if (!growth.tokenizer_config.empty()) {
    files.push_back({kTokenizerConfig, growth.tokenizer_config});
  }
  return files;
}

Status WriteGrownFiles(const std::string& model_dir, const std::vector<ModelFile>& files,
                       const std::string& target_dir) {
  MUSTER_RETURN_IF_ERROR(CopyModelFiles(model_dir, target_dir).status());
  for (const ModelFile& file : files) {
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(target_dir + "/" + file.name, file.text));
  }
  return OkStatus();
}

}  // namespace muster
