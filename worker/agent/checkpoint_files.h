// A checkpoint's commit record on disk, and the removal of old checkpoints.
//
// The manifest is written beside the shards after the coordinator has committed, so that a copied
// checkpoint stands alone; docs/checkpoint-format.md describes it. Blocks (fsync, and as long as it
// takes to read a checkpoint); free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/wire/messages.h"

namespace muster::worker {

// {"format_version":1,"job_id","step","generation","directory","world_size",
//  "shards":[{"rank","file","bytes","checksum"}],"committed_unix_ms"}, and "eval_loss" where known
std::string ManifestJson(const JobId& job, const CheckpointInfo& checkpoint);

// "step-" and letters, digits, '-', '_' or '.': a name of a checkpoint and of nothing else.
bool IsCheckpointName(const std::string& name);

// Reads every shard again, from the disk and not from the page cache, compares it with what its
// rank reported, writes manifest.json durably, and only then removes what is listed in `prune`: an
// older checkpoint goes because of one that is known to be whole. The status is the new one's
// (kNotFound, kDataLoss: a shard is not there or damaged; nothing is written or removed then); a
// directory that could not be removed is named in `prune_error`. The output directory is shared by
// all nodes of the job.
Status WriteManifest(const CheckpointCommitted& committed, std::string* prune_error);

// Removes what generations before the launch left half-written: their checkpoints that have no
// manifest and that the launch does not offer for a resume. A shard that was never reported is
// known to nobody else. Returns the directories.
std::vector<std::string> RemoveAbandonedCheckpoints(const std::string& output_dir,
                                                    const Launch& launch);

}  // namespace muster::worker
