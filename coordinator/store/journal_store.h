// JournalStore: the Store in a journal (journal.h) on a shared file system, for coordinators that
// take over from each other on several nodes.
//
// One thread of its own, or its owner, does all the work (commit_queue.h): a group of commits is
// one file of the journal. When another coordinator takes over, the next commit fails with kAborted
// and the store is poisoned; WatchFence also reports that if there is nothing to commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/store/commit_queue.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/store.h"

namespace muster {

struct JournalStoreOptions {
  JournalOptions journal;          // `warn` is called on the store's thread
  std::size_t max_queued = 10000;  // commits; a slower disk than that poisons the store
  std::shared_ptr<JournalFiles> files = std::make_shared<PosixJournalFiles>();
  bool own_thread = true;  // false: nothing is done but by RunOnce
};

class JournalStore final : public Store, private CommitBackend {
 public:
  // Every older coordinator is fenced when it returns OK. Fails as Journal::Open does.
  static Result<std::unique_ptr<JournalStore>> Open(JournalStoreOptions options);
  JournalStore(const JournalStore&) = delete;
  JournalStore& operator=(const JournalStore&) = delete;

  Result<StoredState> Load() override;
  void Commit(std::vector<StoreOperation> operations, Done done) override;
  void ReadEvents(EventQuery query, EventsDone done) override;
  void ReadArchive(ArchiveQuery query, ArchiveDone done) override;
  void ReadAudit(AuditQuery query, AuditDone done) override;

  // As CommitQueue::RunOnce; only without a thread.
  void RunOnce() { queue_.RunOnce(); }

  // Checks every `interval` in which nothing is committed. `on_fenced`, at most once, on the
  // store's thread; it only posts.
  void WatchFence(Duration interval, Done on_fenced);

  // Epoch of this coordinator; higher than that of any before it.
  std::uint64_t epoch() const { return epoch_; }
  // Groups written so far. Thread-safe.
  std::uint64_t groups() const { return queue_.groups(); }

 private:
  JournalStore(std::unique_ptr<Journal> journal, JournalStoreOptions options);
  Status WriteGroup(const std::vector<CommitBatch>& group) override;
  Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) override;
  Result<std::vector<ArchivedRecords>> SelectArchived(const ArchiveQuery& query) override;
  Result<std::vector<std::string>> SelectAudit(const AuditQuery& query) override;
  void AfterGroup() override { journal_->CompactIfDue(); }
  Status Watch() override { return journal_->CheckFence(); }

  const std::shared_ptr<JournalFiles> files_;
  const std::unique_ptr<Journal> journal_;
  const std::uint64_t epoch_;
  CommitQueue queue_;  // last: its thread uses the others
};

}  // namespace muster
