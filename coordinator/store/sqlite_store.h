// SqliteStore: the Store in one SQLite file, on a local disk.
//
// Write-ahead log with synchronous=FULL: a commit is on the disk when `done` says so. One thread of
// its own does all the work; commits that wait while it is busy share its next transaction, so the
// cost of the disk is per transaction, not per decision. The file is locked for as long as the
// store lives. `done` runs on that thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/store.h"

namespace muster {

struct SqliteStoreOptions {
  std::string path;
  std::int64_t max_pages = 0;         // 0: as large as the disk; tests make a full disk with it
  std::size_t max_queued = 10000;     // commits; a slower disk than that poisons the store
  std::int64_t kept_events = 200000;  // older ones are removed when the store is opened
};

class SqliteStore : public Store {
 public:
  // Creates the file if it is missing. kUnavailable: another process holds it;
  // kFailedPrecondition: a newer version of Muster wrote it.
  static Result<std::unique_ptr<SqliteStore>> Open(SqliteStoreOptions options);
  // Finishes what is queued.
  ~SqliteStore() override;
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  Result<StoredState> Load() override;
  void Commit(std::vector<StoreOperation> operations, Done done) override;
  void ReadEvents(EventQuery query, EventsDone done) override;

  // Transactions so far; fewer than commits where commits were grouped. Thread-safe.
  std::uint64_t transactions() const;

 private:
  struct Statements {
    SqliteStatement put_job, put_attempt, put_checkpoint, delete_checkpoint, put_node, put_event;
    SqliteStatement events, events_of_job;
  };
  struct Batch {
    std::vector<StoreOperation> operations;
    Done done;
  };
  struct Read {
    EventQuery query;
    EventsDone done;
  };
  using Work = std::variant<Batch, Read>;

  SqliteStore(SqliteDatabase database, SqliteStoreOptions options);
  Status PrepareStatements();
  void Enqueue(Work work);
  void Run();
  void CommitGroup(std::vector<Batch> group);
  Status WriteGroup(const std::vector<Batch>& group);
  Status Write(const StoreOperation& operation);
  Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query);

  const SqliteStoreOptions options_;
  SqliteDatabase database_;
  Statements statements_;
  Status poison_;  // of the store's thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool overflowed_ = false;  // the queue was full once
  std::uint64_t transactions_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muster
