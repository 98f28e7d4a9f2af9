// What a path holds, for people and scripts: a model directory, safetensors, a checkpoint, a shard.
//
// Functions that read the disk; any thread. Weights are not loaded.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"

namespace muster {

struct InspectionOptions {
  bool verify = false;   // read checkpoints whole and compare their checksums
  bool tensors = false;  // list the tensors of a model
};

// An object whose "kind" is model, safetensors, checkpoint or shard. Errors name the file.
Result<nlohmann::ordered_json> InspectPath(const std::string& path,
                                           const InspectionOptions& options);

// Scalars one per line, objects indented, lists of objects one line per entry.
std::string InspectionText(const nlohmann::ordered_json& json);

}  // namespace muster
