// Whether a model directory's tensors are those that its config.json calls for.
//
// Pure; any thread.
#pragma once

#include "common/base/status.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/safetensors.h"

namespace muster {

// kInvalidArgument names the first tensor that is missing, has another shape or a type that is not
// read, or is none of the model's, with its file. A head beside a tied embedding and the rotation's
// frequencies, which older exports hold, are none of these.
Status CheckModelTensors(const ModelConfig& config, const SafetensorsModel& model);

}  // namespace muster
