// Reads train.eval, and what of train.output depends on it.
//
// Pure; any thread. Errors go to the reader's list.
#pragma once

#include "common/job_spec/job_spec.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {

// The train block's data and checkpoint sections have been read.
void ReadEvaluation(MapReader& train, TrainSpec* out);
// output.export; after ReadEvaluation.
void ReadExportedState(MapReader& output, TrainSpec* out);

}  // namespace muster
