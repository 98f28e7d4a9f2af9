// Whether a committed checkpoint is still what its ranks wrote, and what can be said where it
// cannot be read. docs/checkpoint-format.md, "Read again".
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

// Called before so many bytes are read; it may wait. Another status than OK calls the reading off.
using BeforeRead = std::function<Status(std::uint64_t bytes)>;

// Reads every shard from the disk. What is damaged was read twice. Missing is told only where the
// checkpoint's own directory is there, or another checkpoint of this job: anywhere else it is the
// whole output directory that this node does not see.
CheckpointScrubbed ScrubShards(const ScrubCheckpoint& order, const BeforeRead& before_read);

// Whether a shard is being written below one of these output directories, by whatever node: its
// temporary file has changed within the last half minute.
bool ShardIsBeingWritten(const std::vector<std::string>& output_dirs);

}  // namespace muster::worker
