// The checkpoints of a run as they lie on the disk: listed, verified, pruned.
//
// Functions that block on the disk; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "trainer/state/checkpoint/adapter_origin.h"

namespace muster {

struct ListedCheckpoint {
  enum class State {
    kCommitted,
    kUncommitted,  // no manifest: being written, or given up
    kDamaged,      // a manifest that says nothing, or a shard that is missing or has another size
  };
  std::string directory;
  Step step = 0;
  Generation generation = 0;
  State state = State::kUncommitted;
  std::string problem;  // kDamaged: what
  int ranks = 0;        // kCommitted
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;        // Unix seconds of the manifest, or of the directory
  bool resumes = false;             // the one that a resume tries first
  std::optional<double> eval_loss;  // kCommitted: what an evaluation of this state has found
  bool best = false;                // no other one has a lower
  // kCommitted: of which model it holds an adapter; nothing: a whole model, or it is not said.
  std::optional<AdapterOrigin> adapter;
};
std::string_view CheckpointStateName(ListedCheckpoint::State state);  // "committed"

// `path` is a directory of checkpoints, or an output directory with one. In the order in which a
// resume tries them, then those that do not count. With `verify` every byte is read.
Result<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& path, bool verify);

// Removes all committed checkpoints but the first `keep` (at least 1) of that order and the best,
// oldest first; what is not committed stays. Returns the directories removed. kFailedPrecondition
// while a run writes there (it holds the lock of metrics.jsonl).
Result<std::vector<std::string>> PruneCheckpoints(const std::string& path, int keep);

// "41 s", "12 min", "5 h", "3 d".
std::string AgeText(std::int64_t seconds);

}  // namespace muster
