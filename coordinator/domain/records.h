// The records of the coordinator: its decisions and its knowledge, as values.
//
// JobRecord, AttemptRecord, CheckpointRecord, NodeRecord and EventRecord are durable: the store
// keeps one row of each (docs/store-format.md). The controller (coordinator/control) is the only
// writer and holds in memory all but those of archived jobs; others read copies or views. Times
// named unix_ms are of the wall clock; what must outlast a restart is decided by them: time limits,
// deadlines of drains and suspensions, ages of checkpoints, retention. Plain, comparable, copyable
// values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/process/exit_status.h"
#include "common/resources/node_inventory.h"
#include "common/wire/checkpoint_info.h"
#include "coordinator/domain/goodput.h"
#include "coordinator/domain/lifecycle.h"

namespace muster {

// Key: (job, directory). Only kCommitted and kPruning are ever stored.
struct CheckpointRecord {
  JobId job;
  Step step = 0;
  Generation generation = 0;
  std::string directory;  // relative to <output_dir>/checkpoints
  int world_size = 0;
  std::vector<ShardInfo> shards;  // by rank
  std::int64_t committed_unix_ms = 0;
  CheckpointState state = CheckpointState::kWriting;
  bool manifest_written = false;  // the commit record lies in its directory
  std::string refused;            // damaged or unusable for a trainer, and why; not offered again
  std::int64_t verified_unix_ms = 0;  // when all of it was last read and found whole; 0: never
  bool evaluated = false;             // then the results of an evaluation of this very state:
  double eval_loss = 0;
  friend bool operator==(const CheckpointRecord&, const CheckpointRecord&) = default;
};

// The fields that a worker needs.
CheckpointInfo InfoOf(const CheckpointRecord& checkpoint);
// A job's checkpoints in this order: oldest first.
std::pair<Step, Generation> CheckpointAge(const CheckpointRecord& checkpoint);

// One rank of one attempt; stored inside its AttemptRecord.
struct RankRecord {
  int rank = 0;
  int local_rank = 0;
  int node_rank = 0;  // index into AttemptRecord::nodes
  NodeName node;
  std::int64_t pid = 0;  // 0: not started yet
  RankState state = RankState::kPrepared;
  RankEnd end;  // when kExited
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};

// Stages of the recovery that brought an attempt up, in seconds; negative: not reached, or unknown.
struct StageSeconds {
  double detect = -1;      // fault until the decision to abort
  double abort = -1;       // until every old process was gone
  double reform = -1;      // until every rank of the new gang did its first collective
  double load = -1;        // until every rank had its state
  double first_step = -1;  // until a step was finished
  friend bool operator==(const StageSeconds&, const StageSeconds&) = default;
};

// Why an attempt ended: a closed set (labels of metrics, input of the restart policy).
enum class CauseKind {
  kNone = 0,  // still going
  kFinished,  // every rank exited with 0
  kCancelled,
  kTimeLimit,
  kPrepareFailed,  // a node could not be made ready
  kPrepareTimeout,
  kLaunchTimeout,
  kFormTimeout,  // the ranks did not find each other
  kRankKilled,   // by a signal
  kRankExited,   // with a code that has no further meaning
  kPeerLost,     // a symptom; the cause never appeared
  kBadInput,     // config, data or model
  kNonFinite,
  kOutOfMemory,
  kGuardianLost,  // a node came back without the ranks it had
  kNodeLost,
  kBadAddress,   // no address of the master can be reached by its peers
  kNodeStopped,  // a node was taken down on purpose: not the job's fault
  kHung,         // no rank moved; the culprit was ended
  kDeviceFault,  // a fatal Xid
  kDrained,      // stopped at a step boundary, its state saved, to move
  kRegrouped,    // ended on purpose to continue with more nodes
  kSlowTier,     // came up and did not reach its first step within the tier's budget
  kSuspended,    // set aside by a user, or by a process that takes the nodes away
  kPreempted,    // gave way to another job
};
inline constexpr int kCauseKindCount = 25;
std::string_view Name(CauseKind kind);  // "rank_killed", ...
// An attempt that ended otherwise has finished, or was stopped on purpose.
bool IsFailure(CauseKind kind);

// What brought an attempt up; docs/recovery.md.
enum class Tier { kLaunch = 0, kInPlace, kRespawn, kSpare, kShrink, kGrow, kRequeue };
inline constexpr int kTierCount = 7;
std::string_view Name(Tier tier);  // launch, in_place, respawn, spare, shrink, grow, requeue

// Everything known about why an attempt ended, besides the sentence that names the cause.
struct CauseCard {
  std::string what;  // "SIGSEGV", "exit code 3", "no progress for 3.1 s"
  Step step = 0;
  std::string phase;
  std::int64_t micro_batch = 0;
  std::string last_collective;  // "world: 812 enqueued, 811 completed"
  std::vector<std::string> facts;
  std::string advice;
  friend bool operator==(const CauseCard&, const CauseCard&) = default;
};

// One generation of a job's gang. Key: (job, generation).
struct AttemptRecord {
  JobId job;
  Generation generation = 0;
  AttemptState state = AttemptState::kReserving;
  std::int64_t started_unix_ms = 0;
  std::int64_t ended_unix_ms = 0;  // 0: still going
  std::vector<NodeName> nodes;     // by node rank
  std::vector<NodeName> spares;    // prepared, without ranks
  std::vector<NodeName> lent;      // those of `nodes` that are shared spares of other jobs
  // The devices that the job has on each of `nodes` and on each of `spares`, in the order of local
  // ranks; none without GPUs.
  std::vector<std::vector<std::string>> node_devices;
  std::vector<std::vector<std::string>> spare_devices;
  std::vector<RankRecord> ranks;  // by rank; as many as the attempt's world size
  Tier tier = Tier::kLaunch;
  std::string master_address;
  int master_port = 0;  // 0: not bound yet
  // The token that the ranks authenticate with; secret. Set only while the attempt is launching,
  // when a restarted coordinator must send the same Launch again; sent only to the gang's nodes.
  std::string rendezvous_token;
  CauseKind cause_kind = CauseKind::kNone;  // while aborting: the best known so far
  bool retryable = true;                    // whether another attempt may do better
  std::string cause;                        // a sentence
  int failed_rank = -1;
  NodeName failed_node;
  CauseCard card;
  Step resumed_step = -1;       // -1: not known yet
  std::string resumed_from;     // snapshot, checkpoint, start; empty: not known yet
  Step last_step = 0;           // newest finished step seen
  std::int64_t lost_steps = 0;  // finished steps that the next attempt had to do again
  StageSeconds seconds;
  std::vector<std::string> notes;
  std::vector<std::string> log_tail;  // of the failed rank
  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

// What happens when a stopping job's processes are gone.
enum class StopKind { kNone = 0, kCancel, kTimeLimit, kSuspend, kPreempt };
inline constexpr int kStopKindCount = 5;
std::string_view Name(StopKind stop);  // none, cancel, time_limit, suspend, preempt
CauseKind CauseOf(StopKind stop);      // of the attempt that it ends
// The job is not over then: its state is saved.
inline bool SetsAside(StopKind stop) {
  return stop == StopKind::kSuspend || stop == StopKind::kPreempt;
}

// Read from a record of a version before 0.3, which had it in the job file alone.
inline constexpr std::int64_t kTimeLimitOfJobFile = -1;

// The start that the cluster owes a job that waits: then at the latest, with these devices if it
// finds no others.
struct PromiseRecord {
  std::int64_t start_unix_ms = 0;  // 0: there is none
  std::vector<NodeName> nodes;
  std::vector<std::vector<std::string>> devices;  // of each of `nodes`, by id
  friend bool operator==(const PromiseRecord&, const PromiseRecord&) = default;
};

// That a gang gives way to a job that waits.
struct ReclaimRecord {
  JobId claimant;             // empty: it does not
  Generation generation = 0;  // that saves its state and stops
  // If the job goes on with fewer nodes: those that it leaves to the claimant; else it goes back to
  // the queue.
  std::vector<NodeName> gives_up;
  std::int64_t by_unix_ms = 0;  // when its processes are gone, at the latest
  friend bool operator==(const ReclaimRecord&, const ReclaimRecord&) = default;
};

struct JobRecord {
  JobId id;
  std::string name;
  std::string owner;      // whose job it is; empty: of a version before 0.3
  std::string submitter;  // who submitted it: its owner, or an admin in the owner's name
  std::string key;        // of the submit; empty: none. Unique among the owner's jobs otherwise
  std::string spec_yaml;
  std::string output_dir;  // absolute
  int priority = 50;
  std::uint64_t submit_order = 0;  // rises with every submit
  int world_size = 1;
  JobState state = JobState::kQueued;
  std::string reason;  // why it waits or how it ended
  StopKind stop = StopKind::kNone;
  Generation generation = 0;  // of its newest attempt; 0: none yet
  // The next attempt's is not lower: a store that was restored does not know the newest ones.
  Generation next_generation = 0;
  int restarts = 0;
  int attempts_without_progress = 0;  // in a row
  Step step = 0;                      // newest finished step as last recorded
  Step best_step = 0;                 // highest finished step any attempt reached
  Step committed_step = 0;            // of the newest committed checkpoint
  Step max_steps = 0;                 // 0: unknown
  double loss = 0;
  double loss_at_start = 0;  // 0: none yet
  std::int64_t tokens = 0;
  std::int64_t submitted_unix_ms = 0;
  std::int64_t started_unix_ms = 0;  // first launch
  std::int64_t ended_unix_ms = 0;
  std::int64_t progress_unix_ms = 0;      // newest step, or placed from the queue after; 0: neither
  std::vector<NodeName> pending_release;  // nodes that may still have a guardian of this job
  std::string scrub_trouble;           // why a checkpoint could not be read again; empty: all can
  std::int64_t stop_by_unix_ms = 0;    // while it stops to be set aside: its deadline; 0: none
  std::int64_t suspended_unix_ms = 0;  // since when it is suspended or preempted; 0: it is neither
  std::int64_t suspended_ms = 0;       // total since its first launch; not part of its time limit
  double checkpoint_seconds = 0;       // from an order to a committed checkpoint; 0: unknown
  // How it is scheduled: from the job file, until an update. The job file is not read for it again.
  std::string queue;               // empty: the default one (QueueName)
  std::string priority_class;      // empty: the default one
  bool held = false;               // not placed until it is released
  std::string hold_reason;         // while it is held; may be empty
  std::int64_t begin_unix_ms = 0;  // not placed before; 0: at once
  // Wall time from its first launch, suspensions off; 0: no limit. kTimeLimitOfJobFile only between
  // the store and Restore.
  std::int64_t time_limit_seconds = 0;
  PromiseRecord promise;
  ReclaimRecord reclaim;
  std::int64_t victim_unix_ms = 0;  // when it was made to give way last; 0: never
  GoodputUsage usage;
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// A submit's key as it is unique: each owner has keys of its own. Empty: no key.
std::string SubmitKey(const std::string& owner, const std::string& key);
inline std::string SubmitKey(const JobRecord& job) { return SubmitKey(job.owner, job.key); }

// A process that survived SIGKILL: its slot is not used again while it may live.
struct LeakedSlot {
  JobId job;
  std::int64_t pid = 0;
  std::vector<std::string> devices = {};  // that it may still use
  friend bool operator==(const LeakedSlot&, const LeakedSlot&) = default;
};

// What a node reports of itself, while it holds.
struct NoticeRecord {
  std::string kind;  // drain, memory, device, disk
  std::string detail;
  std::vector<std::string> in_use = {};  // devices that jobs of other workers have: not allocated

  std::string Text() const { return kind + ": " + detail; }  // for people
  friend bool operator==(const NoticeRecord&, const NoticeRecord&) = default;
};

// A device that no job gets until its node boots again or is undrained.
struct BrokenDevice {
  std::string id;
  std::string reason;
  friend bool operator==(const BrokenDevice&, const BrokenDevice&) = default;
};

// What takes a node out of use. Stored and sent as a word.
enum class DrainCause {
  kNone = 0,  // it is not drained
  kOperator,  // by a request
  kNode,      // its own notice: SIGTERM, a spot instance that ends
  kPilot,     // the pilot job that it runs in ends, which is no fault of the node
};
inline constexpr int kDrainCauseCount = 4;
std::string_view Name(DrainCause cause);  // none, operator, node, pilot

// Key: name.
struct NodeRecord {
  NodeName name;
  NodeState state = NodeState::kJoining;
  std::string reason;
  std::string address;  // where other nodes reach its ranks
  std::string host_id;  // equal for nodes that share a kernel
  int slots = 0;
  NodeInventory inventory;  // by its last Hello
  std::vector<BrokenDevice> broken_devices;
  std::vector<LeakedSlot> leaked;
  std::int64_t pid = 0;  // of its worker
  std::string version;
  int metrics_port = 0;  // 0: none
  std::string instance;  // of its worker; new with every start
  // What the worker's list of guardians speaks of (Hello).
  std::string directory_id;
  std::string container_id;
  std::int64_t last_seen_unix_ms = 0;
  std::string failure_domain;  // empty: host_id

  const std::string& domain() const { return failure_domain.empty() ? host_id : failure_domain; }
  // For people: while it is drained, why; else `reason`.
  const std::string& ShownReason() const;
  void ClearDrain();
  bool allows_faults = false;
  std::string drain_reason;  // while draining or drained; for people
  DrainCause drain_cause = DrainCause::kNone;
  std::int64_t drain_by_unix_ms = 0;  // 0: no limit
  std::vector<NoticeRecord> notices;  // the node's own notices
  std::string pilot;                  // key of the pilot job that it runs in; empty: none
  std::vector<std::string> report;    // its address, transports and GPUs, when it last came
  GoodputUsage unused;                // its slots without a rank; written when their number changes
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

enum class Severity { kInfo = 0, kWarning, kError };
inline constexpr int kSeverityCount = 3;
std::string_view Name(Severity severity);  // info, warning, error

// One line of the timeline. Key: seq, which rises by one per event of the cluster.
struct EventRecord {
  std::uint64_t seq = 0;
  std::int64_t unix_ms = 0;
  JobId job;  // empty: of the cluster
  Generation generation = 0;
  std::string kind;  // submitted, placed, launched, rank_exited, recovered, ...
  Severity severity = Severity::kInfo;
  std::string message;
  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

// The file of the cluster's queues that is in force (coordinator/queues). There is one at most.
struct QueuesRecord {
  std::uint64_t version = 0;  // 0: none was applied; rises by one
  std::string yaml;           // as it was applied
  friend bool operator==(const QueuesRecord&, const QueuesRecord&) = default;
};

// The file of the cluster's users that is in force (coordinator/access). There is one at most.
struct UsersRecord {
  std::uint64_t version = 0;  // 0: none was applied; rises by one
  std::string yaml;           // as it was applied
  friend bool operator==(const UsersRecord&, const UsersRecord&) = default;
};

// Which secret: of that owner, for jobs in that queue and below it.
struct SecretName {
  std::string owner;
  std::string queue;
  std::string name;
  friend auto operator<=>(const SecretName&, const SecretName&) = default;
};

// A secret as it is stored: its value is readable only with a key that the store does not have
// (coordinator/service/secret_vault.h). Key: secret.
struct SecretRecord {
  SecretName secret;
  std::string key_id;   // of the key that encrypts its own
  std::string own_key;  // encrypted; base64, as `value`
  std::string value;
  std::int64_t updated_unix_ms = 0;
  std::string updated_by;
  friend bool operator==(const SecretRecord&, const SecretRecord&) = default;
};

// What the ended gangs of a queue's jobs had: the binary logarithm of their cost-seconds, each
// times 2^(seconds since the epoch / half-life). Key: queue.
struct QueueUsageRecord {
  std::string queue;  // or QUEUE/USER: of that user's jobs in it
  double usage = 0;
  friend bool operator==(const QueueUsageRecord&, const QueueUsageRecord&) = default;
};

// The time that jobs had slots, or GPUs.
struct UsedMicros {
  std::int64_t productive = 0;  // for steps that count
  std::int64_t lost = 0;        // for all else

  UsedMicros& operator+=(const UsedMicros& other);
  friend bool operator==(const UsedMicros&, const UsedMicros&) = default;
};

// What the ranks of a queue's jobs had on a day, UTC. Key: (KeyOf, day).
struct QueueDayRecord {
  std::string queue;
  std::int64_t day = 0;  // since 1970-01-01, or kOlderDays
  UsedMicros gpus;
  UsedMicros slots;
  std::string user;  // whose jobs; empty: of all users, or before there were users
  friend bool operator==(const QueueDayRecord&, const QueueDayRecord&) = default;
};
// "nlp/ada", or "nlp".
inline std::string KeyOf(const QueueDayRecord& record) {
  return record.user.empty() ? record.queue : record.queue + "/" + record.user;
}
// In the place of a day: the sum of those that are not kept any more.
inline constexpr std::int64_t kOlderDays = 0;

}  // namespace muster
