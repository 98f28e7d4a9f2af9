// A checkpoint as coordinator, worker and store name it. docs/checkpoint-format.md has the format.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace muster {

struct ShardInfo {
  int rank = 0;
  std::string file;
  std::uint64_t bytes = 0;
  std::string checksum;

  friend bool operator==(const ShardInfo&, const ShardInfo&) = default;
};

struct CheckpointInfo {
  Step step = 0;
  Generation generation = 0;
  std::string directory;  // relative to <output_dir>/checkpoints
  int world_size = 0;
  std::vector<ShardInfo> shards;  // by rank
  std::int64_t committed_unix_ms = 0;
  std::optional<double> eval_loss = {};  // of an evaluation of this very state

  friend bool operator==(const CheckpointInfo&, const CheckpointInfo&) = default;
};

}  // namespace muster
