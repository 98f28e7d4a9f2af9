// Whether a committed checkpoint is still what its ranks wrote, and the result if it cannot be
// read. docs/checkpoint-format.md, "Read again".
//
// Free functions; any thread. They block on the disk, for as long as it takes to read a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/wire/messages.h"

namespace muster::worker {

// Called before this many bytes are read; may wait. A status other than OK cancels the reading.
using BeforeRead = std::function<Status(std::uint64_t bytes)>;

// Reads every shard from the disk. Damaged shards were read twice. Shards are missing only if the
// checkpoint's own directory is there, or another checkpoint of this job: otherwise they are
// unreachable, because this node may lack the mount.
CheckpointScrubbed ScrubShards(const ScrubCheckpoint& order, const BeforeRead& before_read);

// Whether a shard is being written below one of these output directories, by any node: its
// temporary file has changed within the last half minute.
bool ShardIsBeingWritten(const std::vector<std::string>& output_dirs);

}  // namespace muster::worker
