// What worker and coordinator say to each other, as plain values.
//
// The fields are those of proto/muster/v1/worker_api.proto, where they are explained; the service
// converts. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "worker/agent/worker_messages.h"

namespace muster::worker {

struct RankPlacement {
  int rank = 0;
  int local_rank = 0;

  friend bool operator==(const RankPlacement&, const RankPlacement&) = default;
};

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
  std::vector<ShardInfo> shards;
  std::int64_t committed_unix_ms = 0;
  std::optional<double> eval_loss = {};  // what an evaluation of this very state has found

  friend bool operator==(const CheckpointInfo&, const CheckpointInfo&) = default;
};

struct Welcome {
  std::string cluster;
  int heartbeat_ms = 0;
  int progress_ms = 0;
  std::uint64_t epoch = 0;  // of a coordinator with a journal
};

struct Prepare {
  JobId job;
  std::string job_name;
  Generation generation = 0;
  std::string spec_yaml;
  std::string output_dir;
  std::vector<RankPlacement> ranks;
  bool hosts_master = false;
  std::string master_bind_address;
  bool spare = false;  // no ranks; standbys are to be ready
  int standbys = 0;
};

struct Launch {
  JobId job;
  Generation generation = 0;
  std::string master_address;
  int master_port = 0;
  int world_size = 0;
  int node_rank = 0;
  int node_count = 0;
  int local_world_size = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::vector<CheckpointInfo> resume;
  std::vector<RankPlacement> ranks;  // of this node; empty: those of Prepare
  std::vector<int> buddy_ring;       // node ranks; empty: in their order
  std::string rendezvous_token;      // secret; empty: the coordinator is an older one
};

struct Abort {
  JobId job;
  Generation generation = 0;
  std::string reason;
  double grace_seconds = 0;
  double park_seconds = 0;      // 0: keep nobody
  std::vector<int> kill_ranks;  // not to be kept
};

struct Stop {
  JobId job;
  Generation generation = 0;
  std::string reason;
};

struct Probe {
  std::uint64_t probe_id = 0;
  NodeName node;
  std::string address;
  int port = 0;
  int timeout_ms = 0;
};

struct InjectFault {
  std::uint64_t request_id = 0;
  JobId job;  // empty: of the node
  Generation generation = 0;
  int rank = 0;
  std::string kind;
  std::string argument;
};

struct Release {
  JobId job;
};

struct CheckpointCommitted {
  JobId job;
  Generation generation = 0;
  std::string output_dir;
  CheckpointInfo checkpoint;
  std::vector<std::string> prune;
};

struct ReadLog {
  std::uint64_t request_id = 0;
  JobId job;
  Generation generation = 0;
  int rank = 0;
  std::int64_t offset = 0;
  int limit_bytes = 0;
  std::string output_dir;
};

struct ScrubCheckpoint {
  std::uint64_t scrub_id = 0;
  JobId job;
  std::string output_dir;
  CheckpointInfo checkpoint;
  std::uint64_t max_bytes_per_second = 0;  // 0: no limit
};

struct CancelScrub {
  std::uint64_t scrub_id = 0;
};

using CoordinatorMessage =
    std::variant<Welcome, Prepare, Launch, Abort, Release, CheckpointCommitted, ReadLog, Probe,
                 InjectFault, Stop, ScrubCheckpoint, CancelScrub>;

}  // namespace muster::worker
