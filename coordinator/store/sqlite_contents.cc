#include "coordinator/store/sqlite_contents.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <string>
#include <utility>

#include "common/base/files.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/sqlite_store.h"

namespace muster {
namespace {

using Kind = JournalOperation::Kind;

constexpr std::size_t kAtOnce = 1000;  // operations of a commit

std::uint64_t Unsigned(std::int64_t value) { return static_cast<std::uint64_t>(value); }

// One reading of a file, in one transaction.
class Reading {
 public:
  Reading(SqliteDatabase& database, const RecordsProgress& progress)
      : database_(database), progress_(progress) {}

  Result<StoreContents> All();

 private:
  // Columns of a row that are an operation's key, number, name and text, in this order; -1: none.
  struct Columns {
    int key = -1, number = -1, name = -1, text = -1;
  };
  Result<std::int64_t> Number(const std::string& query);
  // Nothing where there is no such table: an earlier version wrote the file.
  Status Rows(const std::string& table, const std::string& query,
              const std::function<void(SqliteStatement&)>& add);
  Status Put(Kind kind, const std::string& table, const std::string& columns, Columns at);
  Status ArchivedJobs();

  SqliteDatabase& database_;
  const RecordsProgress& progress_;
  StoreContents contents_;
  std::uint64_t records_ = 0;
};

Result<std::int64_t> Reading::Number(const std::string& query) {
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement row, database_.Prepare(query));
  MUSTER_ASSIGN_OR_RETURN(const bool found, row.Next());
  return found ? row.Int(0) : 0;
}

Status Reading::Rows(const std::string& table, const std::string& query,
                     const std::function<void(SqliteStatement&)>& add) {
  MUSTER_ASSIGN_OR_RETURN(
      const std::int64_t there,
      Number("SELECT count(*) FROM sqlite_master WHERE type='table' AND name='" + table + "'"));
  if (there == 0) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement rows, database_.Prepare(query + " FROM " + table));
  for (;;) {
    Result<bool> more = rows.Next();
    if (!more.ok()) return more.status().WithContext("table " + table);
    if (!*more) return OkStatus();
    add(rows);
    if (++records_ % kAtOnce == 0) MUSTER_RETURN_IF_ERROR(progress_(records_));
  }
}

Status Reading::Put(Kind kind, const std::string& table, const std::string& columns, Columns at) {
  return Rows(table, "SELECT " + columns, [&](SqliteStatement& row) {
    const auto text = [&row](int column) { return column < 0 ? std::string() : row.Text(column); };
    const std::string key = text(at.key), name = text(at.name), record = text(at.text);
    const std::uint64_t number = at.number < 0 ? 0 : Unsigned(row.Int(at.number));
    AppendOperation({kind, number, key, name, record}, &contents_.payload);
  });
}

// A state that no version has names is left to who reads the index.
Status Reading::ArchivedJobs() {
  return Rows("jobs_archive",
              "SELECT id, state, submit_order, ended_unix_ms, key_print, spec_print",
              [this](SqliteStatement& row) {
                ArchivedJob job{.id = JobId{row.Text(0)},
                                .submit_order = Unsigned(row.Int(2)),
                                .ended_unix_ms = row.Int(3),
                                .key_print = Unsigned(row.Int(4)),
                                .spec_print = Unsigned(row.Int(5))};
                job.state = JobState::kQueued;  // which no archived job has
                for (int i = 1; i <= kJobStateCount; ++i)
                  if (Name(static_cast<JobState>(i)) == row.Text(1))
                    job.state = static_cast<JobState>(i);
                AppendOperation(ArchiveJob{std::move(job)}, &contents_.payload);
              });
}

Result<StoreContents> Reading::All() {
  MUSTER_RETURN_IF_ERROR(database_.Execute("BEGIN"));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t has_tables,
                          Number("SELECT count(*) FROM sqlite_master WHERE name='meta'"));
  if (has_tables == 0) return StoreContents{};
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t schema,
                          Number("SELECT value FROM meta WHERE key='schema'"));
  MUSTER_RETURN_IF_ERROR(CheckSqliteSchema(schema));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t epoch,
                          Number("SELECT value FROM meta WHERE key='epoch'"));
  contents_.epoch = Unsigned(epoch);
  // Records first, then that they are archived, then those of the jobs that are not.
  const Columns keyed{.key = 0, .text = 1};
  const Columns numbered{.key = 0, .number = 1, .text = 2};
  const Columns named{.key = 0, .name = 1, .text = 2};
  for (const std::string archive : {"_archive", ""}) {
    MUSTER_RETURN_IF_ERROR(Put(Kind::kPutJob, "jobs" + archive, "id, record", keyed));
    MUSTER_RETURN_IF_ERROR(
        Put(Kind::kPutAttempt, "attempts" + archive, "job, generation, record", numbered));
    MUSTER_RETURN_IF_ERROR(
        Put(Kind::kPutCheckpoint, "checkpoints" + archive, "job, directory, record", named));
    if (!archive.empty()) MUSTER_RETURN_IF_ERROR(ArchivedJobs());
  }
  const Columns only{.text = 0};
  MUSTER_RETURN_IF_ERROR(Put(Kind::kPutArchivedTime, "archived_time", "record", only));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kPutNode, "nodes", "name, record", keyed));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kPutQueues, "queues", "record", only));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kPutUsers, "users", "record", only));
  MUSTER_RETURN_IF_ERROR(
      Put(Kind::kPutSecret, "secrets", "owner, queue || '/' || name, record", named));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kPutQueueUsage, "queue_usage", "queue, record", keyed));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kPutQueueDay, "queue_days", "queue, day, record", numbered));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kAppendEvent, "events", "job, seq, record", numbered));
  MUSTER_RETURN_IF_ERROR(Put(Kind::kAppendAudit, "audit", "seq, line", {.number = 0, .text = 1}));
  return InOrder(std::move(contents_), std::numeric_limits<std::uint64_t>::max());
}

Status CommitAll(SqliteStore& store, std::vector<StoreOperation> operations,
                 const RecordsProgress& progress) {
  for (std::size_t begin = 0; begin < operations.size(); begin += kAtOnce) {
    const auto from = operations.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(std::min(kAtOnce, operations.size() - begin));
    std::promise<Status> done;
    store.Commit({std::move_iterator(from), std::move_iterator(from + count)},
                 [&done](const Status& status) { done.set_value(status); });
    MUSTER_RETURN_IF_ERROR(done.get_future().get());
    MUSTER_RETURN_IF_ERROR(progress(begin + static_cast<std::uint64_t>(count)));
  }
  return OkStatus();
}

void RemoveDatabase(const std::string& path) {
  for (const char* part : {"", "-wal", "-shm"}) ::unlink((path + part).c_str());
}

// Who closes a database last moves its log into it, and hears whether that succeeded. The log of
// one that is replaced must not be taken for the new one's, and the new one moves without its log.
Status CloseForGood(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(path));
  return database.Execute("PRAGMA journal_mode=DELETE");
}

Status MakeDatabase(const std::string& path, const StoreContents& contents,
                    const RecordsProgress& progress) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<StoreOperation> operations, OperationsOf(contents));
  {
    MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteStore> store,
                            SqliteStore::Open({.path = path}));
    MUSTER_RETURN_IF_ERROR(CommitAll(*store, std::move(operations), progress));
  }
  {
    MUSTER_ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(path));
    MUSTER_RETURN_IF_ERROR(
        database.Execute("PRAGMA synchronous=FULL; INSERT OR REPLACE INTO meta VALUES('epoch'," +
                         std::to_string(contents.epoch) + ")"));
  }
  return CloseForGood(path);
}

}  // namespace

Result<StoreContents> ReadSqliteStore(const std::string& path, const RecordsProgress& progress) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return NotFound(path + " is not there; name the coordinator's --dir, --etcd or --journal");
  Result<SqliteDatabase> database = SqliteDatabase::OpenToRead(path);
  if (!database.ok()) return database.status();
  Result<StoreContents> contents = Reading(*database, progress).All();
  if (contents.ok()) return contents;
  if (contents.status().code() == StatusCode::kUnavailable)
    return Unavailable(path +
                       " is locked by the coordinator of an earlier version; stop that first");
  return contents.status().WithContext(path);
}

Result<LockedRecord> LockForWriting(const std::string& path) {
  Result<LockedRecord> lock = LockDatabase(path);
  if (lock.status().code() == StatusCode::kUnavailable)
    return FailedPrecondition(path + " has a coordinator; stop that first");
  return lock;
}

Status WriteSqliteStore(const std::string& path, const StoreContents& contents,
                        IfNotEmpty if_not_empty, const RecordsProgress& progress) {
  const std::string partial = path + ".partial";
  const std::string replaced = path + ".replaced";
  const std::string dir = std::filesystem::path(path).parent_path().string();
  MUSTER_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
  MUSTER_ASSIGN_OR_RETURN(const LockedRecord lock, LockForWriting(path));
  std::error_code error;
  const bool there = std::filesystem::file_size(path, error) > 0;  // else it was made by the lock
  if (there) {
    MUSTER_ASSIGN_OR_RETURN(const StoreContents before, ReadSqliteStore(path, progress));
    if (!before.payload.empty() && if_not_empty == IfNotEmpty::kRefuse)
      return AlreadyExists(path +
                           " has records already; --replace replaces them, and keeps the "
                           "file as " +
                           replaced);
  }
  RemoveDatabase(partial);  // of one that was killed
  if (const Status made = MakeDatabase(partial, contents, progress); !made.ok()) {
    RemoveDatabase(partial);
    return made;
  }
  if (there) {
    MUSTER_RETURN_IF_ERROR(CloseForGood(path));
    ::unlink(replaced.c_str());
    if (::link(path.c_str(), replaced.c_str()) != 0)
      return ErrnoStatus(errno, "link " + path + " to " + replaced);
  } else {
    // SQLite would apply the log of a store that was moved away to the new one.
    for (const char* part : {"-wal", "-shm"}) ::unlink((path + part).c_str());
  }
  if (::rename(partial.c_str(), path.c_str()) != 0)
    return ErrnoStatus(errno, "rename " + partial + " to " + path);
  return SyncDirectory(dir);
}

}  // namespace muster
