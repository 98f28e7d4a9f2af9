// The file of the cluster's queues, as text.
//
// docs/queues.md describes the keys. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/queues/queue_tree.h"

namespace muster {

// A tree of version 0. kInvalidArgument "FILE:LINE: KEY: what is wrong": nothing is used from an
// invalid file. Bounded in time and memory by the text's length, whatever it has in it.
Result<QueueTree> ParseQueueFile(std::string_view yaml, const std::string& file);

}  // namespace muster
