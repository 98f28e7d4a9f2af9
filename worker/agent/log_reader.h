// Reads a piece of a rank's log, or of the metrics of its job. Blocks; any thread.
#pragma once

#include "common/wire/messages.h"

namespace muster::worker {

inline constexpr int kMaxLogChunkBytes = 256 * 1024;

LogChunk ReadLogChunk(const ReadLog& request);

}  // namespace muster::worker
