// CommitQueue: the common part of stores that write to files: one thread that does all the work,
// commits in groups, and is poisoned by the first failure. Without Start there is no thread, and
// the owner does the work by RunOnce: so does the simulation.
//
// Owned by a store, which implements CommitBackend and outlives the queue. Commits that wait while
// the thread is busy are written as one group, so the cost of the disk is per group, not per
// decision. A read sees all commits before it. It goes a page at a time, with the commits that
// arrived in the meantime in between, so that a long one delays none of them by more than a page.
//
// Commit and the reads may be called from any one thread; the backend's functions and every
// callback run on the queue's thread. Callbacks of commits run in the order of the calls, and so do
// those of reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/store/store.h"

namespace muster {

struct CommitBatch {
  std::vector<StoreOperation> operations;
  Store::Done done;
};

class CommitBackend {
 public:
  virtual ~CommitBackend() = default;
  // Makes all operations of the group durable, or fails; after a failure nothing is called again.
  virtual Status WriteGroup(const std::vector<CommitBatch>& group) = 0;
  // At most kPageEvents are requested.
  virtual Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) = 0;
  // At most kPageArchived jobs are requested.
  virtual Result<std::vector<ArchivedRecords>> SelectArchived(const ArchiveQuery& query) = 0;
  // At most kPageAudit lines are requested.
  virtual Result<std::vector<std::string>> SelectAudit(const AuditQuery& query) = 0;
  // After a group's callbacks: work that must not delay an answer.
  virtual void AfterGroup() {}
  // While there is nothing to do, at an interval: a failure poisons as a failed group does.
  virtual Status Watch() { return OkStatus(); }
};

struct CommitQueueOptions {
  std::string path;  // for messages
  // Limit of commits; more poison the store, because none may be dropped. The caller reduces its
  // load on a stalled disk long before; it also limits how many reads wait.
  std::size_t max_queued = 10000;
};

class CommitQueue {
 public:
  static constexpr int kPageEvents = 256;  // that a read takes at once
  static constexpr int kPageArchived = 256;
  static constexpr int kPageAudit = 1000;

  CommitQueue(CommitBackend& backend, CommitQueueOptions options);
  // Finishes what is queued.
  ~CommitQueue();
  CommitQueue(const CommitQueue&) = delete;
  CommitQueue& operator=(const CommitQueue&) = delete;

  void Start();
  // All commits that wait, as one group, then a page of the first read. Not beside the thread.
  void RunOnce();
  void Commit(std::vector<StoreOperation> operations, Store::Done done);
  void ReadEvents(EventQuery query, Store::EventsDone done);
  void ReadArchive(ArchiveQuery query, Store::ArchiveDone done);
  void ReadAudit(AuditQuery query, Store::AuditDone done);
  // From now on the backend watches, each `interval` without work. `on_failure`, at most once,
  // reports that it failed.
  void Watch(Duration interval, Store::Done on_failure);

  // Groups written so far; fewer than commits where commits waited. Thread-safe.
  std::uint64_t groups() const { return groups_; }

 private:
  struct Read {
    EventQuery query;  // for what is still to be found
    Store::EventsDone done;
    std::vector<EventRecord> found = {};
  };
  struct ArchiveRead {
    ArchiveQuery query;
    Store::ArchiveDone done;
  };
  struct AuditRead {
    AuditQuery query;
    Store::AuditDone done;
  };
  using AnyRead = std::variant<Read, ArchiveRead, AuditRead>;
  using Work = std::variant<CommitBatch, AnyRead>;

  enum class Next { kWork, kWatch, kEnd };

  void Enqueue(Work work);
  Next AwaitWork();
  std::vector<CommitBatch> TakeQueued();
  void WatchOnce();
  void Run();
  bool ReadPage(Read* read);
  bool ReadPage(ArchiveRead* read);
  bool ReadPage(AuditRead* read);
  void CommitGroup(std::vector<CommitBatch> group);

  CommitBackend& backend_;
  const CommitQueueOptions options_;
  // For the queue's thread only.
  Status poison_;
  std::deque<AnyRead> reads_;  // the first one may be under way

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::size_t commits_ = 0;  // of queue_
  bool overflowed_ = false;  // there were too many once
  bool stopping_ = false;
  Duration watch_interval_ = Duration::max();  // max(): never
  Store::Done on_failed_watch_;
  std::atomic<std::uint64_t> groups_ = 0;
  std::thread thread_;
};

}  // namespace muster
