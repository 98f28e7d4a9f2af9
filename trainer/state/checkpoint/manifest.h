// The manifest of a sharded checkpoint as JSON, and where checkpoints lie on disk.
//
//   <output>/checkpoints/step-00000050-g2/rank-00000.shard
//                                         rank-00001.shard
//                                         manifest.json       written last: it makes the set count
//
// Free functions without state; those that read the disk say so. docs/checkpoint-format.md has the
// fields. Under a coordinator the worker writes the same file once the commit is durable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint_format/shard_name.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

inline constexpr char kManifestFile[] = "manifest.json";

// "step-00000050-g2".
std::string CheckpointDirectoryName(Step step, Generation generation);
// False when `name` is not of that form.
bool ParseCheckpointDirectoryName(std::string_view name, Step* step, Generation* generation);

std::string ManifestToJson(const CheckpointManifest& manifest);
// kDataLoss with the reason when it is not a whole, consistent manifest of a known version: one
// shard per rank, plain file names, a directory name of the right form.
Result<CheckpointManifest> ManifestFromJson(std::string_view json);
// A JSON array of manifests, as MUSTER_RESUME_FILE holds; the order is kept.
Result<std::vector<CheckpointManifest>> ManifestListFromJson(std::string_view json);
std::string ManifestListToJson(const std::vector<CheckpointManifest>& manifests);

// Reads <checkpoints_dir>/<directory>/manifest.json.
Result<CheckpointManifest> ReadManifest(const std::string& checkpoints_dir,
                                        const std::string& directory);

struct FoundManifests {
  // Highest generation first, then highest step: a later generation that starts from an earlier
  // step has refused what lies beyond it.
  std::vector<CheckpointManifest> manifests;
  std::vector<Status> unreadable;    // manifests that are there but broken
  Generation newest_generation = 0;  // over all directories, complete or not
};
// Looks through `checkpoints_dir`; a missing directory is an empty answer.
Result<FoundManifests> FindManifests(const std::string& checkpoints_dir);

// The one of the lowest eval_loss, of equal ones the first; null: none has any. It points into the
// list.
const CheckpointManifest* BestOf(const std::vector<CheckpointManifest>& manifests);

}  // namespace muster
