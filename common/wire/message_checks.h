// What a receiver checks of a message beyond its limits (common/rpc/message_limits.h): what a peer
// could get wrong and the cores rely on. kInvalidArgument names the field. Pure; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/wire/messages.h"
#include "muster/v1/worker_api.pb.h"

namespace muster {

Status CheckCounts(const v1::Hello& hello);
// A job's id becomes the name of a directory, which is removed later.
Status CheckJobId(const std::string& id);

template <typename Proto>
Status CheckRank(const Proto& message) {
  if (message.rank() >= 0 && message.rank() < kMaxSlots * kMaxSlots) return OkStatus();
  return InvalidArgument("rank " + std::to_string(message.rank()) + " is out of range");
}

}  // namespace muster
