// Whether a model directory's tensors are those that its config.json calls for.
//
// Pure; any thread.
#pragma once

#include "common/base/status.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/safetensors.h"

namespace muster {

// kInvalidArgument names the first tensor that is missing or has another shape. Tensors that the
// model does not use are ignored.
Status CheckModelTensors(const ModelConfig& config, const SafetensorsModel& model);

}  // namespace muster
