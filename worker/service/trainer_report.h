// A rank's JSON message (common/control_pipe/trainer_protocol.h) as muster.v1.TrainerReport. Pure;
// any thread. The trainer is another program: whatever it sends is an error at most.
#pragma once

#include <string>

#include "muster/v1/worker_api.pb.h"
#include "worker/agent/messages.h"

namespace muster::worker {

// False if the message is malformed or of an unknown kind.
bool FillTrainerReport(const TrainerReport& from, v1::TrainerReport* to);

// The text with every byte that is no UTF-8 replaced: protobuf strings carry nothing else.
std::string ValidUtf8(const std::string& text);

}  // namespace muster::worker
