#include "trainer/inputs/train_inputs.h"

#include <filesystem>

#include "trainer/formats/generation_config.h"
#include "trainer/formats/weights_fingerprint.h"
#include "trainer/hub/hub_id.h"
#include "trainer/model/families/family.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/stored_model.h"
#include "trainer/model/train_check.h"

namespace muster {
namespace {

struct ModelFiles {
  ModelConfig config;
  Result<SafetensorsModel> weights;
};

Result<ModelFiles> OpenModel(const std::string& dir) {
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(dir));
  Result<SafetensorsModel> weights = OpenModelWeights(config, dir);
  if (!weights.ok() && weights.status().code() != StatusCode::kNotFound) return weights.status();
  return ModelFiles{std::move(config), std::move(weights)};
}

// The token cache of a process that is kept may have been damaged, and made anew by another one.
bool RowsAreThere(const TrainInputs& inputs) {
  return inputs.dataset->Check().ok() && (!inputs.eval || inputs.eval->Check().ok());
}

// Only a job that evaluates shows samples.
Result<std::optional<SamplePrompts>> LoadSamples(const JobSpec& spec, const std::string& model_dir,
                                                 const std::string& tokenizer_json,
                                                 const ModelConfig& config) {
  const TrainSpec& train = *spec.train;
  if (!train.evaluates() || train.eval.samples.empty()) return std::optional<SamplePrompts>();
  MUSTER_ASSIGN_OR_RETURN(SamplePrompts samples,
                          SamplePrompts::Load(train.eval.samples, config,
                                              {.model_dir = model_dir,
                                               .tokenizer_json = tokenizer_json,
                                               .chat_template = ChatTemplateChoice(spec),
                                               .chat_date = train.data.chat_date,
                                               .max_tokens = train.data.max_seq_len}));
  return std::optional<SamplePrompts>(std::move(samples));
}

// What the job adds to the vocabulary, done to the model.
Result<std::optional<VocabGrowth>> Grow(const TrainSpec& train, const std::string& dir,
                                        ModelFiles* model) {
  MUSTER_ASSIGN_OR_RETURN(std::optional<VocabGrowth> growth,
                          PlanVocabGrowth(train.model, dir, model->config));
  if (!growth || !growth->grows()) return growth;
  if (train.lora) {
    MUSTER_RETURN_IF_ERROR(CheckRowsAreTrained(*growth, model->config, *train.lora));
  }
  SafetensorsModel* const weights = model->weights.ok() ? &*model->weights : nullptr;
  MUSTER_RETURN_IF_ERROR(GrowModel(growth->rows, &model->config, weights));
  return growth;
}

// Full-parameter jobs read the files once, so that only adapters depend on what they hold later.
Result<std::optional<std::uint64_t>> FingerprintBase(const TrainSpec& train,
                                                     const Result<SafetensorsModel>& weights) {
  if (!train.lora || !weights.ok()) return std::optional<std::uint64_t>();
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t fingerprint, FingerprintWeights(*weights));
  return std::optional<std::uint64_t>(fingerprint);
}

}  // namespace

Result<std::string> ModelDirectoryOf(const JobSpec& spec) {
  const std::string path = ResolvePath(spec, spec.train->model.path);
  std::error_code error;
  const bool is_name = ParseHubId(spec.train->model.path).has_value();
  if (!is_name || std::filesystem::exists(path, error)) return path;
  return ResolveModel(spec.train->model.path);
}

TrainResult<TrainInputs> LoadTrainInputs(const JobSpec& spec, const InputEvents& events) {
  constexpr FailureKind kConfig = FailureKind::kConfig, kModel = FailureKind::kModel;
  MUSTER_ASSIGN_OR_RETURN(const std::string dir, FromInput(kModel, ModelDirectoryOf(spec)));
  MUSTER_ASSIGN_OR_RETURN(ModelFiles model, FromInput(kModel, OpenModel(dir)));
  const TrainStatus fits = FromInput(kConfig, CheckTrain(model.config, *spec.train));
  if (!fits.ok()) return fits;
  MUSTER_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> base_weights,
                          FromInput(kModel, FingerprintBase(*spec.train, model.weights)));
  MUSTER_ASSIGN_OR_RETURN(std::optional<VocabGrowth> growth,
                          FromInput(kConfig, Grow(*spec.train, dir, &model)));
  const std::string tokenizer_json = growth ? growth->tokenizer_json : std::string();
  // Before the rows, which may be tokenized for hours.
  MUSTER_ASSIGN_OR_RETURN(std::optional<SamplePrompts> samples,
                          FromInput(kConfig, LoadSamples(spec, dir, tokenizer_json, model.config)));
  MUSTER_ASSIGN_OR_RETURN(LoadedRows rows,
                          LoadRows(spec, dir, model.config, events, tokenizer_json));
  std::string generation_config;
  if (!rows.ends_of_turn.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        generation_config,
        FromInput(kModel, GenerationConfigWithEnds(dir, model.config, rows.ends_of_turn)));
  }
  const std::int32_t pad_id =
      model.config.eos_token_ids.empty() ? 0 : model.config.eos_token_ids.front();
  return TrainInputs{.model_dir = dir,
                     .config = std::move(model.config),
                     .growth = std::move(growth),
                     .generation_config = std::move(generation_config),
                     .weights = std::move(model.weights),
                     .base_weights = base_weights,
                     .dataset = std::move(rows.train),
                     .eval = std::move(rows.eval),
                     .samples = std::move(samples),
                     .notes = std::move(rows.notes),
                     .pad_id = pad_id};
}

std::vector<ModelFile> ChangedFiles(const TrainInputs& inputs, bool adapter) {
  std::vector<ModelFile> files;
  if (inputs.growth) files = FilesOfGrownModel(*inputs.growth, inputs.config, adapter);
  // Trained experts are written as they are computed with, whatever they were read from.
  if (!adapter && FamilyOf(inputs.config).stacked_experts)
    PutFile({"config.json", WithQuantization(inputs.config.raw_json, /*mxfp4=*/false)}, &files);
  if (!inputs.generation_config.empty()) {
    files.push_back({kGenerationConfig, inputs.generation_config});
  }
  return files;
}

TrainStatus ProcessInputs::Load(const std::function<void()>& meet) {
  if (inputs_ && RowsAreThere(*inputs_)) return {};
  inputs_.reset();
  InputEvents events = events_;
  if (meet) {
    events.on_wait = meet;
    events.on_read = [&] {
      if (events_.on_read) events_.on_read();
      meet();
    };
  }
  MUSTER_ASSIGN_OR_RETURN(inputs_, LoadTrainInputs(spec_, events));
  return {};
}

}  // namespace muster
