// What workers say to the coordinator, as plain values; see messages.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/cuda_stack.h"
#include "common/base/ids.h"
#include "common/control_pipe/progress_page.h"
#include "coordinator/domain/records.h"

namespace muster {

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
};

// Of the memory that a rank trains in: its GPU's, else that of its process.
inline std::uint64_t TrainingMemoryBytes(const RankProgress& rank) {
  return rank.device_capacity_bytes > 0 ? rank.device_bytes : rank.rss_bytes;
}

struct Prepared {
  JobId job_id;
  Generation generation = 0;
  bool ok = false;
  std::string error;
  bool retryable = false;
  int master_port = 0;
  std::optional<CudaStack> cuda;  // of a node that prepares GPUs
};

struct RankStarted {
  JobId job_id;
  Generation generation = 0;
  int rank = 0;
  std::int64_t pid = 0;
};

struct RankExited {
  JobId job_id;
  Generation generation = 0;
  int rank = 0;
  ExitStatus exit;
  double age_seconds = 0;
  std::vector<std::string> log_tail;
  bool node_stopped = false;  // ended because its node was taken down
  bool ended = false;         // its guardian had begun to end the generation
  bool out_of_memory = false;
  bool asked_to_stop = false;        // a Stop had reached it before
  std::optional<RankProgress> last;  // its page at the end
  std::vector<std::string> facts;
};

struct Quiesced {
  JobId job_id;
  Generation generation = 0;
  std::vector<std::int64_t> unkillable_pids;
  std::vector<int> parked_ranks;  // parked: out of the generation, their processes wait
  int standbys = 0;               // processes that have had no rank yet, and wait too

  bool keeps_any() const { return !parked_ranks.empty() || standbys > 0; }
};

struct Formed {};
struct RejectedCheckpoint {
  std::string directory;
  std::string reason;
};
struct Resumed {
  Step step = 0;
  std::vector<RejectedCheckpoint> rejected;
  std::string from;  // snapshot, checkpoint, start
};
struct FirstStep {
  Step step = 0;
};
struct ShardWritten {
  Step step = 0;
  std::string directory;
  ShardInfo shard;
  std::optional<double> eval_loss = {};  // what an evaluation of this very state has found
};
struct CheckpointFailed {
  Step step = 0;
  std::string reason;
};
struct TrainerError {
  std::string kind;
  std::string message;
  Step step = 0;
  bool symptom = false;  // another rank tells the cause
};
struct TrainerNote {
  std::string severity;
  std::string message;
};
struct Finished {
  Step step = 0;
  std::string model_dir;
};

struct Parked {
  Step step = 0;
};

struct TrainerReport {
  JobId job_id;
  Generation generation = 0;
  int rank = 0;
  std::variant<Formed, Resumed, FirstStep, ShardWritten, CheckpointFailed, TrainerError,
               TrainerNote, Finished, Parked>
      body;
};

struct Progress {
  JobId job_id;
  Generation generation = 0;
  std::vector<RankProgress> ranks;
};

struct ManifestWritten {
  JobId job_id;
  std::string directory;
  bool ok = false;
  std::string error;
};

struct Heartbeat {};

enum class ProbeOutcome { kAnswered = 1, kRefused, kUnreachable, kSilent };
struct ProbeResult {
  std::uint64_t probe_id = 0;
  NodeName node;
  ProbeOutcome outcome = ProbeOutcome::kUnreachable;
};

enum class NodeNoticeKind { kDrain = 1, kMemoryPressure, kXid, kDisk, kClear };
struct NodeNotice {
  NodeNoticeKind kind = NodeNoticeKind::kClear;
  std::string detail;
  double deadline_seconds = 0;
  std::vector<std::string> devices;
  bool fatal = false;
  std::vector<std::string> standing;  // of a clear: details of what still holds
};

struct FaultDone {
  std::uint64_t request_id = 0;
  std::string error;  // empty: done
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
  JobId job_id;
  std::string directory;
  ScrubOutcome outcome = ScrubOutcome::kCalledOff;
  std::string file;
  std::string detail;
};

struct Released {
  JobId job_id;
};

struct HostedGeneration {
  JobId job_id;
  Generation generation = 0;
  bool prepared = false;
  int master_port = 0;
  bool launched = false;
  bool quiesced = false;
  std::vector<RankExited> exited;
  std::vector<RankStarted> started;
  std::vector<TrainerReport> reports;
  std::vector<int> parked_ranks;
  int standbys = 0;

  bool keeps_any() const { return !parked_ranks.empty() || standbys > 0; }
};

struct Hello {
  int protocol_version = 0;
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
  std::vector<HostedGeneration> hosted;
  std::string pilot;                // key of the pilot job that it runs in; empty: none
  std::vector<std::string> report;  // of its address, transports and GPUs, for people
  std::optional<int> gpus;          // that its ranks get; nothing: it does not say
};

// LogChunk is missing on purpose: log reads are forwarded by the service (Controller::LocateLog).
using WorkerMessage = std::variant<Prepared, RankStarted, RankExited, Quiesced, TrainerReport,
                                   Progress, ManifestWritten, Heartbeat, Released, ProbeResult,
                                   NodeNotice, FaultDone, CheckpointScrubbed>;

}  // namespace muster
