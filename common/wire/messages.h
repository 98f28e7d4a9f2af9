// The messages between workers and coordinator as plain values: one struct per message of
// proto/muster/v1/worker_api.proto, where the fields are explained. Both pure cores and the
// simulation speak these; common/wire/codec.h converts them, so that no core links protobuf.
//
// A new field: here, in the proto, and in the codec; its round-trip test fails until all three have
// it. Fill values by name. Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/cuda_stack.h"
#include "common/base/ids.h"
#include "common/base/version_table.h"
#include "common/control_pipe/progress_page.h"
#include "common/control_pipe/trainer_protocol.h"
#include "common/process/exit_status.h"
#include "common/resources/node_inventory.h"
#include "common/wire/checkpoint_info.h"

namespace muster {

// --- worker to coordinator ---

// How the routers of a model with experts have spread the last step's tokens.
struct RouterProgress {
  double largest_share = 0;   // of a layer's choices, on one expert; 0: the model has no experts
  double smallest_share = 0;  // likewise
  double entropy = 0;         // of the most uneven layer: 1 is even
  std::int64_t idle = 0;      // experts without a token, counted in each layer

  friend bool operator==(const RouterProgress&, const RouterProgress&) = default;
};

struct RankProgress {
  int rank = 0;
  Step step = 0;
  std::optional<TrainPhase> phase = {};  // none: not known
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::int64_t tokens = 0;
  Step max_steps = 0;
  std::uint64_t rss_bytes = 0;
  std::int64_t micro_batch = 0;
  std::uint64_t stores = 0;
  std::vector<CollectiveCounts> collectives;
  double busy_seconds = 0;
  double wait_seconds = 0;
  std::int64_t steps_done = 0;
  std::string process_state;
  double cpu_seconds = 0;
  std::vector<double> phase_seconds;
  Step snapshot_step = -1;
  std::uint64_t device_bytes = 0;           // in use of a GPU's memory
  std::uint64_t device_capacity_bytes = 0;  // 0: trains on the host
  double quiet_seconds = 0;                 // since a sample showed a movement
  std::uint64_t quiet_samples = 0;          // since then, that one included; 0: not known
  double slowest_step_seconds = 0;          // of those finished since the message before
  RouterProgress routers = {};

  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};

// Whether anything that only the rank itself changes differs between two samples of it.
inline bool HasMoved(const RankProgress& before, const RankProgress& now) {
  const auto same = [](const CollectiveCounts& a, const CollectiveCounts& b) {
    return a.group == b.group && a.enqueued == b.enqueued && a.started == b.started &&
           a.completed == b.completed && a.bytes == b.bytes;
  };
  return now.step != before.step || now.phase != before.phase ||
         now.micro_batch != before.micro_batch || now.stores != before.stores ||
         now.steps_done != before.steps_done || now.snapshot_step != before.snapshot_step ||
         !std::equal(now.collectives.begin(), now.collectives.end(), before.collectives.begin(),
                     before.collectives.end(), same);
}

// The memory that a rank trains in: its GPU's, else that of its process.
inline std::uint64_t TrainingMemoryBytes(const RankProgress& rank) {
  return rank.device_capacity_bytes > 0 ? rank.device_bytes : rank.rss_bytes;
}

struct Prepared {
  JobId job;
  Generation generation = 0;
  std::string error;  // empty: prepared
  bool retryable = false;
  int master_port = 0;
  std::optional<CudaStack> cuda = {};  // where the job asks for GPUs

  friend bool operator==(const Prepared&, const Prepared&) = default;
};

struct RankStarted {
  JobId job;
  Generation generation = 0;
  int rank = 0;
  std::int64_t pid = 0;

  friend bool operator==(const RankStarted&, const RankStarted&) = default;
};

struct RankExited {
  JobId job;
  Generation generation = 0;
  int rank = 0;
  RankEnd end;
  double age_seconds = 0;
  std::vector<std::string> log_tail;
  std::optional<RankProgress> last = {};  // its page at the end
  std::vector<std::string> facts = {};

  friend bool operator==(const RankExited&, const RankExited&) = default;
};

struct Quiesced {
  JobId job;
  Generation generation = 0;
  std::vector<std::int64_t> unkillable_pids;
  std::vector<int> parked_ranks;  // out of the generation, their processes wait
  int standbys = 0;               // processes that have had no rank yet, and wait too
  int next_master_port = 0;       // bound for the next generation; 0: none

  bool keeps_any() const { return !parked_ranks.empty() || standbys > 0; }

  friend bool operator==(const Quiesced&, const Quiesced&) = default;
};

struct Formed {
  friend bool operator==(const Formed&, const Formed&) = default;
};
struct RejectedCheckpoint {
  std::string directory;
  std::string reason;

  friend bool operator==(const RejectedCheckpoint&, const RejectedCheckpoint&) = default;
};
struct Resumed {
  Step step = 0;
  std::vector<RejectedCheckpoint> rejected;
  std::string from;  // snapshot, checkpoint, start

  friend bool operator==(const Resumed&, const Resumed&) = default;
};
struct FirstStep {
  Step step = 0;

  friend bool operator==(const FirstStep&, const FirstStep&) = default;
};
struct ShardWritten {
  Step step = 0;
  std::string directory;
  ShardInfo shard;
  std::optional<double> eval_loss = {};  // of an evaluation of this very state

  friend bool operator==(const ShardWritten&, const ShardWritten&) = default;
};
struct CheckpointFailed {
  Step step = 0;
  CheckpointTrouble kind = CheckpointTrouble::kOther;
  std::string reason;

  friend bool operator==(const CheckpointFailed&, const CheckpointFailed&) = default;
};
struct TrainerError {
  std::string kind;
  std::string message;
  Step step = 0;
  bool symptom = false;  // another rank reports the cause

  friend bool operator==(const TrainerError&, const TrainerError&) = default;
};
struct TrainerNote {
  std::string severity;
  std::string message;

  friend bool operator==(const TrainerNote&, const TrainerNote&) = default;
};
struct Finished {
  Step step = 0;
  std::string model_dir;

  friend bool operator==(const Finished&, const Finished&) = default;
};
struct Parked {
  Step step = 0;

  friend bool operator==(const Parked&, const Parked&) = default;
};

struct TrainerReport {
  JobId job;
  Generation generation = 0;
  int rank = 0;
  std::variant<Formed, Resumed, FirstStep, ShardWritten, CheckpointFailed, TrainerError,
               TrainerNote, Finished, Parked>
      body;

  friend bool operator==(const TrainerReport&, const TrainerReport&) = default;
};

struct Progress {
  JobId job;
  Generation generation = 0;
  std::vector<RankProgress> ranks;

  friend bool operator==(const Progress&, const Progress&) = default;
};

struct ManifestWritten {
  JobId job;
  Generation generation = 0;  // of the order
  std::string directory;
  std::string error;                // empty: written
  std::vector<std::string> pruned;  // directories that are gone

  friend bool operator==(const ManifestWritten&, const ManifestWritten&) = default;
};

struct LogChunk {
  std::uint64_t request_id = 0;
  std::string data;
  std::int64_t next_offset = 0;
  bool at_end = false;
  std::string path;
  std::string error;
  bool busy = false;  // with an error: another time it can be read

  friend bool operator==(const LogChunk&, const LogChunk&) = default;
};

struct Heartbeat {
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

struct Released {
  JobId job;

  friend bool operator==(const Released&, const Released&) = default;
};

enum class ProbeOutcome { kAnswered = 1, kRefused, kUnreachable, kSilent };
struct ProbeResult {
  std::uint64_t probe_id = 0;
  NodeName node;
  ProbeOutcome outcome = ProbeOutcome::kUnreachable;

  friend bool operator==(const ProbeResult&, const ProbeResult&) = default;
};

enum class NodeNoticeKind { kDrain = 1, kMemoryPressure, kXid, kDisk, kClear, kDevicesInUse };
struct NodeNotice {
  NodeNoticeKind kind = NodeNoticeKind::kClear;
  std::string detail;
  double deadline_seconds = 0;
  std::vector<std::string> devices;
  bool fatal = false;
  std::vector<std::string> standing = {};  // of a clear: details of what still holds
  bool by_pilot = false;                   // of a drain: the pilot job that the node runs in ends

  friend bool operator==(const NodeNotice&, const NodeNotice&) = default;
};

struct FaultDone {
  std::uint64_t request_id = 0;
  std::string error;  // empty: done

  friend bool operator==(const FaultDone&, const FaultDone&) = default;
};

enum class ScrubOutcome {
  kWhole = 1,
  kDamaged,
  kMissing,      // the job's output directory is there, the shard is not
  kUnreachable,  // the job's output directory is not there
  kUnreadable,   // the file system fails
  kCalledOff,
};
struct CheckpointScrubbed {
  std::uint64_t scrub_id = 0;
  JobId job;
  std::string directory;
  ScrubOutcome outcome = ScrubOutcome::kCalledOff;
  std::string file;    // the shard at which it ended
  std::string detail;  // bytes, checksum, errno

  friend bool operator==(const CheckpointScrubbed&, const CheckpointScrubbed&) = default;
};

struct HostedGeneration {
  JobId job;
  Generation generation = 0;
  bool prepared = false;
  int master_port = 0;
  bool launched = false;
  bool quiesced = false;
  std::vector<RankStarted> started;
  std::vector<RankExited> exited;
  std::vector<TrainerReport> reports;
  std::vector<int> parked_ranks;
  int standbys = 0;
  std::vector<std::int64_t> unkillable_pids;  // of this or older generations
  std::vector<std::string> devices = {};      // that its guardian has locked

  bool keeps_any() const { return !parked_ranks.empty() || standbys > 0; }

  friend bool operator==(const HostedGeneration&, const HostedGeneration&) = default;
};

struct Hello {
  int protocol_version = 0;      // the newest that the worker supports
  int min_protocol_version = 0;  // the oldest
  std::string version;
  NodeName node;
  std::string address;
  std::string host_id;
  int slots = 0;
  std::int64_t pid = 0;
  int metrics_port = 0;
  std::string instance;
  std::string failure_domain;
  bool allows_faults = false;
  std::vector<HostedGeneration> hosted = {};
  std::string pilot = {};                // key of the pilot job that it runs in; empty: none
  std::vector<std::string> report = {};  // of its address, transports and GPUs, for people
  NodeInventory inventory = {};
  // Where `hosted` comes from: the directory with the guardians' records, and the PID namespace or
  // Slurm job with which every process on the node ends. Empty: not reported.
  std::string directory_id = {};
  std::string container_id = {};
  std::uint64_t epoch_met = 0;  // the highest of a coordinator that has welcomed the node; 0: none
  std::vector<NamedVersions> versions = {};  // of its messages and files

  friend bool operator==(const Hello&, const Hello&) = default;
};

// Hello opens a stream and is handled apart.
using WorkerMessage = std::variant<Prepared, RankStarted, RankExited, Quiesced, TrainerReport,
                                   Progress, ManifestWritten, LogChunk, Released, Heartbeat,
                                   ProbeResult, NodeNotice, FaultDone, CheckpointScrubbed>;

// --- coordinator to worker ---

struct Welcome {
  int protocol_version = 0;  // of the stream
  int min_protocol_version = 0;
  int max_protocol_version = 0;
  std::string cluster;
  int heartbeat_ms = 0;
  int progress_ms = 0;
  std::uint64_t epoch = 0;  // of a coordinator with a journal

  friend bool operator==(const Welcome&, const Welcome&) = default;
};

// In place of Welcome, before the coordinator ends the stream.
enum class RefusalReason { kProtocolVersion = 1 };
struct Refused {
  RefusalReason reason = RefusalReason::kProtocolVersion;
  int min_protocol_version = 0;
  int max_protocol_version = 0;

  friend bool operator==(const Refused&, const Refused&) = default;
};

struct RankPlacement {
  int rank = 0;
  int local_rank = 0;

  friend bool operator==(const RankPlacement&, const RankPlacement&) = default;
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
  // That the job has on this node: those of the first rank, then those of the next one.
  std::vector<std::string> devices = {};
  std::string account = {};  // of its owner, on nodes that run jobs as their owners; empty: none

  friend bool operator==(const Prepare&, const Prepare&) = default;
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
  std::vector<CheckpointInfo> resume;  // newest first
  std::vector<int> buddy_ring;         // node ranks (failure_domains.h)
  std::string rendezvous_token;        // secret: in no log and no event

  friend bool operator==(const Launch&, const Launch&) = default;
};

struct Abort {
  JobId job;
  Generation generation = 0;
  std::string reason;
  double grace_seconds = 0;
  double park_seconds = 0;      // 0: no process stays
  std::vector<int> kill_ranks;  // that may not stay
  // Rank 0's node alone: where to bind the next generation's port; empty: nowhere.
  std::string next_master_bind_address;

  friend bool operator==(const Abort&, const Abort&) = default;
};

struct Stop {
  JobId job;
  Generation generation = 0;
  std::string reason;

  friend bool operator==(const Stop&, const Stop&) = default;
};

struct Probe {
  std::uint64_t probe_id = 0;
  NodeName node;
  std::string address;
  int port = 0;
  int timeout_ms = 0;

  friend bool operator==(const Probe&, const Probe&) = default;
};

struct InjectFault {
  std::uint64_t request_id = 0;
  JobId job;  // empty: of the node
  Generation generation = 0;
  int rank = 0;
  std::string kind;
  std::string argument;

  friend bool operator==(const InjectFault&, const InjectFault&) = default;
};

struct Release {
  JobId job;

  friend bool operator==(const Release&, const Release&) = default;
};

struct CheckpointCommitted {
  JobId job;
  Generation generation = 0;
  std::string output_dir;
  CheckpointInfo checkpoint;
  std::vector<std::string> prune;
  std::string account = {};  // as in Prepare

  friend bool operator==(const CheckpointCommitted&, const CheckpointCommitted&) = default;
};

struct ReadLog {
  std::uint64_t request_id = 0;
  JobId job;
  Generation generation = 0;
  int rank = 0;
  std::int64_t offset = 0;
  int limit_bytes = 0;
  std::string output_dir;
  std::string account = {};  // as in Prepare
  bool metrics = false;      // of the job's metrics.jsonl, and not of the rank's log

  friend bool operator==(const ReadLog&, const ReadLog&) = default;
};

struct ScrubCheckpoint {
  std::uint64_t scrub_id = 0;
  JobId job;
  std::string output_dir;
  CheckpointInfo checkpoint;
  std::uint64_t max_bytes_per_second = 0;  // 0: no limit
  bool at_once = false;                    // not in the background
  std::string account = {};                // as in Prepare

  friend bool operator==(const ScrubCheckpoint&, const ScrubCheckpoint&) = default;
};

struct CancelScrub {
  std::uint64_t scrub_id = 0;

  friend bool operator==(const CancelScrub&, const CancelScrub&) = default;
};

using CoordinatorMessage =
    std::variant<Welcome, Prepare, Launch, Abort, Release, CheckpointCommitted, ReadLog, Stop,
                 Probe, InjectFault, ScrubCheckpoint, CancelScrub, Refused>;

}  // namespace muster
