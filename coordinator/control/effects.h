// What is to be done after an event, as values: the results of the controller.
//
// The rule of the caller: commit `store` as one transaction. Release `sends`, `closes`, `replies`
// and `changed` of an Effects only when its own `store` and those of every Effects before it are
// durable, in the order in which the controller returned them. So every decision is durable before
// it is visible outside, and a repeated submit is acknowledged after the commit of the first one.
// Effects with an empty `store` also wait for the ones before them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/audit/audit_chain.h"
#include "common/base/status.h"
#include "common/wire/messages.h"
#include "coordinator/control/events.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/domain/records.h"

namespace muster {

// --- store ---

struct PutJob {
  JobRecord job;  // replaces the record with this id
};
struct PutAttempt {
  AttemptRecord attempt;  // replaces the one with this (job, generation)
};
struct PutCheckpoint {
  CheckpointRecord checkpoint;  // replaces the one with this (job, directory)
};
struct DeleteCheckpoint {
  JobId job;
  std::string directory;
};
struct PutNode {
  NodeRecord node;  // replaces the one with this name
};
struct AppendEvent {
  EventRecord event;
};
// The next line of the audit trail (common/audit).
struct AppendAudit {
  std::uint64_t seq = 0;
  std::string line;
};
struct DeleteNode {
  NodeName node;
};
// The job's records leave what Load returns. The key of a deleted job is free again, and so is its
// id; its events stay until newer ones replace them.
struct ArchiveJob {
  ArchivedJob job;
};
struct DeleteArchivedJob {
  JobId job;
};
// Replace a record of a job that is archived; without effect where it is not archived any more.
struct PutArchivedJob {
  JobRecord job;
};
struct PutArchivedCheckpoint {
  CheckpointRecord checkpoint;
};
// Time of jobs and slots whose records Load does not return.
struct PutArchivedTime {
  RankMicros micros = {};  // replaces the sum before
};
struct PutQueues {
  QueuesRecord queues;  // replaces the one before
};
struct PutUsers {
  UsersRecord users;  // replaces the one before
};
struct PutSecret {
  SecretRecord secret;  // replaces the one of its name
};
struct DeleteSecret {
  SecretName secret;
};
struct PutQueueUsage {
  std::string queue;  // of QueueUsageRecord
  double usage = 0;   // replaces the queue's before
};
struct DeleteQueueUsage {
  std::string queue;
};
struct PutQueueDay {
  QueueDayRecord record;  // replaces the one of this (KeyOf, day)
};
struct DeleteQueueDay {
  std::string queue;  // KeyOf the record
  std::int64_t day = 0;
};
using StoreOperation =
    std::variant<PutJob, PutAttempt, PutCheckpoint, DeleteCheckpoint, PutNode, AppendEvent,
                 DeleteNode, ArchiveJob, DeleteArchivedJob, PutArchivedJob, PutArchivedCheckpoint,
                 PutArchivedTime, PutQueues, PutUsers, AppendAudit, PutSecret, DeleteSecret,
                 PutQueueUsage, DeleteQueueUsage, PutQueueDay, DeleteQueueDay>;

// What the store returns at start-up. Any order; at least the newest 10,000 events.
struct StoredState {
  std::vector<JobRecord> jobs;
  std::vector<AttemptRecord> attempts;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<NodeRecord> nodes;
  std::vector<EventRecord> events;
  std::vector<ArchivedJob> archived;
  RankMicros archived_time = {};
  QueuesRecord queues;
  UsersRecord users;
  AuditHead audit;
  std::vector<SecretRecord> secrets;
  std::map<std::string, double> queue_usage;  // by QueueUsageRecord::queue
  std::vector<QueueDayRecord> queue_days;
};

// --- messages ---

// To the stream `session` of `node`; dropped if that stream has ended (the controller is notified
// and sends it again after the next Hello).
struct WorkerSend {
  SessionId session = 0;
  NodeName node;
  CoordinatorMessage message;
  // The one exception to the rule above (docs/adr/0015): may go out before the commits of its own
  // event, but not before a message that waits for an earlier one.
  bool eager = false;
};

// Ends this stream with this status, after what was sent to it before.
struct CloseSession {
  SessionId session = 0;
  Status status;
};

struct SubmitAccepted {
  JobId id;
  std::string name;
  JobState state = JobState::kQueued;
  bool existed = false;
};
struct CancelAccepted {
  JobId id;
  JobState state = JobState::kStopping;
};

struct SuspendAccepted {
  JobId id;
  JobState state = JobState::kStopping;  // kSuspended if there was nothing to end
};
struct ResumeAccepted {
  JobId id;
  JobState state = JobState::kQueued;
};

struct UpdateAccepted {
  JobId id;
  JobState state = JobState::kQueued;
  std::string changed;  // "priority 50 -> 80, time limit none -> 2 h 0 min"; empty: nothing
};
struct HoldAccepted {
  JobId id;
  JobState state = JobState::kQueued;
};
struct ReleaseAccepted {
  JobId id;
  JobState state = JobState::kQueued;
};

struct DrainAccepted {
  NodeState state = NodeState::kDraining;
  std::vector<JobId> jobs;  // that will move
};
struct UndrainAccepted {
  NodeState state = NodeState::kReady;
};
// The fault was caused.
struct FaultAccepted {
  NodeName node;
  Generation generation = 0;  // 0: of a node
};

// Every committed checkpoint of the job has been read again, but for those known to be damaged.
struct CheckpointsVerified {
  int whole = 0;
  std::vector<std::string> damaged;  // directories, those known before too
};

// The version of the queues that is in force now, and what the file changes; the latter also where
// it was only checked.
struct QueuesAccepted {
  std::uint64_t version = 0;
  std::vector<std::string> changes;
  std::vector<std::string> warnings;
};

// The version of the users that is in force now, and what the file changes; the latter also where
// it was only checked.
struct UsersAccepted {
  std::uint64_t version = 0;
  std::vector<std::string> changes;
};

struct SecretAccepted {
  SecretName secret;
};
struct SecretsRewrapped {
  int count = 0;
};

// To the client that sent the request. If `status` is not OK, `body` is empty.
struct Reply {
  RequestId request = 0;
  Status status;
  std::variant<std::monostate, SubmitAccepted, CancelAccepted, SuspendAccepted, ResumeAccepted,
               UpdateAccepted, HoldAccepted, ReleaseAccepted, DrainAccepted, UndrainAccepted,
               FaultAccepted, CheckpointsVerified, QueuesAccepted, UsersAccepted, SecretAccepted,
               SecretsRewrapped>
      body;
};

// --- figures, for metrics only ---

struct QueueWaitObserved {
  double seconds = 0;  // submission until the first placement
};
struct RestartObserved {
  CauseKind cause = CauseKind::kNone;  // of the attempt that ended
  Tier tier = Tier::kLaunch;           // that brings the next one up
};
struct RecoveryObserved {
  StageSeconds seconds;
  double total_seconds = 0;  // fault until training again; negative: not known
  Tier tier = Tier::kLaunch;
};
struct LostStepsObserved {
  std::int64_t steps = 0;
};
struct StaleMessageObserved {};  // a message of another generation was refused
// A hang's culprit was named.
struct HangObserved {
  std::string_view suspect;  // the phase that it was in, "stopped" or "unknown"; a literal
};
struct StragglerObserved {};  // a straggler was named
struct FaultObserved {};      // a fault was injected
// A rank could not write a checkpoint.
struct CheckpointFailureObserved {
  CheckpointTrouble kind = CheckpointTrouble::kOther;
};
struct CheckpointCommittedObserved {
  double seconds = 0;  // since the first of its shards was reported
};
struct ScrubObserved {
  ScrubOutcome outcome = ScrubOutcome::kWhole;  // whole, damaged, or unreadable: by no node
};
// A job has ended; suspended jobs do not count.
struct RunEndedObserved {
  JobState state = JobState::kSucceeded;  // final
  bool out_of_time = false;               // failed by its time limit alone
};
using Observation = std::variant<QueueWaitObserved, RestartObserved, RecoveryObserved,
                                 LostStepsObserved, StaleMessageObserved, HangObserved,
                                 StragglerObserved, FaultObserved, CheckpointFailureObserved,
                                 CheckpointCommittedObserved, ScrubObserved, RunEndedObserved>;

struct Effects {
  std::vector<StoreOperation> store;
  std::vector<WorkerSend> sends;
  std::vector<CloseSession> closes;
  std::vector<Reply> replies;
  std::vector<JobId> changed;  // jobs whose view differs now; each once
  std::vector<Observation> observations;
  // Archived jobs to be read from the store, without waiting for a commit. An ArchivedJobRead
  // answers each.
  std::vector<JobId> recalls;
  // A node has been welcomed by a coordinator of this epoch, above ours; 0: none has.
  std::uint64_t higher_epoch = 0;

  bool empty() const {
    return store.empty() && sends.empty() && closes.empty() && replies.empty() && changed.empty() &&
           observations.empty() && recalls.empty() && higher_epoch == 0;
  }
};

}  // namespace muster
