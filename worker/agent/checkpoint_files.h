// A checkpoint's commit record on disk, and the removal of old checkpoints.
//
// The manifest is written beside the shards after the coordinator has committed, so that a copied
// checkpoint is complete; docs/checkpoint-format.md describes it. Blocks on the disk; free
// functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/wire/messages.h"

namespace muster::worker {

// {"format_version":1,"job_id","step","generation","directory","world_size",
//  "shards":[{"rank","file","bytes","checksum"}],"committed_unix_ms"}, and "eval_loss" where known
std::string ManifestJson(const JobId& job, const CheckpointInfo& checkpoint);

// "step-" and letters, digits, '-', '_' or '.': only a name of a checkpoint.
bool IsCheckpointName(const std::string& name);

struct CommitWritten {
  Status status;                    // of the manifest; not OK: nothing was removed
  std::vector<std::string> pruned;  // directories that are gone
  std::string prune_error;          // why another one is not
};

// Writes manifest.json durably, unless the same one is there, and only then removes what `prune`
// lists. The shards are not read: ScrubShards does that afterwards. All nodes of the job share the
// output directory.
CommitWritten WriteManifest(const CheckpointCommitted& committed);

// Removes what generations before the launch left incomplete: their checkpoints that have no
// manifest and that the launch does not offer for a resume. There is no other record of a shard
// that was never reported. Returns the directories.
std::vector<std::string> RemoveAbandonedCheckpoints(const std::string& output_dir,
                                                    const Launch& launch);

}  // namespace muster::worker
