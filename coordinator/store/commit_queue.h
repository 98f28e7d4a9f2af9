// CommitQueue: what stores that write to files have in common: one thread that does all the work,
// commits in groups, and is poisoned by the first failure.
//
// Owned by a store, which implements CommitBackend and outlives the queue. Commits that wait while
// the thread is busy are written as one group, so the cost of the disk is per group, not per
// decision. A read sees all commits before it, and goes a page at a time with the commits that have
// come meanwhile in between, so that a long one delays none of them by more than a page.
//
// Commit and ReadEvents may be called from any one thread; the backend's functions and every
// callback run on the queue's thread, those of commits in the order of the calls, and so are those
// of reads.
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
  // kPageEvents at most are asked for.
  virtual Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) = 0;
  // After a group's callbacks: what need not hold up anybody's answer.
  virtual void AfterGroup() {}
  // While nothing is to do, every so often: a failure poisons as a failed group does.
  virtual Status Watch() { return OkStatus(); }
};

struct CommitQueueOptions {
  std::string path;  // for messages
  // Commits; more poison the store, for none may be dropped. Whoever commits asks less of a disk
  // that stalls long before; how many reads wait is up to the caller too.
  std::size_t max_queued = 10000;
};

class CommitQueue {
 public:
  static constexpr int kPageEvents = 256;  // that a read takes at once

  CommitQueue(CommitBackend& backend, CommitQueueOptions options);
  // Finishes what is queued.
  ~CommitQueue();
  CommitQueue(const CommitQueue&) = delete;
  CommitQueue& operator=(const CommitQueue&) = delete;

  void Start();
  void Commit(std::vector<StoreOperation> operations, Store::Done done);
  void ReadEvents(EventQuery query, Store::EventsDone done);
  // From now on the backend watches, each `interval` without work. `on_failure`, at most once, says
  // that it failed.
  void Watch(Duration interval, Store::Done on_failure);

  // Groups written so far; fewer than commits where commits waited. Thread-safe.
  std::uint64_t groups() const { return groups_; }

 private:
  struct Read {
    EventQuery query;  // for what is still to be found
    Store::EventsDone done;
    std::vector<EventRecord> found = {};
  };
  using Work = std::variant<CommitBatch, Read>;

  void Enqueue(Work work);
  bool AwaitWork(std::deque<Work>* work, bool* overflowed);
  void WatchOnce();
  void Run();
  bool ReadPage(Read* read);
  void CommitGroup(std::vector<CommitBatch> group);

  CommitBackend& backend_;
  const CommitQueueOptions options_;
  // Of the queue's thread.
  Status poison_;
  std::deque<Read> reads_;  // the first one may be under way

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
