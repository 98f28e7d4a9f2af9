#include <cstdio>

#include "common/base/json.h"
#include "common/base/version.h"
#include "common/command_line/version_text.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/plugin/plugin_loader.h"
#include "trainer/verbs/verbs.h"

namespace muster {

int RunVersion(bool as_json) {
  if (!as_json) {
    std::printf("%s\n", VersionText("muster-trainer").c_str());
    return kExitOk;
  }
  nlohmann::json json = {{"version", kVersion}, {"cuda", nullptr}};
  for (const VersionRow& row : kVersionTable)
    json["versions"][std::string(row.key)] = {{"min", row.range.min}, {"max", row.range.max}};
  const Result<const CudaPlugin*> plugin = OpenCudaPlugin(CudaPluginPath());
  if (plugin.ok()) {
    const CudaVersions versions = (*plugin)->versions();
    json["cuda"] = {{"plugin", versions.plugin},
                    {"runtime", versions.runtime},
                    {"driver", versions.driver},
                    {"nccl", versions.nccl}};
  } else {
    json["cuda_error"] = plugin.status().message();
  }
  std::printf("%s\n", json.dump().c_str());
  return kExitOk;
}

}  // namespace muster
