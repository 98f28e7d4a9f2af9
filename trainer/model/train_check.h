// What a train block asks for and the model at hand cannot do.
//
// Pure; any thread.
#pragma once

#include "common/base/status.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"

namespace muster {

// kInvalidArgument as CheckLora, and where experts cannot be divided as asked for; kUnimplemented,
// with the way out, for what this version does not do with a model's experts.
Status CheckTrain(const ModelConfig& config, const TrainSpec& train);

}  // namespace muster
