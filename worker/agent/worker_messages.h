// What a worker says to the coordinator, as plain values; see messages.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/cuda_stack.h"
#include "common/base/ids.h"
#include "common/control_pipe/progress_page.h"
#include "common/process/exit_status.h"

namespace muster::worker {

struct RankProgress {
  int rank = 0;
  Step step = 0;
  std::string phase;
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

  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};

struct Prepared {
  JobId job;
  Generation generation = 0;
  std::string error;  // empty: prepared
  bool retryable = false;
  int master_port = 0;
  std::optional<CudaStack> cuda;  // where the job asks for GPUs

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
  ProcessExit exit;
  double age_seconds = 0;
  std::vector<std::string> log_tail;
  bool node_stopped = false;  // its node was taken down
  bool ended = false;         // its guardian had begun to end the generation
  bool out_of_memory = false;
  bool asked_to_stop = false;        // a Stop had reached it before
  std::optional<RankProgress> last;  // its page at the end
  std::vector<std::string> facts;

  friend bool operator==(const RankExited&, const RankExited&) = default;
};

struct Quiesced {
  JobId job;
  Generation generation = 0;
  std::vector<std::int64_t> unkillable_pids;
  std::vector<int> parked_ranks;
  int standbys = 0;

  friend bool operator==(const Quiesced&, const Quiesced&) = default;
};

struct TrainerReport {
  JobId job;
  Generation generation = 0;
  int rank = 0;
  std::string json;  // as the rank sent it

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
  std::string directory;
  std::string error;  // empty: written

  friend bool operator==(const ManifestWritten&, const ManifestWritten&) = default;
};

struct LogChunk {
  std::uint64_t request_id = 0;
  std::string data;
  std::int64_t next_offset = 0;
  bool at_end = false;
  std::string path;
  std::string error;

  friend bool operator==(const LogChunk&, const LogChunk&) = default;
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

enum class NodeNoticeKind { kDrain = 1, kMemoryPressure, kXid, kDisk, kClear };
struct NodeNotice {
  NodeNoticeKind kind = NodeNoticeKind::kClear;
  std::string detail;
  double deadline_seconds = 0;
  std::vector<std::string> devices;
  bool fatal = false;
  std::vector<std::string> standing;  // of a clear: details of what still holds

  friend bool operator==(const NodeNotice&, const NodeNotice&) = default;
};

struct FaultDone {
  std::uint64_t request_id = 0;
  std::string error;  // empty: done

  friend bool operator==(const FaultDone&, const FaultDone&) = default;
};

enum class ScrubOutcome { kWhole = 1, kDamaged, kMissing, kUnreachable, kUnreadable, kCalledOff };
struct CheckpointScrubbed {
  std::uint64_t scrub_id = 0;
  JobId job;
  std::string directory;
  ScrubOutcome outcome = ScrubOutcome::kCalledOff;
  std::string file;    // the shard at which it ended
  std::string detail;  // bytes, checksum, errno

  friend bool operator==(const CheckpointScrubbed&, const CheckpointScrubbed&) = default;
};

struct Heartbeat {
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

using WorkerMessage = std::variant<Prepared, RankStarted, RankExited, Quiesced, TrainerReport,
                                   Progress, ManifestWritten, LogChunk, Released, Heartbeat,
                                   ProbeResult, NodeNotice, FaultDone, CheckpointScrubbed>;

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

  bool keeps_any() const { return !parked_ranks.empty() || standbys > 0; }

  friend bool operator==(const HostedGeneration&, const HostedGeneration&) = default;
};

}  // namespace muster::worker
