#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "common/job_spec/lora_targets.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/generation_config.h"
#include "trainer/formats/model_directory.h"
#include "trainer/hub/hub_id.h"
#include "trainer/inputs/vocab_growth.h"
#include "trainer/model/adapter_merge.h"
#include "trainer/model/adapters.h"
#include "trainer/model/families/family.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"
#include "trainer/model/stored_model.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;
constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

bool IsExpertMatrix(const UnitTensor& tensor) {
  return tensor.role == TensorRole::kExpertGateUp || tensor.role == TensorRole::kExpertDown;
}

bool AdaptsExperts(const LoraSpec& lora) {
  return std::any_of(kExpertParameters.begin(), kExpertParameters.end(), [&](const auto& each) {
    return std::find(lora.target_modules.begin(), lora.target_modules.end(), each) !=
           lora.target_modules.end();
  });
}

Status MergeTensor(const SafetensorsModel& model, const AdapterMerge& adapter,
                   const UnitTensor& tensor, ModelDirectory* directory) {
  const std::int64_t size = ElementCount(tensor.shape), width = tensor.shape.back();
  // Whole rows: matrices that files have turned are read by them.
  const std::int64_t piece = std::max<std::int64_t>(1, kPieceElements / width) * width;
  std::vector<float> values(static_cast<std::size_t>(std::min(size, piece)));
  for (std::int64_t at = 0; at < size; at += piece) {
    const std::int64_t count = std::min(piece, size - at);
    MUSTER_RETURN_IF_ERROR(model.ReadFloats(tensor.name, at, count, values.data()));
    adapter.Apply(tensor.name, at, count, values.data());
    MUSTER_RETURN_IF_ERROR(directory->Append(values.data(), count));
  }
  return OkStatus();
}

struct MergedExperts {
  bool mxfp4 = false;      // are written so
  bool untouched = false;  // and are so in the model, byte for byte
};

Status WriteMerged(const ModelConfig& config, const SafetensorsModel& as_stored,
                   const SafetensorsModel& model, const AdapterMerge& adapter,
                   const MergedExperts& experts, ModelDirectory* directory) {
  for (const UnitTensor& tensor : ModelTensors(config)) {
    if (!experts.untouched || !IsExpertMatrix(tensor)) {
      MUSTER_RETURN_IF_ERROR(MergeTensor(model, adapter, tensor, directory));
    } else if (!tensor.joined) {
      MUSTER_RETURN_IF_ERROR(directory->Copy(as_stored));  // of all experts
    }
  }
  return OkStatus();
}

// Where it was trained on conversations, its directory says where their turns end.
Status AddGenerationConfig(const std::string& adapter, std::vector<ModelFile>* files) {
  const std::string path = adapter + "/" + kGenerationConfig;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  files->push_back({kGenerationConfig, std::move(text)});
  return OkStatus();
}

// An adapter that has a whole embedding may have one with more rows, and the tokenizer for it.
Result<std::vector<ModelFile>> GrowToAdapter(const std::string& adapter, ModelConfig* config,
                                             SafetensorsModel* model) {
  std::vector<ModelFile> files;
  const Result<SafetensorsModel> file = SafetensorsModel::OpenFile(adapter + "/" + kAdapterWeights);
  if (!file.ok()) return files;  // AdapterMerge says what is wrong with the directory
  const TensorSpec* const embedding =
      file->Find(std::string(kPeftPrefix) + "model.embed_tokens.weight");
  const bool whole = embedding != nullptr && embedding->shape.size() == 2;
  if (!whole || embedding->shape[0] <= config->vocab_size) return files;
  MUSTER_RETURN_IF_ERROR(GrowModel(embedding->shape[0], config, model));
  files.push_back({"config.json", config->raw_json});
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = adapter + "/" + name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    MUSTER_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxTokenizerBytes));
    files.push_back({name, std::move(text)});
  }
  return files;
}

Status Merge(const MergeOptions& options) {
  std::error_code error;
  if (std::filesystem::exists(options.out, error)) {
    return AlreadyExists(options.out + " exists already; remove it or name another");
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string source, ResolveModel(options.model));
  MUSTER_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(source));
  if (options.mxfp4) MUSTER_RETURN_IF_ERROR(CheckMxfp4(config));
  MUSTER_ASSIGN_OR_RETURN(SafetensorsModel model, OpenModelWeights(config, source));
  MUSTER_ASSIGN_OR_RETURN(std::vector<ModelFile> files,
                          GrowToAdapter(options.adapter, &config, &model));
  MUSTER_RETURN_IF_ERROR(AddGenerationConfig(options.adapter, &files));
  MUSTER_ASSIGN_OR_RETURN(const AdapterMerge adapter, AdapterMerge::Open(options.adapter, config));
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel as_stored, SafetensorsModel::Open(source));
  const bool untouched = HoldsMxfp4(config, as_stored) && !AdaptsExperts(adapter.spec());
  const MergedExperts experts = {.mxfp4 = options.mxfp4 || untouched, .untouched = untouched};
  if (FamilyOf(config).stacked_experts)
    PutFile({"config.json", WithQuantization(config.raw_json, experts.mxfp4)}, &files);
  ModelDirectory directory(source, options.out);
  directory.Replace(files);
  MUSTER_RETURN_IF_ERROR(
      directory.Begin(StoredTensors(config, experts.mxfp4), options.max_shard_bytes));
  MUSTER_RETURN_IF_ERROR(WriteMerged(config, as_stored, model, adapter, experts, &directory));
  if (experts.mxfp4 && !experts.untouched)
    std::fprintf(stderr, "%s\n", ErrorText(directory.mxfp4_error()).c_str());
  return directory.Finish();
}

}  // namespace

int RunMerge(const MergeOptions& options) {
  const Status status = Merge(options);
  if (!status.ok()) {
    std::fprintf(stderr, "muster-trainer merge: %s\n", status.message().c_str());
    return kExitBadInput;
  }
  std::fprintf(stderr, "%s written\n", options.out.c_str());
  return kExitOk;
}

}  // namespace muster
