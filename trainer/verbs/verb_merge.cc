#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/generation_config.h"
#include "trainer/formats/model_directory.h"
#include "trainer/hub/hub_id.h"
#include "trainer/inputs/stored_type.h"
#include "trainer/inputs/vocab_growth.h"
#include "trainer/model/adapter_merge.h"
#include "trainer/model/adapters.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"
#include "trainer/model/weight_check.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;
constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

Status MergeTensor(const SafetensorsModel& model, const AdapterMerge& adapter,
                   const UnitTensor& tensor, ModelDirectory* directory) {
  const std::int64_t size = ElementCount(tensor.shape);
  std::vector<float> values(static_cast<std::size_t>(std::min(size, kPieceElements)));
  for (std::int64_t at = 0; at < size; at += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, size - at);
    MUSTER_RETURN_IF_ERROR(model.ReadFloats(tensor.name, at, count, values.data()));
    adapter.Apply(tensor.name, at, count, values.data());
    MUSTER_RETURN_IF_ERROR(directory->Append(values.data(), count));
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
  MUSTER_ASSIGN_OR_RETURN(SafetensorsModel model, SafetensorsModel::Open(source));
  MUSTER_RETURN_IF_ERROR(CheckModelTensors(config, model));
  MUSTER_ASSIGN_OR_RETURN(std::vector<ModelFile> files,
                          GrowToAdapter(options.adapter, &config, &model));
  MUSTER_RETURN_IF_ERROR(AddGenerationConfig(options.adapter, &files));
  MUSTER_ASSIGN_OR_RETURN(const AdapterMerge adapter, AdapterMerge::Open(options.adapter, config));
  const std::vector<UnitTensor> tensors = ModelTensors(config);
  std::vector<TensorSpec> specs;
  for (const UnitTensor& tensor : tensors) {
    specs.push_back({tensor.name, StoredType(config.torch_dtype), tensor.shape});
  }
  ModelDirectory directory(source, options.out);
  directory.Replace(files);
  MUSTER_RETURN_IF_ERROR(directory.Begin(specs, options.max_shard_bytes));
  for (const UnitTensor& tensor : tensors) {
    MUSTER_RETURN_IF_ERROR(MergeTensor(model, adapter, tensor, &directory));
  }
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
