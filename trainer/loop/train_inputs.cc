#include "trainer/loop/train_inputs.h"

#include "trainer/formats/chat.h"
#include "trainer/formats/tokenizer.h"
#include "trainer/model/weight_check.h"

namespace muster {
namespace {

struct ModelFiles {
  ModelConfig config;
  SafetensorsModel weights;
};

Result<ModelFiles> OpenModel(const std::string& dir) {
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(dir));
  MUSTER_ASSIGN_OR_RETURN(SafetensorsModel weights, SafetensorsModel::Open(dir));
  MUSTER_RETURN_IF_ERROR(CheckModelTensors(config, weights).WithContext(dir));
  return ModelFiles{std::move(config), std::move(weights)};
}

Result<Dataset> LoadRows(const JobSpec& spec, const ModelConfig& config,
                         const Tokenizer& tokenizer) {
  const DataSpec& data = spec.train->data;
  const std::string path = ResolvePath(spec, data.train);
  DatasetOptions options{.max_seq_len = data.max_seq_len,
                         .chat_template = data.chat_template,
                         .vocab_size = config.vocab_size};
  if (!config.eos_token_ids.empty()) options.eos_token_id = config.eos_token_ids.front();
  MUSTER_ASSIGN_OR_RETURN(Dataset dataset, Dataset::Load(path, tokenizer, options));
  if (dataset.size() == 0) {
    return InvalidArgument(path +
                           ": no row has anything to train on; every row was empty or had "
                           "its answer cut off by train.data.max_seq_len");
  }
  return dataset;
}

}  // namespace

std::string ResolvePath(const JobSpec& spec, const std::string& path) {
  if (path.empty() || path.front() == '/' || spec.workdir.empty()) return path;
  return spec.workdir + "/" + path;
}

std::variant<TrainInputs, Failure> LoadTrainInputs(const JobSpec& spec) {
  const std::string dir = ResolvePath(spec, spec.train->model.path);
  Result<ModelFiles> model = OpenModel(dir);
  if (!model.ok()) return InputFailure("model", model.status());
  const Result<Tokenizer> tokenizer = Tokenizer::Load(dir);
  if (!tokenizer.ok()) return InputFailure("model", tokenizer.status());
  Result<Dataset> dataset = LoadRows(spec, model->config, *tokenizer);
  if (!dataset.ok()) return InputFailure("data", dataset.status());
  const std::int32_t pad_id =
      model->config.eos_token_ids.empty() ? 0 : model->config.eos_token_ids.front();
  return TrainInputs{.model_dir = dir,
                     .config = std::move(model->config),
                     .weights = std::move(model->weights),
                     .dataset = *std::move(dataset),
                     .pad_id = pad_id};
}

}  // namespace muster
