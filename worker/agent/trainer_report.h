// Converts a rank's JSON message (common/control_pipe/trainer_protocol.h) to the plain value that
// is sent to the coordinator. Pure; any thread. The trainer is another program: any input causes an
// error at most.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/wire/messages.h"

namespace muster::worker {

// kInvalidArgument for a message that is malformed or of an unknown kind.
Result<TrainerReport> ParseTrainerReport(const JobId& job, Generation generation, int rank,
                                         const std::string& json);

}  // namespace muster::worker
