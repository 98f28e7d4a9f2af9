#include <cstdio>
#include <filesystem>
#include <memory>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/checkpoint/export_model.h"
#include "trainer/checkpoint/file_state.h"
#include "trainer/checkpoint/state_reader.h"
#include "trainer/core/model_config.h"
#include "trainer/hub/hub_id.h"
#include "trainer/loop/stored_type.h"
#include "trainer/model/llama_units.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

Status ExportHuggingFace(StateReader& state, const ExportStateOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::string source, ResolveModel(options.model));
  const std::string config_path = source + "/config.json";
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(config_path));
  MUSTER_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(text, config_path));
  ModelExport model{
      .source_dir = source, .target_dir = options.out, .max_shard_bytes = options.max_shard_bytes};
  for (const UnitTensor& tensor : LlamaTensors(config)) {
    model.tensors.push_back({tensor.name, StoredType(config.torch_dtype), tensor.shape});
  }
  return WriteModelDirectory(state, model);
}

Status Export(const ExportStateOptions& options) {
  std::error_code error;
  if (std::filesystem::exists(options.out, error)) {
    return AlreadyExists(options.out + " exists already; remove it or name another");
  }
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<StateReader> state, OpenState(options.checkpoint));
  if (options.format == "hf") return ExportHuggingFace(*state, options);
  return WriteStateFile(*state, options.out);
}

}  // namespace

int RunExport(const ExportStateOptions& options) {
  const Status status = Export(options);
  if (!status.ok()) {
    std::fprintf(stderr, "muster-trainer export: %s\n", status.message().c_str());
    return kExitBadInput;
  }
  std::fprintf(stderr, "%s written\n", options.out.c_str());
  return kExitOk;
}

}  // namespace muster
