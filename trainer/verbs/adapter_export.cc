#include "trainer/verbs/adapter_export.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/core/model_config.h"
#include "trainer/formats/weights_fingerprint.h"
#include "trainer/hub/hub_id.h"
#include "trainer/inputs/origin_agreement.h"
#include "trainer/inputs/vocab_growth.h"
#include "trainer/model/adapter_form.h"
#include "trainer/model/adapters.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/peft.h"
#include "trainer/model/stored_model.h"
#include "trainer/state/checkpoint/export_model.h"

namespace muster {
namespace {

// A directory with configuration and tokenizer alone will do.
Status CheckBase(const ModelConfig& config, const std::string& dir, const AdapterOrigin& origin) {
  const Result<SafetensorsModel> weights = OpenModelWeights(config, dir);
  if (origin.base_weights.empty() || weights.status().code() == StatusCode::kNotFound) {
    return OkStatus();
  }
  if (!weights.ok()) return weights.status();
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t found, FingerprintWeights(*weights));
  if (FingerprintText(found) == origin.base_weights) return OkStatus();
  return FailedPrecondition(dir + " has other weights (" + FingerprintText(found) +
                            ") than the model over which the adapter was trained, " +
                            origin.base_model + " (" + origin.base_weights +
                            "); name that one with --model");
}

std::vector<UnitTensor> TrainedTensors(const ModelConfig& config, const LoraSpec& lora) {
  std::vector<UnitTensor> trained;
  for (const UnitSpec& unit : SplitModel(config, /*blocks_per_unit=*/1, lora).trained) {
    trained.insert(trained.end(), unit.tensors.begin(), unit.tensors.end());
  }
  return trained;
}

// The files that new tokens change; `config` becomes that of the grown model.
Result<std::vector<ModelFile>> GrowVocabulary(const AdapterForm& form, const std::string& dir,
                                              ModelConfig* config) {
  const ModelSpec model{
      .path = dir, .add_tokens = form.add_tokens, .pad_vocab_to = form.pad_vocab_to};
  MUSTER_ASSIGN_OR_RETURN(const std::optional<VocabGrowth> growth,
                          PlanVocabGrowth(model, dir, *config));
  if (!growth) return std::vector<ModelFile>();
  if (growth->grows()) MUSTER_RETURN_IF_ERROR(GrowModel(growth->rows, config, nullptr));
  return FilesOfGrownModel(*growth, *config, /*adapter=*/true);
}

}  // namespace

Status ExportAdapter(StateReader& state, const AdapterExport& options) {
  const AdapterOrigin& origin = *state.adapter();
  const std::string& model = options.model.empty() ? origin.base_model : options.model;
  const Result<std::string> dir = ResolveModel(model);
  if (!dir.ok()) return dir.status().WithContext("the adapter's model (--model names it)");
  MUSTER_ASSIGN_OR_RETURN(const AdapterForm form, ParseAdapterForm(origin.form));
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(*dir));
  MUSTER_RETURN_IF_ERROR(CheckBase(config, *dir, origin));
  MUSTER_ASSIGN_OR_RETURN(std::vector<ModelFile> replaced, GrowVocabulary(form, *dir, &config));
  ModelExport directory{
      .source_dir = *dir, .target_dir = options.out, .replaced = std::move(replaced)};
  const std::vector<UnitTensor> trained = TrainedTensors(config, form.lora);
  for (const UnitTensor& tensor : trained) {
    directory.tensors.push_back({tensor.name, TensorType::kF32, tensor.shape});
  }
  const std::string name =
      options.model.empty() ? origin.base_model : BaseModelName(*dir, options.model);
  directory.adapter = PeftDirectory(trained, form.lora, name);
  return WriteModelDirectory(state, directory);
}

bool HoldsAdapter(const StateReader& state) {
  const std::vector<std::string> names = state.tensors(kWeightKind);
  return state.adapter() || std::any_of(names.begin(), names.end(), [](const std::string& name) {
           return name.ends_with(".lora_A.weight");
         });
}

}  // namespace muster
