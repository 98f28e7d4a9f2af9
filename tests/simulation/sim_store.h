// SimStore: the coordinator's disk. The real JournalStore, with its commit queue, journal and
// record codec, over files in memory; a group of commits takes its time. A crash keeps what is
// durable and, of the group under way, as many of its file operations as chance will have it: its
// outcome is unknown to the caller. The next coordinator takes the journal over under a higher
// epoch.
//
// Commit and Load are virtual so that a planted bug can be another disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/store/journal_store.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"
#include "tests/simulation/sim_disk.h"

namespace muster::sim {

class SimStore : public Store {
 public:
  SimStore(EventQueue& queue, Random& random);

  // Once after each crash.
  Result<StoredState> Load() override;
  // `done` runs when the batch is durable, or its group could not be written; never before Commit
  // returns.
  void Commit(std::vector<StoreOperation> operations, Done done) override;
  void ReadEvents(EventQuery query, EventsDone done) override;
  void ReadArchive(ArchiveQuery query, ArchiveDone done) override;
  void ReadAudit(AuditQuery query, AuditDone done) override;

  // Power is cut.
  void Crash();
  std::uint64_t epoch() const { return journal_->epoch(); }
  // Commits take much longer until `until`.
  void SlowUntil(TimePoint until) { slow_until_ = until; }
  // The next group of commits fails.
  void FailNext(bool fails) { disk_->FailNext(fails); }

  // Records that are durable.
  const JobRecord* FindJob(const JobId& id) const;
  std::vector<CheckpointRecord> Checkpoints(const JobId& job) const;
  // Results of reading archived checkpoints again that are durable.
  std::size_t archive_scrubs() const { return archive_scrubs_; }
  std::uint64_t Hash() const;
  // Whose usage is durable: queues, and users of queues.
  const std::set<std::string>& usage() const { return usage_; }
  // The audit trail follows itself, and has the submit of every job.
  Status CheckAudit() const;

 protected:
  EventQueue& queue_;
  Random& random_;
  std::uint64_t life_ = 0;  // rises with every crash

 private:
  struct ArchiveRead {
    ArchiveQuery query;
    ArchiveDone done;
  };

  void Open();
  void BeginGroup();
  void FinishGroup();
  Duration Latency();
  void Note(const StoreOperation& operation);
  void ReadAuditAgain();

  const std::shared_ptr<SimDisk> disk_ = std::make_shared<SimDisk>();
  std::unique_ptr<JournalStore> journal_;
  StoredState loaded_;  // of this journal's beginning, until Load
  bool writing_ = false;
  // For the group under way.
  std::vector<CommitBatch> waiting_;
  std::vector<ArchiveRead> waiting_reads_;
  int reads_ = 0;  // in the group under way
  TimePoint slow_until_;
  std::size_t archive_scrubs_ = 0;
  // What is durable, archived jobs included.
  std::map<JobId, JobRecord> jobs_;
  std::map<JobId, std::map<std::string, CheckpointRecord>> checkpoints_;
  std::set<std::string> usage_;
  AuditVerifier audit_;
  Status audit_broken_;
  std::set<std::string> submitted_;  // "job ID" of all entries that there ever were
};

}  // namespace muster::sim
