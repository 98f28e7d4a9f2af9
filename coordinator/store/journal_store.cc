#include "coordinator/store/journal_store.h"

#include <string>
#include <utility>

namespace muster {

Result<std::unique_ptr<JournalStore>> JournalStore::Open(JournalStoreOptions options) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal,
                          Journal::Open(*options.files, options.journal));
  const bool own_thread = options.own_thread;
  std::unique_ptr<JournalStore> store(new JournalStore(std::move(journal), std::move(options)));
  if (own_thread) store->queue_.Start();
  return store;
}

JournalStore::JournalStore(std::unique_ptr<Journal> journal, JournalStoreOptions options)
    : files_(std::move(options.files)),
      journal_(std::move(journal)),
      epoch_(journal_->epoch()),
      queue_(*this, {.path = options.journal.dir, .max_queued = options.max_queued}) {}

Result<StoredState> JournalStore::Load() {
  // The thread is idle: nothing was committed yet.
  return journal_->image().Load(kLoadedEvents);
}

void JournalStore::Commit(std::vector<StoreOperation> operations, Done done) {
  queue_.Commit(std::move(operations), std::move(done));
}

void JournalStore::ReadEvents(EventQuery query, EventsDone done) {
  queue_.ReadEvents(std::move(query), std::move(done));
}

void JournalStore::ReadArchive(ArchiveQuery query, ArchiveDone done) {
  queue_.ReadArchive(std::move(query), std::move(done));
}

void JournalStore::ReadAudit(AuditQuery query, AuditDone done) {
  queue_.ReadAudit(query, std::move(done));
}

Result<std::vector<ArchivedRecords>> JournalStore::SelectArchived(const ArchiveQuery& query) {
  return journal_->image().SelectArchived(query);
}

Result<std::vector<std::string>> JournalStore::SelectAudit(const AuditQuery& query) {
  return journal_->image().SelectAudit(query);
}

void JournalStore::WatchFence(Duration interval, Done on_fenced) {
  queue_.Watch(interval, std::move(on_fenced));
}

Status JournalStore::WriteGroup(const std::vector<CommitBatch>& group) {
  std::string payload;
  for (const CommitBatch& batch : group) {
    for (const StoreOperation& operation : batch.operations) AppendOperation(operation, &payload);
  }
  return payload.empty() ? OkStatus() : journal_->Append(payload);
}

Result<std::vector<EventRecord>> JournalStore::SelectEvents(const EventQuery& query) {
  return journal_->image().SelectEvents(query);
}

}  // namespace muster
