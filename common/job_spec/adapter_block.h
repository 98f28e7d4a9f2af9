// Reads train.lora and train.quantization.
//
// Pure; any thread. Errors go to the reader's list.
#pragma once

#include "common/job_spec/job_spec.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {

void ReadAdapters(MapReader& train, TrainSpec* out);

}  // namespace muster
