// What the trainer of this node reports about its CUDA plug-in.
//
// Starts `muster-trainer version --json` and reads the answer. Blocks, so it runs on the worker's
// pool; the parser is pure.
#pragma once

#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/cuda_stack.h"
#include "common/base/result.h"

namespace muster::worker {

// kFailedPrecondition names what the trainer lacks; kDeadlineExceeded: it did not answer in time.
Result<CudaStack> AskCudaStack(const std::string& trainer_path,
                               const std::map<std::string, std::string>& environment,
                               Duration timeout);

// Parses the trainer's output.
Result<CudaStack> ParseCudaStack(const std::string& json);

}  // namespace muster::worker
