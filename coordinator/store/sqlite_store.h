// SqliteStore: the Store in one SQLite file, on a local disk.
//
// Write-ahead log with synchronous=FULL: a commit is on the disk when `done` reports it. One thread
// of its own does all the work (commit_queue.h), a transaction per group of commits. One store has
// the file for as long as it lives; others may read it meanwhile (sqlite_contents.h). `done` runs
// on that thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/locked_record.h"
#include "coordinator/store/commit_queue.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/store.h"

namespace muster {

struct SqliteStoreOptions {
  std::string path;
  std::int64_t max_pages = 0;         // 0: limited by the disk; tests simulate a full disk with it
  std::size_t max_queued = 10000;     // commits; a slower disk than that poisons the store
  std::int64_t kept_events = 200000;  // a few hundred older ones at most are still there
  std::int64_t kept_audit = 1000000;  // entries of the audit trail; likewise
  std::function<void(const std::string&)> note = {};  // what a person should know
};

class SqliteStore final : public Store, private CommitBackend {
 public:
  // Creates the file if it is missing. kUnavailable: another process holds it;
  // kFailedPrecondition: a newer version of Muster wrote it.
  static Result<std::unique_ptr<SqliteStore>> Open(SqliteStoreOptions options);
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  Result<StoredState> Load() override;
  void Commit(std::vector<StoreOperation> operations, Done done) override;
  void ReadEvents(EventQuery query, EventsDone done) override;
  void ReadArchive(ArchiveQuery query, ArchiveDone done) override;
  void ReadAudit(AuditQuery query, AuditDone done) override;

  // What workers remember of this coordinator: 0 unless the file was restored, or migrated from
  // a store that counts epochs.
  std::uint64_t epoch() const { return epoch_; }
  // Transactions so far; fewer than commits where commits were grouped. Thread-safe.
  std::uint64_t transactions() const { return queue_.groups(); }

 private:
  struct Statements {
    SqliteStatement put_job, put_attempt, put_checkpoint, delete_checkpoint, put_node, put_event;
    SqliteStatement delete_events, delete_node, put_archived_time;
    SqliteStatement put_queues, put_secret, delete_secret, put_queue_usage, delete_queue_usage;
    SqliteStatement put_queue_day, delete_queue_day;
    SqliteStatement put_users, put_audit, delete_audit, audit;
    // Each moves or deletes the rows of one job in one table.
    SqliteStatement archive_job;
    std::vector<SqliteStatement> archive_rest, delete_archived;
    SqliteStatement put_archived_job, put_archived_checkpoint, output_owner;
    SqliteStatement archived, archived_named, archived_page, archived_attempts,
        archived_checkpoints;
    SqliteStatement events, events_of_job;
  };

  SqliteStore(LockedRecord lock, SqliteDatabase database, const SqliteStoreOptions& options);
  Status PrepareStatements();
  Status PrepareArchiveStatements();
  Status Archive(const ArchivedJob& job);
  Status DeleteArchived(const JobId& job);
  Status AddRest(ArchivedRecords* records);
  Status ReadEpoch();
  Status FindOldest();
  Status WriteGroup(const std::vector<CommitBatch>& group) override;
  Status Write(const StoreOperation& operation);
  // What queues had.
  Status WriteFigures(const PutQueueUsage& op);
  Status WriteFigures(const DeleteQueueUsage& op);
  Status WriteFigures(const PutQueueDay& op);
  Status WriteFigures(const DeleteQueueDay& op);
  Status PruneEvents(std::int64_t appended);
  Status PruneAudit();
  Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) override;
  Result<std::vector<ArchivedRecords>> SelectArchived(const ArchiveQuery& query) override;
  Result<std::vector<std::string>> SelectAudit(const AuditQuery& query) override;

  LockedRecord lock_;  // on the file itself; released after the database
  SqliteDatabase database_;
  Statements statements_;
  std::uint64_t epoch_ = 0;
  const std::int64_t kept_events_;
  const std::int64_t kept_audit_;
  std::int64_t oldest_event_ = 0;  // the oldest that still exists
  std::int64_t newest_event_ = 0;
  std::int64_t oldest_audit_ = 0;  // likewise
  std::int64_t newest_audit_ = 0;
  CommitQueue queue_;  // last: its thread uses the others
};

// Whether this version reads a file of that schema. kFailedPrecondition names both.
Status CheckSqliteSchema(std::int64_t schema);
// Makes this process the only one that may write the database. kUnavailable: another one has it.
Result<LockedRecord> LockDatabase(const std::string& path);

}  // namespace muster
