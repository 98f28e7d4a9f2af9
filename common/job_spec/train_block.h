// The train block of a job file: its keys, their ranges, and which of them go together.
//
// Private to common/job_spec.
#pragma once

#include "common/job_spec/job_spec.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {

// Reads all of `map` into `out`; what is wrong goes to the map's errors.
void ReadTrainBlock(MapReader& map, const ResourceSpec& resources, TrainSpec* out);

}  // namespace muster
