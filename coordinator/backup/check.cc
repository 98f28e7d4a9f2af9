#include "coordinator/backup/check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "common/audit/audit_chain.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/queue_names.h"
#include "coordinator/access/user_file.h"
#include "coordinator/queues/queue_file.h"
#include "coordinator/queues/share_tree.h"
#include "coordinator/store/journal_format.h"

namespace muster {
namespace {

constexpr char kOfBackup[] = "restore a backup from before; the coordinator may not start";
constexpr char kReport[] = "report it with this output; the coordinator goes on without";

// What is filed under one job, archived or not.
struct JobRecords {
  std::optional<JobRecord> job;
  std::map<Generation, AttemptRecord> attempts;
  std::map<std::string, CheckpointRecord> checkpoints;  // by directory
  std::optional<ArchivedJob> index;                     // archived
};

std::string Number(std::uint64_t number) { return std::to_string(number); }

class Checker {
 public:
  Status Load(std::string_view payload);
  void Check();
  std::vector<Violation> Take() { return std::move(violations_); }

 private:
  void Load(const JournalOperation& operation);
  void Add(std::string_view table, std::string key, std::string what,
           std::string next = kOfBackup) {
    violations_.push_back({std::string(table), std::move(key), std::move(what), std::move(next)});
  }
  void CheckJob(const JobRecords& records);
  void CheckStates(const JobRecords& records);
  void CheckAttempt(const JobRecords& records, const AttemptRecord& attempt,
                    const std::string& table);
  void CheckLiveAttempt(const AttemptRecord& attempt);
  void CheckCheckpoint(const JobRecords& records, const CheckpointRecord& checkpoint,
                       const std::string& table);
  void CheckRecordsOf(const JobId& id, const JobRecords& records, const std::string& suffix);
  void CheckArchived(const JobId& id, const JobRecords& records);
  void CheckOnce(const JobRecords& records, const std::string& table);
  void CheckQueues();
  void CheckUsers();
  void CheckSecrets();
  void CheckEvents();
  void CheckAudit();

  std::vector<Violation> violations_;
  std::map<JobId, JobRecords> jobs_, archive_;
  std::map<NodeName, NodeRecord> nodes_;
  std::map<std::uint64_t, EventRecord> events_;
  std::map<std::uint64_t, std::string> audit_;
  std::vector<SecretRecord> secrets_;
  QueuesRecord queues_;
  UsersRecord users_;
  QueueTree tree_;
  std::vector<std::string> usage_;  // names of queues
  std::vector<QueueDayRecord> days_;
  std::map<std::uint64_t, JobId> orders_;
  std::map<std::uint64_t, JobId> prints_;  // of keys
  std::map<std::string, JobId> given_;     // NODE and device, by the gang that has it
};

std::string TableOf(JournalOperation::Kind kind) {
  using Kind = JournalOperation::Kind;
  switch (kind) {
    case Kind::kPutJob: return "jobs";
    case Kind::kPutAttempt: return "attempts";
    case Kind::kPutCheckpoint: return "checkpoints";
    case Kind::kPutNode: return "nodes";
    case Kind::kAppendEvent: return "events";
    case Kind::kArchiveJob: return "jobs_archive";
    case Kind::kPutArchivedTime: return "archived_time";
    case Kind::kPutQueues: return "queues";
    case Kind::kPutQueueUsage: return "queue_usage";
    case Kind::kPutQueueDay: return "queue_days";
    case Kind::kPutUsers: return "users";
    case Kind::kAppendAudit: return "audit";
    case Kind::kPutSecret: return "secrets";
    default: return "other";
  }
}

std::string KeyText(const JournalOperation& operation) {
  std::string text(operation.key);
  if (!operation.name.empty()) text += "/" + std::string(operation.name);
  if (operation.number != 0) text += (text.empty() ? "" : "/") + Number(operation.number);
  return text;
}

Status Checker::Load(std::string_view payload) {
  return ForEachOperation(payload, [this](const JournalOperation& each) { Load(each); });
}

void Checker::Load(const JournalOperation& operation) {
  Result<std::optional<StoreOperation>> decoded = DecodeOperation(operation);
  if (!decoded.ok())
    return Add(TableOf(operation.kind), KeyText(operation), decoded.status().message());
  if (!*decoded) return;
  std::visit(
      [this](auto&& op) {
        using T = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<T, PutJob>) {
          jobs_[op.job.id].job = std::move(op.job);
        } else if constexpr (std::is_same_v<T, PutAttempt>) {
          jobs_[op.attempt.job].attempts[op.attempt.generation] = std::move(op.attempt);
        } else if constexpr (std::is_same_v<T, PutCheckpoint>) {
          jobs_[op.checkpoint.job].checkpoints[op.checkpoint.directory] = std::move(op.checkpoint);
        } else if constexpr (std::is_same_v<T, ArchiveJob>) {
          const JobId id = op.job.id;
          if (auto records = jobs_.extract(id)) archive_[id] = std::move(records.mapped());
          archive_[id].index = std::move(op.job);
        } else if constexpr (std::is_same_v<T, PutNode>) {
          nodes_[op.node.name] = std::move(op.node);
        } else if constexpr (std::is_same_v<T, AppendEvent>) {
          events_[op.event.seq] = std::move(op.event);
        } else if constexpr (std::is_same_v<T, AppendAudit>) {
          audit_[op.seq] = std::move(op.line);
        } else if constexpr (std::is_same_v<T, PutSecret>) {
          secrets_.push_back(std::move(op.secret));
        } else if constexpr (std::is_same_v<T, PutQueues>) {
          queues_ = std::move(op.queues);
        } else if constexpr (std::is_same_v<T, PutUsers>) {
          users_ = std::move(op.users);
        } else if constexpr (std::is_same_v<T, PutQueueUsage>) {
          usage_.push_back(std::move(op.queue));
        } else if constexpr (std::is_same_v<T, PutQueueDay>) {
          days_.push_back(std::move(op.record));
        }
      },
      **std::move(decoded));
}

bool Ended(const AttemptRecord& attempt) { return attempt.state == AttemptState::kEnded; }

// The attempt that is not over; nullptr: there is none.
const AttemptRecord* LiveAttempt(const JobRecords& records) {
  for (const auto& [generation, attempt] : records.attempts)
    if (!Ended(attempt)) return &attempt;
  return nullptr;
}

std::string KeyOf(const AttemptRecord& attempt) {
  return attempt.job.value + "/" + std::to_string(attempt.generation);
}

// As a running coordinator has it (control/invariants.cc).
void Checker::CheckStates(const JobRecords& records) {
  const JobRecord& job = *records.job;
  const AttemptRecord* live = LiveAttempt(records);
  const bool with_gang = job.state == JobState::kStarting || job.state == JobState::kRunning;
  const bool without =
      job.state == JobState::kQueued || job.state == JobState::kSuspended || IsTerminal(job.state);
  const std::string state(Name(job.state));
  if (with_gang && live == nullptr)
    Add("jobs", job.id.value, "it is " + state + " without an attempt that lives");
  if (without && live != nullptr)
    Add("jobs", job.id.value,
        "it is " + state + ", and attempt " + std::to_string(live->generation) + " lives");
  if (live != nullptr && static_cast<int>(live->ranks.size()) != job.world_size)
    Add("jobs", job.id.value,
        "it has " + std::to_string(job.world_size) + " ranks, and its attempt has " +
            std::to_string(live->ranks.size()));
  if (IsTerminal(job.state) != (job.ended_unix_ms > 0))
    Add("jobs", job.id.value,
        "it is " + state + (job.ended_unix_ms > 0 ? ", and has ended" : ", and has no end"));
}

void Checker::CheckJob(const JobRecords& records) {
  const JobRecord& job = *records.job;
  CheckStates(records);
  CheckOnce(records, "jobs");
  if (archive_.contains(job.id)) Add("jobs", job.id.value, "it is archived as well");
  if (job.generation > 0 && !records.attempts.contains(job.generation))
    Add("jobs", job.id.value,
        "its newest attempt, " + std::to_string(job.generation) + ", is not there");
  if (job.promise.nodes.size() != job.promise.devices.size() && !job.promise.devices.empty())
    Add("jobs", job.id.value, "its promise has devices of other nodes than it names", kReport);
  if (IsTerminal(job.state)) return;
  if (const auto spec = ParseJobSpec(job.spec_yaml); !spec.ok())
    Add("jobs", job.id.value, "its job file is not accepted: " + spec.status().message(),
        "the coordinator fails it at the next start; submit it again");
  const std::string queue = QueueName(job.queue);
  const int place = tree_.Find(queue);
  if (place < 0 || !tree_.queues[static_cast<std::size_t>(place)].leaf)
    Add("jobs", job.id.value, "there is no queue '" + queue + "' that takes jobs",
        "apply a queue file that has it (muster queues apply)");
}

// What no two jobs have.
void Checker::CheckOnce(const JobRecords& records, const std::string& table) {
  const JobRecord& job = *records.job;
  if (const auto [first, is_new] = orders_.emplace(job.submit_order, job.id); !is_new)
    Add(table, job.id.value,
        "job " + first->second.value + " has the same submit_order, " + Number(job.submit_order));
  const std::uint64_t print = ArchivedJobOf(job).key_print;
  if (print == 0) return;
  if (const auto [first, is_new] = prints_.emplace(print, job.id); !is_new)
    Add(table, job.id.value, "job " + first->second.value + " has the same key, '" + job.key + "'");
}

void Checker::CheckAttempt(const JobRecords& records, const AttemptRecord& attempt,
                           const std::string& table) {
  const JobRecord& job = *records.job;
  const std::string key = KeyOf(attempt);
  if (attempt.generation < 1 || attempt.generation > job.generation)
    Add(table, key, "its job has generation " + std::to_string(job.generation));
  if (Ended(attempt) != (attempt.ended_unix_ms > 0))
    Add(table, key, Ended(attempt) ? "it has ended at no time" : "it lives, and has an end");
  if (Ended(attempt)) return;
  if (attempt.generation != job.generation)
    Add(table, key, "it lives, though attempt " + std::to_string(job.generation) + " is newer");
  CheckLiveAttempt(attempt);
}

void Checker::CheckLiveAttempt(const AttemptRecord& attempt) {
  const std::string key = KeyOf(attempt);
  for (std::size_t i = 0; i < attempt.ranks.size(); ++i) {
    const RankRecord& rank = attempt.ranks[i];
    const auto node = static_cast<std::size_t>(rank.node_rank);
    if (rank.rank != static_cast<int>(i) || node >= attempt.nodes.size() ||
        attempt.nodes[node] != rank.node)
      Add("attempts", key, "rank " + std::to_string(i) + " is on none of its nodes");
  }
  for (const auto* nodes : {&attempt.nodes, &attempt.spares})
    for (const NodeName& node : *nodes)
      if (!nodes_.contains(node)) Add("attempts", key, "node " + node.value + " is not known");
  for (const NodeName& node : attempt.lent)
    if (std::ranges::find(attempt.nodes, node) == attempt.nodes.end())
      Add("attempts", key, "node " + node.value + " is lent to it, and none of its own");
  if (!attempt.node_devices.empty() && attempt.node_devices.size() != attempt.nodes.size())
    return Add("attempts", key, "it has devices of other nodes than its own");
  if (attempt.state == AttemptState::kAborting) return;
  for (std::size_t i = 0; i < attempt.node_devices.size(); ++i)
    for (const std::string& device : attempt.node_devices[i]) {
      const std::string place = attempt.nodes[i].value + " " + device;
      const auto [first, is_new] = given_.emplace(place, attempt.job);
      if (!is_new)
        Add("attempts", key,
            "job " + first->second.value + " has device " + device + " of node " +
                attempt.nodes[i].value + " as well");
    }
}

void Checker::CheckCheckpoint(const JobRecords& records, const CheckpointRecord& checkpoint,
                              const std::string& table) {
  const std::string key = checkpoint.job.value + "/" + checkpoint.directory;
  if (!records.attempts.contains(checkpoint.generation))
    Add(table, key, "its job has no attempt " + std::to_string(checkpoint.generation), kReport);
  if (checkpoint.state != CheckpointState::kCommitted &&
      checkpoint.state != CheckpointState::kPruning)
    Add(table, key, "it is " + std::string(Name(checkpoint.state)) + ", and not committed");
  std::set<int> ranks;
  for (const ShardInfo& shard : checkpoint.shards) ranks.insert(shard.rank);
  if (static_cast<int>(ranks.size()) != checkpoint.world_size)
    Add(table, key,
        "it has shards of " + std::to_string(ranks.size()) + " ranks instead of " +
            std::to_string(checkpoint.world_size));
  if (checkpoint.directory.empty() || checkpoint.directory.find('/') != std::string::npos)
    Add(table, key, "its directory is not below that of the job's checkpoints");
}

void Checker::CheckRecordsOf(const JobId& id, const JobRecords& records,
                             const std::string& suffix) {
  if (!records.job) {
    for (const auto& [generation, attempt] : records.attempts)
      Add("attempts" + suffix, KeyOf(attempt), "there is no such job");
    for (const auto& [directory, checkpoint] : records.checkpoints)
      Add("checkpoints" + suffix, id.value + "/" + directory, "there is no such job");
    return;
  }
  for (const auto& [generation, attempt] : records.attempts)
    CheckAttempt(records, attempt, "attempts" + suffix);
  for (const auto& [directory, checkpoint] : records.checkpoints)
    CheckCheckpoint(records, checkpoint, "checkpoints" + suffix);
}

void Checker::CheckArchived(const JobId& id, const JobRecords& records) {
  if (!records.job) return Add("jobs_archive", id.value, "there is no record of it");
  const JobRecord& job = *records.job;
  if (!IsTerminal(job.state))
    Add("jobs_archive", id.value, "it is " + std::string(Name(job.state)) + ", and archived");
  if (ArchivedJobOf(job) != *records.index)
    Add("jobs_archive", id.value, "the columns that a start reads are those of another record");
  if (LiveAttempt(records) != nullptr)
    Add("jobs_archive", id.value, "it is archived, and an attempt lives");
  CheckOnce(records, "jobs_archive");
}

void Checker::CheckQueues() {
  Result<QueueTree> tree = ParseStoredQueues(queues_.version, queues_.yaml);
  if (!tree.ok()) return Add("queues", "", tree.status().message());
  tree_ = *std::move(tree);
  for (const std::string& name : usage_)
    if (tree_.Find(QueueOfShare(name)) < 0)
      Add("queue_usage", name, "there is no such queue", kReport);
  for (const QueueDayRecord& day : days_) {
    const auto negative = [](const UsedMicros& used) {
      return used.productive < 0 || used.lost < 0;
    };
    if (day.day < 0 || negative(day.gpus) || negative(day.slots))
      Add("queue_days", muster::KeyOf(day) + "/" + std::to_string(day.day), "it is below zero",
          kReport);
  }
}

void Checker::CheckUsers() {
  const Result<UserDirectory> users = ParseStoredUsers(users_.version, users_.yaml);
  if (!users.ok()) return Add("users", "", users.status().message());
  if (const Status status = muster::CheckQueues(*users, tree_); !status.ok())
    Add("users", "", status.message(), "apply files that fit (muster users apply)");
}

void Checker::CheckSecrets() {
  for (const SecretRecord& record : secrets_) {
    const SecretName& name = record.secret;
    const std::string key = name.owner + "/" + name.queue + "/" + name.name;
    if (name.owner.empty() || name.name.empty() || record.key_id.empty() ||
        record.own_key.empty() || record.value.empty())
      Add("secrets", key, "a part of it is empty", "set it again (muster secret set)");
  }
}

void Checker::CheckEvents() {
  std::uint64_t before = 0;
  for (const auto& [seq, event] : events_) {
    if (before != 0 && seq != before + 1)
      Add("events", Number(before + 1),
          seq == before + 2 ? "it is missing"
                            : "it and those up to " + Number(seq - 1) + " are missing",
          kReport);
    before = seq;
  }
}

void Checker::CheckAudit() {
  AuditVerifier verifier;
  for (const auto& [seq, line] : audit_) {
    const Status status = verifier.Add(line);
    if (status.ok() && verifier.head().seq == seq) continue;
    return Add("audit", Number(seq),
               status.ok() ? "it is the line of " + Number(verifier.head().seq) : status.message(),
               "compare with an export from before (muster audit verify)");
  }
}

void Checker::Check() {
  CheckQueues();
  CheckUsers();
  for (const auto& [id, records] : jobs_) {
    if (records.job) CheckJob(records);
    CheckRecordsOf(id, records, "");
  }
  for (const auto& [id, records] : archive_) {
    CheckArchived(id, records);
    CheckRecordsOf(id, records, "_archive");
  }
  CheckSecrets();
  CheckEvents();
  CheckAudit();
}

}  // namespace

Result<std::vector<Violation>> CheckContents(const StoreContents& contents) {
  Checker checker;
  MUSTER_RETURN_IF_ERROR(checker.Load(contents.payload));
  checker.Check();
  return checker.Take();
}

}  // namespace muster
