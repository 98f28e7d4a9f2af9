#include "coordinator/store/testing/memory_store.h"

#include <iterator>
#include <type_traits>
#include <variant>

namespace muster {

Result<StoredState> MemoryStore::Load() {
  StoredState state;
  for (const auto& [key, record] : jobs_) state.jobs.push_back(record);
  for (const auto& [key, record] : attempts_) state.attempts.push_back(record);
  for (const auto& [key, record] : checkpoints_) state.checkpoints.push_back(record);
  for (const auto& [key, record] : nodes_) state.nodes.push_back(record);
  auto first = events_.begin();
  if (events_.size() > kLoadedEvents) std::advance(first, events_.size() - kLoadedEvents);
  for (; first != events_.end(); ++first) state.events.push_back(first->second);
  for (const auto& [id, records] : archive_) state.archived.push_back(ArchivedJobOf(records.job));
  state.archived_time = archived_time_;
  state.queues = queues_;
  state.users = users_;
  if (!audit_.empty()) state.audit = *AuditHeadOf(audit_.rbegin()->second);
  for (const auto& [name, secret] : secrets_) state.secrets.push_back(secret);
  state.queue_usage = queue_usage_;
  for (const auto& [key, record] : queue_days_) state.queue_days.push_back(record);
  return state;
}

void MemoryStore::Commit(std::vector<StoreOperation> operations, Done done) {
  Batch batch{std::move(operations), std::move(done)};
  if (holding_) {
    held_.push_back(std::move(batch));
  } else {
    CommitNow(std::move(batch));
  }
}

void MemoryStore::ReleaseHeld() {
  holding_ = false;
  std::deque<Batch> held = std::move(held_);
  held_.clear();
  for (Batch& batch : held) CommitNow(std::move(batch));
}

void MemoryStore::CommitNow(Batch batch) {
  if (poison_.ok() && !failure_.ok()) poison_ = std::exchange(failure_, OkStatus());
  if (!poison_.ok()) return batch.done(poison_);
  for (StoreOperation& operation : batch.operations) Apply(std::move(operation));
  batch.done(OkStatus());
}

void MemoryStore::Apply(StoreOperation operation) {
  std::visit(
      [this](auto&& op) {
        using T = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<T, PutJob>) {
          jobs_[op.job.id] = std::move(op.job);
        } else if constexpr (std::is_same_v<T, PutAttempt>) {
          attempts_[{op.attempt.job, op.attempt.generation}] = std::move(op.attempt);
        } else if constexpr (std::is_same_v<T, PutCheckpoint>) {
          checkpoints_[{op.checkpoint.job, op.checkpoint.directory}] = std::move(op.checkpoint);
        } else if constexpr (std::is_same_v<T, DeleteCheckpoint>) {
          checkpoints_.erase({op.job, op.directory});
        } else if constexpr (std::is_same_v<T, PutNode>) {
          nodes_[op.node.name] = std::move(op.node);
        } else if constexpr (std::is_same_v<T, DeleteNode>) {
          nodes_.erase(op.node);
        } else if constexpr (std::is_same_v<T, ArchiveJob>) {
          Archive(op.job.id);
        } else if constexpr (std::is_same_v<T, DeleteArchivedJob>) {
          archive_.erase(op.job);
        } else if constexpr (std::is_same_v<T, PutArchivedJob>) {
          if (archive_.contains(op.job.id)) archive_[op.job.id].job = std::move(op.job);
        } else if constexpr (std::is_same_v<T, PutArchivedCheckpoint>) {
          PutArchived(std::move(op.checkpoint));
        } else if constexpr (std::is_same_v<T, PutArchivedTime>) {
          archived_time_ = op.micros;
        } else if constexpr (std::is_same_v<T, PutQueues>) {
          queues_ = std::move(op.queues);
        } else if constexpr (std::is_same_v<T, PutUsers>) {
          users_ = std::move(op.users);
        } else if constexpr (std::is_same_v<T, AppendAudit>) {
          audit_[op.seq] = std::move(op.line);
        } else if constexpr (std::is_same_v<T, PutSecret>) {
          secrets_[op.secret.secret] = std::move(op.secret);
        } else if constexpr (std::is_same_v<T, DeleteSecret>) {
          secrets_.erase(op.secret);
        } else if constexpr (std::is_same_v<T, PutQueueUsage>) {
          queue_usage_[op.queue] = op.usage;
        } else if constexpr (std::is_same_v<T, DeleteQueueUsage>) {
          queue_usage_.erase(op.queue);
        } else if constexpr (std::is_same_v<T, PutQueueDay>) {
          queue_days_[{KeyOf(op.record), op.record.day}] = op.record;
        } else if constexpr (std::is_same_v<T, DeleteQueueDay>) {
          queue_days_.erase({op.queue, op.day});
        } else {
          static_assert(std::is_same_v<T, AppendEvent>);
          events_[op.event.seq] = std::move(op.event);
        }
      },
      std::move(operation));
}

void MemoryStore::Archive(const JobId& id) {
  ArchivedRecords& to = archive_[id];
  to.job = std::move(jobs_.extract(id).mapped());
  const auto of_job = [&id](const auto& each) { return each.first.first == id; };
  for (const auto& [key, attempt] : attempts_)
    if (key.first == id) to.attempts.push_back(attempt);
  for (const auto& [key, checkpoint] : checkpoints_)
    if (key.first == id) to.checkpoints.push_back(checkpoint);
  std::erase_if(attempts_, of_job);
  std::erase_if(checkpoints_, of_job);
}

void MemoryStore::PutArchived(CheckpointRecord checkpoint) {
  if (!archive_.contains(checkpoint.job)) return;
  for (CheckpointRecord& each : archive_[checkpoint.job].checkpoints)
    if (each.directory == checkpoint.directory) each = checkpoint;
}

void MemoryStore::ReadArchive(ArchiveQuery query, ArchiveDone done) {
  done(Select(archive_, query));
}

void MemoryStore::ReadAudit(AuditQuery query, AuditDone done) {
  std::vector<std::string> found;
  for (auto it = audit_.upper_bound(query.after_seq);
       it != audit_.end() && static_cast<int>(found.size()) < query.limit; ++it)
    found.push_back(it->second);
  done(std::move(found));
}

void MemoryStore::ReadEvents(EventQuery query, EventsDone done) {
  std::vector<EventRecord> found;
  for (auto it = events_.upper_bound(query.after_seq);
       it != events_.end() && static_cast<int>(found.size()) < query.limit; ++it) {
    if (query.job.empty() || it->second.job == query.job) found.push_back(it->second);
  }
  done(std::move(found));
}

}  // namespace muster
