// What workers and coordinator say to each other, as plain values: one struct per message of
// proto/muster/v1/worker_api.proto with the same field names. coordinator/service/conversions.h
// turns the protobuf messages into these, so that the control core links neither gRPC nor protobuf.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/control/worker_messages.h"
#include "coordinator/domain/records.h"

namespace muster {

struct Welcome {
  int protocol_version = 0;
  std::string cluster;
  int heartbeat_ms = 0;
  int progress_ms = 0;
  std::uint64_t epoch = 0;  // of a coordinator with a journal
};

struct RankPlacement {
  int rank = 0;
  int local_rank = 0;
};

struct Prepare {
  JobId job_id;
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
  JobId job_id;
  Generation generation = 0;
  std::string master_address;
  int master_port = 0;
  int world_size = 0;
  int node_rank = 0;
  int node_count = 0;
  int local_world_size = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::vector<CheckpointRecord> resume;  // CheckpointInfo on the wire; newest first
  std::vector<int> buddy_ring;           // node ranks (failure_domains.h)
  std::string rendezvous_token;          // secret: in no log and no event
};

struct Abort {
  JobId job_id;
  Generation generation = 0;
  std::string reason;
  double grace_seconds = 0;
  double park_seconds = 0;      // 0: keep nobody
  std::vector<int> kill_ranks;  // not to be kept
};

struct Stop {
  JobId job_id;
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
  JobId job_id;  // empty: of the node
  Generation generation = 0;
  int rank = 0;
  std::string kind;
  std::string argument;
};

struct Release {
  JobId job_id;
};

struct CheckpointCommitted {
  JobId job_id;
  Generation generation = 0;
  std::string output_dir;
  CheckpointRecord checkpoint;  // CheckpointInfo on the wire
  std::vector<std::string> prune;
};

struct ScrubCheckpoint {
  std::uint64_t scrub_id = 0;
  JobId job_id;
  std::string output_dir;
  CheckpointRecord checkpoint;  // CheckpointInfo on the wire
  std::uint64_t max_bytes_per_second = 0;
};

struct CancelScrub {
  std::uint64_t scrub_id = 0;
};

using CoordinatorMessage =
    std::variant<Welcome, Prepare, Launch, Abort, Release, CheckpointCommitted, Stop, Probe,
                 InjectFault, ScrubCheckpoint, CancelScrub>;

}  // namespace muster
