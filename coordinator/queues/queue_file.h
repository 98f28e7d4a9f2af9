// The file of the cluster's queues, as text.
//
// docs/queues.md describes the keys. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/queues/queue_tree.h"

namespace muster {

// What holds without a file, as a file to begin with.
inline constexpr char kDefaultQueueFile[] = "queues:\n  default: {}\n";

// A tree of version 0. kInvalidArgument "FILE:LINE: KEY: what is wrong": nothing is used from an
// invalid file. Bounded in time and memory by the text's length, whatever it has in it.
Result<QueueTree> ParseQueueFile(std::string_view yaml, const std::string& file);

// The tree of the file that the store has, or for version 0 what holds without one.
// kFailedPrecondition: this version of Muster does not accept the file, so another one applied it.
Result<QueueTree> ParseStoredQueues(std::uint64_t version, const std::string& yaml);

}  // namespace muster
