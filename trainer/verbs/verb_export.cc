#include <cstdio>
#include <filesystem>
#include <memory>

#include "common/control_pipe/trainer_protocol.h"
#include "trainer/core/model_config.h"
#include "trainer/hub/hub_id.h"
#include "trainer/model/families/family.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"
#include "trainer/model/stored_model.h"
#include "trainer/state/checkpoint/export_model.h"
#include "trainer/state/checkpoint/file_state.h"
#include "trainer/state/checkpoint/state_reader.h"
#include "trainer/verbs/adapter_export.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

Status ExportWholeModel(StateReader& state, const ExportStateOptions& options) {
  if (options.model.empty()) {
    return InvalidArgument("--format hf needs --model, for " + state.path() +
                           " holds a whole model's weights, and configuration and tokenizer come "
                           "from there");
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string source, ResolveModel(options.model));
  MUSTER_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(source));
  if (options.mxfp4) MUSTER_RETURN_IF_ERROR(CheckMxfp4(config));
  ModelExport model{.stored = StoredTensors(config, options.mxfp4),
                    .source_dir = source,
                    .target_dir = options.out,
                    .max_shard_bytes = options.max_shard_bytes};
  if (FamilyOf(config).stacked_experts)
    model.replaced = {{"config.json", WithQuantization(config.raw_json, options.mxfp4)}};
  for (const UnitTensor& tensor : ModelTensors(config))
    model.tensors.push_back({.name = tensor.name, .shape = tensor.shape});
  Mxfp4Error error;
  MUSTER_RETURN_IF_ERROR(WriteModelDirectory(state, model, &error));
  if (options.mxfp4) std::fprintf(stderr, "%s\n", ErrorText(error).c_str());
  return OkStatus();
}

Status ExportHuggingFace(StateReader& state, const ExportStateOptions& options) {
  if (!HoldsAdapter(state)) return ExportWholeModel(state, options);
  if (options.mxfp4) {
    return InvalidArgument("--mxfp4: " + state.path() +
                           " holds an adapter; give it to muster-trainer merge");
  }
  if (state.adapter()) return ExportAdapter(state, {.model = options.model, .out = options.out});
  return FailedPrecondition(
      state.path() +
      " holds an adapter of a version that did not keep its form with it; resume "
      "the job, whose next checkpoint has it");
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
