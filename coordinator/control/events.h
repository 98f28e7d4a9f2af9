// Everything that can happen to the controller: requests of clients, messages of workers, answers
// of the store, time.
//
// Plain values, made by the service's reactors and the server's timer, and posted to the loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "coordinator/access/actor.h"
#include "coordinator/access/operations.h"
#include "coordinator/access/user_file.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/domain/records.h"
#include "coordinator/queues/queue_tree.h"

namespace muster {

// The two clocks at the moment an event is handled. Decisions use `mono`; `unix_ms` is recorded.
struct Now {
  TimePoint mono;
  std::int64_t unix_ms = 0;
};
inline TimePoint MonotonicOf(const Now& now, std::int64_t unix_ms) {
  return now.mono + std::chrono::milliseconds(unix_ms - now.unix_ms);
}
// Rounded up, so that what is stored is not earlier than what was decided.
inline std::int64_t UnixMillisOf(const Now& now, TimePoint at) {
  return now.unix_ms + std::chrono::ceil<std::chrono::milliseconds>(at - now.mono).count();
}

// Chosen by the service, unique for the life of the process; identifies the recipient of a reply.
using RequestId = std::uint64_t;
// One stream of a worker. Chosen by the service, unique for the life of the process, never 0.
using SessionId = std::uint64_t;

// --- clients: `actor` makes the request, and may do so ---

struct SubmitRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kSubmit;
  RequestId request = 0;
  Actor actor = {};
  std::string spec_yaml;
  std::string key;  // empty: every call is a new job
  JobId new_id;     // ten random hexadecimal digits; becomes the id if the job is new
  // The result of ParseJobSpec on spec_yaml; not parsed on the loop, because that may take long.
  Result<JobSpec> spec = InvalidArgument("the job file was not parsed");
  // Refused when placements depend on anything that is not as it was then; nothing: it is not
  // asked.
  std::optional<std::uint64_t> check_index = {};
};

struct CancelRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kCancel;
  RequestId request = 0;
  Actor actor = {};
  std::string job;  // id, unique prefix of one, or name
  std::string reason;
};

// Saves the job's state, ends its ranks and sets it aside until it is resumed.
struct SuspendRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kSuspend;
  RequestId request = 0;
  Actor actor = {};
  std::string job;        // id, unique prefix of one, or name
  double by_seconds = 0;  // ranks that have not saved by then are ended; 0: no limit
  std::string reason;     // empty: none given
};

// The job waits for a gang again, and continues from its newest checkpoint.
struct ResumeRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kResume;
  RequestId request = 0;
  Actor actor = {};
  std::string job;  // id, unique prefix of one, or name
};

// Changes how a job is scheduled, also while it runs. What is not given stays.
struct UpdateRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kUpdateJob;
  RequestId request = 0;
  Actor actor = {};
  std::string job;  // id, unique prefix of one, or name
  std::optional<std::string> queue;
  std::optional<std::string> priority_class;
  std::optional<int> priority;
  std::optional<std::int64_t> time_limit_seconds;  // 0: none
  std::optional<std::int64_t> begin_unix_ms;       // 0: at once
  bool force = false;  // a longer time limit may delay starts that others were promised
};

// A job that waits is not placed until it is released.
struct HoldRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kHoldJob;
  RequestId request = 0;
  Actor actor = {};
  std::string job;     // id, unique prefix of one, or name
  std::string reason;  // empty: none given
};
struct ReleaseRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kReleaseJob;
  RequestId request = 0;
  Actor actor = {};
  std::string job;  // id, unique prefix of one, or name
};

// Nothing new is placed on the node; jobs on it stop at a step boundary, save, and move.
struct DrainRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kDrain;
  RequestId request = 0;
  Actor actor = {};
  NodeName node;
  double by_seconds = 0;  // what still runs then is ended; 0: no limit
  std::string reason;     // empty: none given
  DrainCause cause = DrainCause::kOperator;
};

// Also removes a quarantine.
struct UndrainRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kUndrain;
  RequestId request = 0;
  Actor actor = {};
  NodeName node;
};

// Injects a fault into a rank of `job`, or into `node` if `job` is empty.
struct InjectFaultRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kInjectFault;
  RequestId request = 0;
  Actor actor = {};
  std::string job;  // id, unique prefix of one, or name
  int rank = 0;
  NodeName node;
  std::string kind;
  std::string argument;
};

// Reads all committed checkpoints of the job again now. The reply follows when that is done.
struct VerifyRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kVerifyCheckpoints;
  RequestId request = 0;
  Actor actor = {};
  std::string job;  // id, unique prefix of one, or name
};

// Puts another file in the place of the cluster's queues, or asks what that would change.
struct QueuesApplyRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kApplyQueues;
  RequestId request = 0;
  Actor actor = {};
  std::string yaml;
  std::uint64_t expected_version = 0;  // of the queues that it replaces
  bool check_only = false;             // of any version
  // The result of ParseQueueFile on yaml; not parsed on the loop, because that may take long.
  Result<QueueTree> tree = InvalidArgument("the queue file was not parsed");
};

// Puts another file in the place of the cluster's users, or asks what that would change.
struct UsersApplyRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kApplyUsers;
  RequestId request = 0;
  Actor actor = {};
  std::string yaml;
  std::uint64_t expected_version = 0;  // of the users that it replaces
  bool check_only = false;             // of any version
  // The result of ParseUserFile on yaml; not parsed on the loop, because that may take long.
  Result<UserDirectory> users = InvalidArgument("the user file was not parsed");
};

// Stores a secret, whose value is encrypted already; time and who are set when it is stored.
struct SecretSetRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kSetSecret;
  RequestId request = 0;
  Actor actor = {};
  SecretRecord record;
};
struct SecretRemoveRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kRemoveSecret;
  RequestId request = 0;
  Actor actor = {};
  SecretName secret;
};
// The secrets with their own keys encrypted by another key.
struct SecretsRewrapRequested {
  static constexpr ClientOperation kOperation = ClientOperation::kRotateSecretKey;
  RequestId request = 0;
  Actor actor = {};
  std::vector<SecretRecord> records;
};

// A request that is no event, for the audit trail: one that was refused before it became one, or a
// login.
struct RequestNoted {
  Actor actor;
  std::string operation;  // the RPC's name
  std::string object;     // may be empty
  Status status;
  std::string detail = {};  // where the status is OK
};

// The client that asked for it has disconnected; no reply is needed any more.
struct CallerGone {
  RequestId request = 0;
};

// From code outside the core: an entry for the cluster's timeline, such as a pilot job that
// started.
struct ClusterNote {
  const char* kind = "";
  Severity severity = Severity::kInfo;
  std::string message;
};

// A pool brings nodes on demand, such as pilot jobs: what each of them has is declared, or
// anything.
struct PoolDeclared {
  int slots = 0;
  std::optional<NodeInventory> node;
};

// --- workers ---

// The first message of a stream. The controller answers with a Welcome send, or with a close.
struct WorkerHello {
  SessionId session = 0;
  Hello hello;
};

// Any later message. Messages of a session that is not its node's current one are ignored, so the
// service need not order a new stream's Hello after the old stream's end.
struct WorkerMessageReceived {
  SessionId session = 0;
  WorkerMessage message;
};

// The stream has ended, for any reason. Sent once per WorkerHello.
struct WorkerStreamClosed {
  SessionId session = 0;
};

// --- store ---

// Answers Effects::recalls.
struct ArchivedJobRead {
  JobId job;
  Result<ArchivedRecords> records;  // kNotFound: it is not archived any more
};

// --- time ---

// Sent when Controller::NextDeadline() has passed; harmless at any other time.
struct Tick {};

using Event =
    std::variant<SubmitRequested, CancelRequested, SuspendRequested, ResumeRequested,
                 UpdateRequested, HoldRequested, ReleaseRequested, DrainRequested, UndrainRequested,
                 InjectFaultRequested, VerifyRequested, QueuesApplyRequested, UsersApplyRequested,
                 SecretSetRequested, SecretRemoveRequested, SecretsRewrapRequested, RequestNoted,
                 CallerGone, ClusterNote, PoolDeclared, WorkerHello, WorkerMessageReceived,
                 WorkerStreamClosed, ArchivedJobRead, Tick>;

}  // namespace muster
