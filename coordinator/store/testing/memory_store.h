// MemoryStore: a Store in memory only. For tests: commits can be held back, to see
// what waits for them, and made to fail. A copy is the store of a coordinator that was killed then.
//
// One thread calls everything; `done` runs inside Commit or ReleaseHeld.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/store/records_of_jobs.h"
#include "coordinator/store/store.h"

namespace muster {

class MemoryStore : public Store {
 public:
  Result<StoredState> Load() override;
  void Commit(std::vector<StoreOperation> operations, Done done) override;
  void ReadEvents(EventQuery query, EventsDone done) override;
  void ReadArchive(ArchiveQuery query, ArchiveDone done) override;
  void ReadAudit(AuditQuery query, AuditDone done) override;
  bool IsCurrent() const override { return current_; }
  Status CheckRoom() const override { return room_; }

  // From now on commits wait for ReleaseHeld, as they would for a slow disk.
  void Hold() { holding_ = true; }
  void ReleaseHeld();
  // The next commit fails with `status`, and poisons the store.
  void FailNext(Status status) { failure_ = std::move(status); }
  // As a store that other processes share.
  void SetCurrent(bool current) { current_ = current; }
  void SetRoom(Status room) { room_ = std::move(room); }
  const RecordsOfJobs& archive() const { return archive_; }

 private:
  struct Batch {
    std::vector<StoreOperation> operations;
    Done done;
  };
  void CommitNow(Batch batch);
  void Apply(StoreOperation operation);
  void Archive(const JobId& id);
  void PutArchived(CheckpointRecord checkpoint);

  bool holding_ = false;
  std::deque<Batch> held_;
  Status failure_;
  Status poison_;
  bool current_ = true;
  Status room_;

  std::map<JobId, JobRecord> jobs_;
  std::map<std::pair<JobId, Generation>, AttemptRecord> attempts_;
  std::map<std::pair<JobId, std::string>, CheckpointRecord> checkpoints_;
  std::map<NodeName, NodeRecord> nodes_;
  std::map<std::uint64_t, EventRecord> events_;
  RecordsOfJobs archive_;
  RankMicros archived_time_ = {};
  QueuesRecord queues_;
  UsersRecord users_;
  std::map<std::uint64_t, std::string> audit_;
  std::map<SecretName, SecretRecord> secrets_;
  std::map<std::string, double> queue_usage_;
  std::map<std::pair<std::string, std::int64_t>, QueueDayRecord> queue_days_;
};

}  // namespace muster
