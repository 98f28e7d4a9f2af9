#include "trainer/loop/train_inputs.h"

#include <filesystem>

#include "trainer/data/text_dataset.h"
#include "trainer/data/token_dataset.h"
#include "trainer/hub/hub_id.h"
#include "trainer/model/weight_check.h"
#include "trainer/tokenizer/tokenizer.h"

namespace muster {
namespace {

struct ModelFiles {
  ModelConfig config;
  Result<SafetensorsModel> weights;
};

Result<ModelFiles> OpenModel(const std::string& dir) {
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(dir));
  Result<SafetensorsModel> weights = SafetensorsModel::Open(dir);
  if (weights.ok()) {
    MUSTER_RETURN_IF_ERROR(CheckModelTensors(config, *weights).WithContext(dir));
  } else if (weights.status().code() != StatusCode::kNotFound) {
    return weights.status();
  }
  return ModelFiles{std::move(config), std::move(weights)};
}

// The rows of a text file need the model's tokenizer; token ids need none.
std::variant<std::unique_ptr<const Dataset>, Failure> LoadRows(
    const JobSpec& spec, const std::string& model_dir, const ModelConfig& config,
    const std::function<void()>& on_read) {
  const DataSpec& data = spec.train->data;
  const std::string path = ResolvePath(spec, data.train);
  if (IsTokenFile(path)) {
    Result<TokenDataset> rows = TokenDataset::Open(
        path, {.max_seq_len = data.max_seq_len, .vocab_size = config.vocab_size});
    if (!rows.ok()) return InputFailure("data", rows.status());
    return std::make_unique<const TokenDataset>(*std::move(rows));
  }
  const Result<Tokenizer> tokenizer = Tokenizer::Load(model_dir);
  if (!tokenizer.ok()) return InputFailure("model", tokenizer.status());
  const bool is_file = data.chat_template.ends_with(".jinja");
  TextDatasetOptions options{
      .max_seq_len = data.max_seq_len,
      .chat_template = is_file ? ResolvePath(spec, data.chat_template) : data.chat_template,
      .model_dir = model_dir,
      .vocab_size = config.vocab_size,
      .on_rows = on_read};
  if (!config.eos_token_ids.empty()) options.eos_token_id = config.eos_token_ids.front();
  Result<TextDataset> rows = TextDataset::Load(path, *tokenizer, options);
  if (!rows.ok()) return InputFailure("data", rows.status());
  return std::make_unique<const TextDataset>(*std::move(rows));
}

}  // namespace

std::string ResolvePath(const JobSpec& spec, const std::string& path) {
  if (path.empty() || path.front() == '/' || spec.workdir.empty()) return path;
  return spec.workdir + "/" + path;
}

Result<std::string> ModelDirectoryOf(const JobSpec& spec) {
  const std::string path = ResolvePath(spec, spec.train->model.path);
  std::error_code error;
  const bool is_name = ParseHubId(spec.train->model.path).has_value();
  if (!is_name || std::filesystem::exists(path, error)) return path;
  return ResolveModel(spec.train->model.path);
}

std::variant<TrainInputs, Failure> LoadTrainInputs(const JobSpec& spec,
                                                   const std::function<void()>& on_read) {
  const Result<std::string> found = ModelDirectoryOf(spec);
  if (!found.ok()) return InputFailure("model", found.status());
  const std::string& dir = *found;
  Result<ModelFiles> model = OpenModel(dir);
  if (!model.ok()) return InputFailure("model", model.status());
  const std::int64_t length = spec.train->data.max_seq_len;
  if (const auto window = model->config.sliding_window; window && length > *window) {
    return InputFailure("config",
                        Unimplemented("train.data.max_seq_len: " + std::to_string(length) +
                                      ", but the model looks back at " + std::to_string(*window) +
                                      " positions only, which this version does for no longer "
                                      "rows than that"));
  }
  auto rows = LoadRows(spec, dir, model->config, on_read);
  if (auto* failure = std::get_if<Failure>(&rows)) return std::move(*failure);
  const std::int32_t pad_id =
      model->config.eos_token_ids.empty() ? 0 : model->config.eos_token_ids.front();
  return TrainInputs{.model_dir = dir,
                     .config = std::move(model->config),
                     .weights = std::move(model->weights),
                     .dataset = std::get<std::unique_ptr<const Dataset>>(std::move(rows)),
                     .pad_id = pad_id};
}

std::optional<Failure> ProcessInputs::Load() {
  if (inputs_) return std::nullopt;
  std::variant<TrainInputs, Failure> loaded = LoadTrainInputs(spec_, on_read_);
  if (auto* failure = std::get_if<Failure>(&loaded)) return std::move(*failure);
  inputs_.emplace(std::get<TrainInputs>(std::move(loaded)));
  return std::nullopt;
}

}  // namespace muster
