#include "coordinator/store/sqlite_store.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/unique_fd.h"
#include "common/base/version_table.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/records_of_jobs.h"
#include "coordinator/store/schema_copy.h"

namespace muster {
namespace {

constexpr std::int64_t kSchemaVersion = kStoreSchemas.max;
constexpr std::int64_t kOldestSchema = kStoreSchemas.min;  // that is converted
// Old events are removed in batches of this size, or of twice the number of new ones if that is
// more.
constexpr std::int64_t kPrunedAtOnce = 256;
constexpr Duration kLockWithin = std::chrono::milliseconds(250);

constexpr char kSchema[] = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs(id TEXT PRIMARY KEY, state TEXT NOT NULL, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE attempts(job TEXT NOT NULL, generation INTEGER NOT NULL, record TEXT NOT NULL,
                      PRIMARY KEY(job, generation)) WITHOUT ROWID;
CREATE TABLE checkpoints(job TEXT NOT NULL, directory TEXT NOT NULL, record TEXT NOT NULL,
                         PRIMARY KEY(job, directory)) WITHOUT ROWID;
CREATE TABLE nodes(name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events(seq INTEGER PRIMARY KEY, job TEXT NOT NULL, record TEXT NOT NULL);
CREATE INDEX events_of_job ON events(job, seq);
CREATE TABLE jobs_archive(id TEXT PRIMARY KEY, state TEXT NOT NULL, submit_order INTEGER NOT NULL,
                          ended_unix_ms INTEGER NOT NULL, key_print INTEGER NOT NULL,
                          spec_print INTEGER NOT NULL, record TEXT NOT NULL);
CREATE INDEX jobs_archive_index ON jobs_archive(submit_order, id, state, ended_unix_ms, key_print,
                                                spec_print);
CREATE INDEX jobs_archive_names ON jobs_archive(json_extract(record, '$.name'), submit_order);
CREATE INDEX jobs_archive_outputs
  ON jobs_archive(json_extract(record, '$.output_dir'), submit_order, id);
CREATE TABLE attempts_archive(job TEXT NOT NULL, generation INTEGER NOT NULL, record TEXT NOT NULL,
                              PRIMARY KEY(job, generation)) WITHOUT ROWID;
CREATE TABLE checkpoints_archive(job TEXT NOT NULL, directory TEXT NOT NULL, record TEXT NOT NULL,
                                 PRIMARY KEY(job, directory)) WITHOUT ROWID;
CREATE TABLE archived_time(one INTEGER PRIMARY KEY, record TEXT NOT NULL);
)sql";

// Version 3 has all but these.
constexpr char kQueuesSchema[] = R"sql(
CREATE TABLE queues(one INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE queue_usage(queue TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
)sql";

// And version 4 has all but these.
constexpr char kQueueDaysSchema[] = R"sql(
CREATE TABLE queue_days(queue TEXT NOT NULL, day INTEGER NOT NULL, record TEXT NOT NULL,
                        PRIMARY KEY(queue, day)) WITHOUT ROWID;
)sql";

// And version 5 has all but these.
constexpr char kUsersSchema[] = R"sql(
CREATE TABLE users(one INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE audit(seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE secrets(owner TEXT NOT NULL, queue TEXT NOT NULL, name TEXT NOT NULL,
                     record TEXT NOT NULL, PRIMARY KEY(owner, queue, name)) WITHOUT ROWID;
)sql";

// By operation, in the order of StoreOperation.
constexpr FailpointName kWrites[] = {"write.job",
                                     "write.attempt",
                                     "write.checkpoint",
                                     "write.checkpoint_deleted",
                                     "write.node",
                                     "write.event",
                                     "write.node_deleted",
                                     "write.archive",
                                     "write.archive_deleted",
                                     "write.archived_job",
                                     "write.archived_checkpoint",
                                     "write.archived_time",
                                     "write.queues",
                                     "write.users",
                                     "write.audit",
                                     "write.secret",
                                     "write.secret_deleted",
                                     "write.queue_usage",
                                     "write.queue_usage_deleted",
                                     "write.queue_day",
                                     "write.queue_day_deleted"};
static_assert(std::size(kWrites) == std::variant_size_v<StoreOperation>);

constexpr char kPragmas[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;";

Status CreateOrCheckSchema(SqliteDatabase& database, const SqliteStoreOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(
      SqliteStatement tables,
      database.Prepare("SELECT count(*) FROM sqlite_master WHERE type='table' AND name='meta'"));
  MUSTER_RETURN_IF_ERROR(tables.Next().status());
  const bool fresh = tables.Int(0) == 0;
  MUSTER_RETURN_IF_ERROR(tables.Next().status());
  if (fresh) {
    MUSTER_RETURN_IF_ERROR(database.Execute(std::string("BEGIN IMMEDIATE;") + kSchema +
                                            kQueuesSchema + kQueueDaysSchema + kUsersSchema +
                                            "INSERT INTO meta VALUES('schema'," +
                                            std::to_string(kSchemaVersion) + "); COMMIT;"));
    Failpoint("store.created");
    return OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement version,
                          database.Prepare("SELECT value FROM meta WHERE key='schema'"));
  MUSTER_ASSIGN_OR_RETURN(const bool found, version.Next());
  const std::int64_t schema = found ? version.Int(0) : 0;
  if (schema == kSchemaVersion) return OkStatus();
  MUSTER_RETURN_IF_ERROR(version.Next().status());  // there is no other; ends the query
  MUSTER_RETURN_IF_ERROR(CheckSqliteSchema(schema));
  MUSTER_ASSIGN_OR_RETURN(const std::string copy, KeepCopyOfSchema(database, options.path, schema));
  if (options.note)
    options.note(options.path + " is converted from schema " + std::to_string(schema) + " to " +
                 std::to_string(kSchemaVersion) + "; the version before reads its copy, " + copy);
  MUSTER_RETURN_IF_ERROR(database.Execute(
      std::string("BEGIN IMMEDIATE;") + (schema < 4 ? kQueuesSchema : "") +
      (schema < 5 ? kQueueDaysSchema : "") + kUsersSchema +
      "UPDATE meta SET value=" + std::to_string(kSchemaVersion) + " WHERE key='schema'; COMMIT;"));
  Failpoint("store.converted");
  return OkStatus();
}

Status Configure(SqliteDatabase& database, const SqliteStoreOptions& options) {
  MUSTER_RETURN_IF_ERROR(database.Execute(kPragmas));
  // Earlier versions have no lock but SQLite's.
  MUSTER_RETURN_IF_ERROR(database.Execute("BEGIN EXCLUSIVE; COMMIT;"));
  MUSTER_RETURN_IF_ERROR(CreateOrCheckSchema(database, options));
  MUSTER_RETURN_IF_ERROR(
      database.Execute("DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - " +
                       std::to_string(options.kept_events)));
  if (options.max_pages == 0) return OkStatus();
  return database.Execute("PRAGMA max_page_count=" + std::to_string(options.max_pages));
}

// Every row of a query whose only column is a record.
template <typename T>
Status ReadRecords(SqliteStatement& rows, std::vector<T>& into) {
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return OkStatus();
    MUSTER_ASSIGN_OR_RETURN(T record, Decode<T>(rows.Text(0)));
    into.push_back(std::move(record));
  }
}

template <typename T>
Status LoadTable(SqliteDatabase& database, const std::string& table, std::vector<T>& into) {
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement rows, database.Prepare("SELECT record FROM " + table));
  return ReadRecords(rows, into).WithContext("table " + table);
}

Result<JobState> JobStateNamed(std::string_view name) {
  for (int i = 1; i <= kJobStateCount; ++i) {
    if (Name(static_cast<JobState>(i)) == name) return static_cast<JobState>(i);
  }
  return DataLoss("table jobs_archive: no state is named '" + std::string(name) + "'");
}

// By the index alone, which has all columns that are read: no record is touched.
Status LoadArchive(SqliteDatabase& database, StoredState* state) {
  MUSTER_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      database.Prepare("SELECT id, state, submit_order, ended_unix_ms, key_print, spec_print "
                       "FROM jobs_archive INDEXED BY jobs_archive_index"));
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) break;
    MUSTER_ASSIGN_OR_RETURN(const JobState final_state, JobStateNamed(rows.Text(1)));
    state->archived.push_back({.id = JobId{rows.Text(0)},
                               .state = final_state,
                               .submit_order = static_cast<std::uint64_t>(rows.Int(2)),
                               .ended_unix_ms = rows.Int(3),
                               .key_print = static_cast<std::uint64_t>(rows.Int(4)),
                               .spec_print = static_cast<std::uint64_t>(rows.Int(5))});
  }
  std::vector<GoodputUsage> time;
  MUSTER_RETURN_IF_ERROR(LoadTable(database, "archived_time", time));
  if (!time.empty()) state->archived_time = time.front().micros;
  return OkStatus();
}

Status LoadQueues(SqliteDatabase& database, StoredState* state) {
  std::vector<QueuesRecord> queues;
  MUSTER_RETURN_IF_ERROR(LoadTable(database, "queues", queues));
  if (!queues.empty()) state->queues = std::move(queues.front());
  std::vector<QueueUsageRecord> usage;
  MUSTER_RETURN_IF_ERROR(LoadTable(database, "queue_usage", usage));
  for (const QueueUsageRecord& each : usage) state->queue_usage[each.queue] = each.usage;
  return LoadTable(database, "queue_days", state->queue_days);
}

SqliteStatement& BindTo(SqliteStatement& statement, const SecretName& secret) {
  return statement.Bind(1, secret.owner).Bind(2, secret.queue).Bind(3, secret.name);
}

Status Held(const std::string& path) {
  return Unavailable(path +
                     " is held by another coordinator; end that one first, or use another --dir");
}

Status LoadUsers(SqliteDatabase& database, StoredState* state) {
  std::vector<UsersRecord> users;
  MUSTER_RETURN_IF_ERROR(LoadTable(database, "users", users));
  if (!users.empty()) state->users = std::move(users.front());
  MUSTER_RETURN_IF_ERROR(LoadTable(database, "secrets", state->secrets));
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement newest,
                          database.Prepare("SELECT line FROM audit ORDER BY seq DESC LIMIT 1"));
  MUSTER_ASSIGN_OR_RETURN(const bool found, newest.Next());
  if (!found) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(state->audit, AuditHeadOf(std::string(newest.Text(0))));
  return newest.Next().status();  // there is no other; ends the query
}

}  // namespace

Status CheckSqliteSchema(std::int64_t schema) {
  if (schema >= kOldestSchema && schema <= kSchemaVersion) return OkStatus();
  const std::string both = "it has schema " + std::to_string(schema) +
                           ", this version of Muster knows " + RangeText(kStoreSchemas);
  if (schema < kOldestSchema)
    return FailedPrecondition(both + "; start a version between the two once, which converts it");
  return FailedPrecondition(
      both +
      ": a newer version wrote it; start that one, or, to go back without what was decided "
      "since, put the copy that it kept before it converted the file (its name and "
      ".schema-NUMBER) in its place");
}

Result<LockedRecord> LockDatabase(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, "open " + path);
  Result<LockedRecord> lock = LockedRecord::Acquire(path, std::move(file), kLockWithin);
  if (lock.status().code() == StatusCode::kAlreadyExists) return Held(path);
  return lock;
}

Result<std::unique_ptr<SqliteStore>> SqliteStore::Open(SqliteStoreOptions options) {
  MUSTER_ASSIGN_OR_RETURN(LockedRecord lock, LockDatabase(options.path));
  MUSTER_ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(options.path));
  Failpoint("store.opened");
  if (const Status status = Configure(database, options); !status.ok()) {
    if (status.code() == StatusCode::kUnavailable) return Held(options.path);
    return status.WithContext(options.path);
  }
  std::unique_ptr<SqliteStore> store(
      new SqliteStore(std::move(lock), std::move(database), options));
  MUSTER_RETURN_IF_ERROR(store->PrepareStatements());
  MUSTER_RETURN_IF_ERROR(store->ReadEpoch());
  MUSTER_RETURN_IF_ERROR(store->FindOldest());
  store->queue_.Start();
  return store;
}

SqliteStore::SqliteStore(LockedRecord lock, SqliteDatabase database,
                         const SqliteStoreOptions& options)
    : lock_(std::move(lock)),
      database_(std::move(database)),
      kept_events_(options.kept_events),
      kept_audit_(options.kept_audit),
      queue_(*this, {.path = options.path, .max_queued = options.max_queued}) {}

Status SqliteStore::PrepareStatements() {
  const auto prepare = [this](SqliteStatement& into, std::string_view sql) -> Status {
    MUSTER_ASSIGN_OR_RETURN(into, database_.Prepare(sql));
    return OkStatus();
  };
  Statements& s = statements_;
  MUSTER_RETURN_IF_ERROR(prepare(s.put_job, "INSERT OR REPLACE INTO jobs VALUES(?,?,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_attempt, "INSERT OR REPLACE INTO attempts VALUES(?,?,?)"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.put_checkpoint, "INSERT OR REPLACE INTO checkpoints VALUES(?,?,?)"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.delete_checkpoint, "DELETE FROM checkpoints WHERE job=? AND directory=?"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_node, "INSERT OR REPLACE INTO nodes VALUES(?,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_event, "INSERT OR REPLACE INTO events VALUES(?,?,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.delete_events, "DELETE FROM events WHERE seq<?"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.events, "SELECT record FROM events WHERE seq>? ORDER BY seq LIMIT ?"));
  MUSTER_RETURN_IF_ERROR(prepare(
      s.events_of_job, "SELECT record FROM events WHERE seq>? AND job=? ORDER BY seq LIMIT ?"));
  MUSTER_RETURN_IF_ERROR(prepare(s.delete_node, "DELETE FROM nodes WHERE name=?"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.put_archived_time, "INSERT OR REPLACE INTO archived_time VALUES(1,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_queues, "INSERT OR REPLACE INTO queues VALUES(1,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_users, "INSERT OR REPLACE INTO users VALUES(1,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_audit, "INSERT INTO audit VALUES(?,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.delete_audit, "DELETE FROM audit WHERE seq<?"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.audit, "SELECT line FROM audit WHERE seq>? ORDER BY seq LIMIT ?"));
  MUSTER_RETURN_IF_ERROR(prepare(s.put_secret, "INSERT OR REPLACE INTO secrets VALUES(?,?,?,?)"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.delete_secret, "DELETE FROM secrets WHERE owner=? AND queue=? AND name=?"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.put_queue_usage, "INSERT OR REPLACE INTO queue_usage VALUES(?,?)"));
  MUSTER_RETURN_IF_ERROR(prepare(s.delete_queue_usage, "DELETE FROM queue_usage WHERE queue=?"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.put_queue_day, "INSERT OR REPLACE INTO queue_days VALUES(?,?,?)"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.delete_queue_day, "DELETE FROM queue_days WHERE queue=? AND day=?"));
  return PrepareArchiveStatements();
}

Status SqliteStore::PrepareArchiveStatements() {
  Statements& s = statements_;
  const auto prepare = [this](SqliteStatement& into, std::string_view sql) -> Status {
    MUSTER_ASSIGN_OR_RETURN(into, database_.Prepare(sql));
    return OkStatus();
  };
  const auto add = [this](std::vector<SqliteStatement>& to, const std::string& sql) -> Status {
    MUSTER_ASSIGN_OR_RETURN(SqliteStatement statement, database_.Prepare(sql));
    to.push_back(std::move(statement));
    return OkStatus();
  };
  MUSTER_RETURN_IF_ERROR(prepare(s.archive_job,
                                 "INSERT OR REPLACE INTO jobs_archive "
                                 "SELECT id, state, ?, ?, ?, ?, record FROM jobs WHERE id=?"));
  MUSTER_RETURN_IF_ERROR(add(s.archive_rest, "DELETE FROM jobs WHERE id=?"));
  MUSTER_RETURN_IF_ERROR(add(s.delete_archived, "DELETE FROM jobs_archive WHERE id=?"));
  for (const std::string table : {"attempts", "checkpoints"}) {
    MUSTER_RETURN_IF_ERROR(add(
        s.archive_rest,
        "INSERT OR REPLACE INTO " + table + "_archive SELECT * FROM " + table + " WHERE job=?"));
    MUSTER_RETURN_IF_ERROR(add(s.archive_rest, "DELETE FROM " + table + " WHERE job=?"));
    MUSTER_RETURN_IF_ERROR(add(s.delete_archived, "DELETE FROM " + table + "_archive WHERE job=?"));
  }
  MUSTER_RETURN_IF_ERROR(
      prepare(s.put_archived_job, "UPDATE jobs_archive SET record=? WHERE id=?"));
  MUSTER_RETURN_IF_ERROR(
      prepare(s.put_archived_checkpoint,
              "UPDATE checkpoints_archive SET record=? WHERE job=? AND directory=?"));
  MUSTER_RETURN_IF_ERROR(prepare(s.archived, "SELECT record FROM jobs_archive WHERE id=?"));
  MUSTER_RETURN_IF_ERROR(prepare(s.archived_named,
                                 "SELECT record FROM jobs_archive WHERE json_extract(record, "
                                 "'$.name')=? ORDER BY submit_order DESC LIMIT 1"));
  MUSTER_RETURN_IF_ERROR(prepare(s.output_owner,
                                 "SELECT id FROM jobs_archive WHERE json_extract(record, "
                                 "'$.output_dir')=? ORDER BY submit_order DESC LIMIT 1"));
  MUSTER_RETURN_IF_ERROR(prepare(s.archived_page,
                                 "SELECT record FROM jobs_archive WHERE submit_order<? "
                                 "ORDER BY submit_order DESC LIMIT ?"));
  MUSTER_RETURN_IF_ERROR(prepare(
      s.archived_attempts, "SELECT record FROM attempts_archive WHERE job=? ORDER BY generation"));
  return prepare(s.archived_checkpoints, "SELECT record FROM checkpoints_archive WHERE job=?");
}

Status SqliteStore::ReadEpoch() {
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement epoch,
                          database_.Prepare("SELECT max(value) FROM meta WHERE key='epoch'"));
  MUSTER_RETURN_IF_ERROR(epoch.Next().status());
  epoch_ = static_cast<std::uint64_t>(epoch.Int(0));
  return epoch.Next().status();  // there is no other; ends the query
}

Status SqliteStore::FindOldest() {
  const auto read = [this](const char* table, std::int64_t* oldest,
                           std::int64_t* newest) -> Status {
    MUSTER_ASSIGN_OR_RETURN(
        SqliteStatement range,
        database_.Prepare(std::string("SELECT min(seq), max(seq) FROM ") + table));
    MUSTER_RETURN_IF_ERROR(range.Next().status());
    *oldest = range.Int(0);
    *newest = range.Int(1);
    return OkStatus();
  };
  MUSTER_RETURN_IF_ERROR(read("events", &oldest_event_, &newest_event_));
  return read("audit", &oldest_audit_, &newest_audit_);
}

Result<StoredState> SqliteStore::Load() {
  // The thread is idle: nothing was committed yet.
  StoredState state;
  MUSTER_RETURN_IF_ERROR(LoadTable(database_, "jobs", state.jobs));
  MUSTER_RETURN_IF_ERROR(LoadTable(database_, "attempts", state.attempts));
  MUSTER_RETURN_IF_ERROR(LoadTable(database_, "checkpoints", state.checkpoints));
  MUSTER_RETURN_IF_ERROR(LoadTable(database_, "nodes", state.nodes));
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement newest,
                          database_.Prepare("SELECT record FROM events ORDER BY seq DESC LIMIT " +
                                            std::to_string(kLoadedEvents)));
  MUSTER_RETURN_IF_ERROR(ReadRecords(newest, state.events).WithContext("table events"));
  std::reverse(state.events.begin(), state.events.end());
  MUSTER_RETURN_IF_ERROR(LoadArchive(database_, &state));
  MUSTER_RETURN_IF_ERROR(LoadQueues(database_, &state));
  MUSTER_RETURN_IF_ERROR(LoadUsers(database_, &state));
  return state;
}

void SqliteStore::Commit(std::vector<StoreOperation> operations, Done done) {
  queue_.Commit(std::move(operations), std::move(done));
}

void SqliteStore::ReadEvents(EventQuery query, EventsDone done) {
  queue_.ReadEvents(std::move(query), std::move(done));
}

void SqliteStore::ReadArchive(ArchiveQuery query, ArchiveDone done) {
  queue_.ReadArchive(std::move(query), std::move(done));
}

void SqliteStore::ReadAudit(AuditQuery query, AuditDone done) {
  queue_.ReadAudit(query, std::move(done));
}

Status SqliteStore::WriteGroup(const std::vector<CommitBatch>& group) {
  Failpoint("store.begin");
  MUSTER_RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
  Failpoint("store.begun");
  const std::int64_t newest_before = newest_event_;
  for (const CommitBatch& batch : group) {
    for (const StoreOperation& operation : batch.operations) {
      // No rollback after a failure: the store is poisoned, and closing the file drops what the
      // transaction wrote.
      Failpoint(kWrites[operation.index()]);
      MUSTER_RETURN_IF_ERROR(Write(operation));
    }
  }
  MUSTER_RETURN_IF_ERROR(PruneEvents(newest_event_ - newest_before));
  MUSTER_RETURN_IF_ERROR(PruneAudit());
  Failpoint("store.commit");
  MUSTER_RETURN_IF_ERROR(database_.Execute("COMMIT"));
  Failpoint("store.committed");
  return OkStatus();
}

// A little at a time, because decisions wait for it; more than has come, so that none accumulate.
Status SqliteStore::PruneEvents(std::int64_t appended) {
  const std::int64_t surplus = newest_event_ - kept_events_ + 1 - oldest_event_;
  if (surplus < kPrunedAtOnce) return OkStatus();
  oldest_event_ += std::min(surplus, std::max(kPrunedAtOnce, 2 * appended));
  return statements_.delete_events.Bind(1, oldest_event_).Run();
}

Status SqliteStore::PruneAudit() {
  const std::int64_t surplus = newest_audit_ - kept_audit_ + 1 - oldest_audit_;
  if (surplus < kPrunedAtOnce) return OkStatus();
  oldest_audit_ += surplus;
  Failpoint("store.rotate");
  return statements_.delete_audit.Bind(1, oldest_audit_).Run();
}

Status SqliteStore::Write(const StoreOperation& operation) {
  Statements& s = statements_;
  return std::visit(
      [this, &s](const auto& op) {
        using T = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<T, PutJob>) {
          return s.put_job.Bind(1, op.job.id.value)
              .Bind(2, Name(op.job.state))
              .Bind(3, Encode(op.job))
              .Run();
        } else if constexpr (std::is_same_v<T, PutAttempt>) {
          return s.put_attempt.Bind(1, op.attempt.job.value)
              .Bind(2, op.attempt.generation)
              .Bind(3, Encode(op.attempt))
              .Run();
        } else if constexpr (std::is_same_v<T, PutCheckpoint>) {
          return s.put_checkpoint.Bind(1, op.checkpoint.job.value)
              .Bind(2, op.checkpoint.directory)
              .Bind(3, Encode(op.checkpoint))
              .Run();
        } else if constexpr (std::is_same_v<T, DeleteCheckpoint>) {
          return s.delete_checkpoint.Bind(1, op.job.value).Bind(2, op.directory).Run();
        } else if constexpr (std::is_same_v<T, PutNode>) {
          return s.put_node.Bind(1, op.node.name.value).Bind(2, Encode(op.node)).Run();
        } else if constexpr (std::is_same_v<T, DeleteNode>) {
          return s.delete_node.Bind(1, op.node.value).Run();
        } else if constexpr (std::is_same_v<T, ArchiveJob>) {
          return Archive(op.job);
        } else if constexpr (std::is_same_v<T, DeleteArchivedJob>) {
          return DeleteArchived(op.job);
        } else if constexpr (std::is_same_v<T, PutArchivedJob>) {
          return s.put_archived_job.Bind(1, Encode(op.job)).Bind(2, op.job.id.value).Run();
        } else if constexpr (std::is_same_v<T, PutArchivedCheckpoint>) {
          return s.put_archived_checkpoint.Bind(1, Encode(op.checkpoint))
              .Bind(2, op.checkpoint.job.value)
              .Bind(3, op.checkpoint.directory)
              .Run();
        } else if constexpr (std::is_same_v<T, PutArchivedTime>) {
          return s.put_archived_time.Bind(1, Encode(GoodputUsage{.micros = op.micros})).Run();
        } else if constexpr (std::is_same_v<T, PutQueues>) {
          return s.put_queues.Bind(1, Encode(op.queues)).Run();
        } else if constexpr (std::is_same_v<T, PutUsers>) {
          return s.put_users.Bind(1, Encode(op.users)).Run();
        } else if constexpr (std::is_same_v<T, AppendAudit>) {
          newest_audit_ = static_cast<std::int64_t>(op.seq);
          return s.put_audit.Bind(1, newest_audit_).Bind(2, op.line).Run();
        } else if constexpr (std::is_same_v<T, PutSecret>) {
          return BindTo(s.put_secret, op.secret.secret).Bind(4, Encode(op.secret)).Run();
        } else if constexpr (std::is_same_v<T, DeleteSecret>) {
          return BindTo(s.delete_secret, op.secret).Run();
        } else if constexpr (requires { WriteFigures(op); }) {
          return WriteFigures(op);
        } else {
          static_assert(std::is_same_v<T, AppendEvent>);
          newest_event_ = std::max(newest_event_, static_cast<std::int64_t>(op.event.seq));
          return s.put_event.Bind(1, static_cast<std::int64_t>(op.event.seq))
              .Bind(2, op.event.job.value)
              .Bind(3, Encode(op.event))
              .Run();
        }
      },
      operation);
}

Status SqliteStore::WriteFigures(const PutQueueUsage& op) {
  return statements_.put_queue_usage.Bind(1, op.queue)
      .Bind(2, Encode(QueueUsageRecord{op.queue, op.usage}))
      .Run();
}

Status SqliteStore::WriteFigures(const DeleteQueueUsage& op) {
  return statements_.delete_queue_usage.Bind(1, op.queue).Run();
}

Status SqliteStore::WriteFigures(const PutQueueDay& op) {
  return statements_.put_queue_day.Bind(1, KeyOf(op.record))
      .Bind(2, op.record.day)
      .Bind(3, Encode(op.record))
      .Run();
}

Status SqliteStore::WriteFigures(const DeleteQueueDay& op) {
  return statements_.delete_queue_day.Bind(1, op.queue).Bind(2, op.day).Run();
}

Status SqliteStore::Archive(const ArchivedJob& job) {
  MUSTER_RETURN_IF_ERROR(
      statements_.archive_job.Bind(1, static_cast<std::int64_t>(job.submit_order))
          .Bind(2, job.ended_unix_ms)
          .Bind(3, static_cast<std::int64_t>(job.key_print))
          .Bind(4, static_cast<std::int64_t>(job.spec_print))
          .Bind(5, job.id.value)
          .Run());
  for (SqliteStatement& statement : statements_.archive_rest)
    MUSTER_RETURN_IF_ERROR(statement.Bind(1, job.id.value).Run());
  return OkStatus();
}

Status SqliteStore::DeleteArchived(const JobId& job) {
  for (SqliteStatement& statement : statements_.delete_archived)
    MUSTER_RETURN_IF_ERROR(statement.Bind(1, job.value).Run());
  return OkStatus();
}

Result<std::vector<ArchivedRecords>> SqliteStore::SelectArchived(const ArchiveQuery& query) {
  Statements& s = statements_;
  SqliteStatement& rows = query.is_page()     ? s.archived_page
                          : query.job.empty() ? s.archived_named
                                              : s.archived;
  if (query.is_page()) {
    rows.Bind(1, static_cast<std::int64_t>(query.before_order)).Bind(2, std::int64_t{query.limit});
  } else {
    rows.Bind(1, query.job.empty() ? query.name : query.job.value);
  }
  std::vector<JobRecord> jobs;
  MUSTER_RETURN_IF_ERROR(ReadRecords(rows, jobs).WithContext("table jobs_archive"));
  std::vector<ArchivedRecords> found;
  for (JobRecord& job : jobs) found.push_back({.job = std::move(job)});
  if (!query.is_page() && !found.empty()) MUSTER_RETURN_IF_ERROR(AddRest(&found.front()));
  return found;
}

Status SqliteStore::AddRest(ArchivedRecords* records) {
  Statements& s = statements_;
  const JobRecord& job = records->job;
  MUSTER_RETURN_IF_ERROR(ReadRecords(s.archived_attempts.Bind(1, job.id.value), records->attempts));
  MUSTER_RETURN_IF_ERROR(
      ReadRecords(s.archived_checkpoints.Bind(1, job.id.value), records->checkpoints));
  OrderCheckpoints(&records->checkpoints);
  SqliteStatement& owner = s.output_owner.Bind(1, job.output_dir);
  MUSTER_RETURN_IF_ERROR(owner.Next().status());
  records->output_owner = JobId{owner.Text(0)};
  return owner.Next().status();  // there is no other; ends the query
}

Result<std::vector<std::string>> SqliteStore::SelectAudit(const AuditQuery& query) {
  SqliteStatement& rows = statements_.audit.Bind(1, static_cast<std::int64_t>(query.after_seq))
                              .Bind(2, std::int64_t{query.limit});
  std::vector<std::string> lines;
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return lines;
    lines.emplace_back(rows.Text(0));
  }
}

Result<std::vector<EventRecord>> SqliteStore::SelectEvents(const EventQuery& query) {
  SqliteStatement& rows = query.job.empty() ? statements_.events : statements_.events_of_job;
  rows.Bind(1, static_cast<std::int64_t>(query.after_seq));
  if (!query.job.empty()) rows.Bind(2, query.job.value);
  rows.Bind(query.job.empty() ? 2 : 3, std::int64_t{query.limit});
  std::vector<EventRecord> found;
  MUSTER_RETURN_IF_ERROR(ReadRecords(rows, found));
  return found;
}

}  // namespace muster
