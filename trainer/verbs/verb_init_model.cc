#include <cstdio>
#include <filesystem>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/formats/init_model.h"
#include "trainer/inputs/init_weights.h"
#include "trainer/model/families/read_config.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

Result<ModelConfig> ReadConfig(const InitModelOptions& options) {
  if (!options.preset.empty()) return PresetConfig(options.preset);
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.config));
  return ParseModelConfig(text, options.config);
}

Status Write(const InitModelOptions& options, const ModelConfig& config) {
  std::error_code error;
  if (std::filesystem::exists(options.out, error) && !std::filesystem::is_empty(options.out, error))
    return AlreadyExists(options.out + " exists already; remove it or name another");
  MUSTER_RETURN_IF_ERROR(MakeDirectories(options.out));
  MUSTER_RETURN_IF_ERROR(WriteModelFiles(options.out, config));
  return WriteRandomWeights(config, options.seed, options.out);
}

}  // namespace

int RunInitModel(const InitModelOptions& options) {
  const Result<ModelConfig> config = ReadConfig(options);
  const Status status = config.ok() ? Write(options, *config) : config.status();
  if (!status.ok()) {
    std::fprintf(stderr, "muster-trainer init-model: %s\n", status.message().c_str());
    return kExitBadInput;
  }
  std::fprintf(stderr, "%s: %.2f M parameters\n", options.out.c_str(),
               static_cast<double>(config->ParameterCount()) / 1e6);
  return kExitOk;
}

}  // namespace muster
