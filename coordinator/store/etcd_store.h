// EtcdStore: the Store in an etcd, for coordinators on several machines of which one leads.
//
// One thread of its own does all the work (commit_queue.h): commits that wait together share a
// transaction as far as etcd's limits allow. Another one keeps the leader key alive. Open waits
// until this process leads. A coordinator that does not lead any more cannot commit: the next
// commit fails with kAborted and poisons the store, and WatchLeadership reports it if there is
// none.
//
// Records lie in etcd; of all it keeps the newest events and an index of the archive in memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/store/commit_queue.h"
#include "coordinator/store/etcd_archive.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"
#include "coordinator/store/etcd_leadership.h"
#include "coordinator/store/etcd_reader.h"
#include "coordinator/store/etcd_writer.h"
#include "coordinator/store/store.h"

namespace muster {

struct EtcdStoreOptions {
  EtcdAccess access;
  std::string prefix = "/muster/";
  EpochClaim claim;  // who leads, for those who wait; but for the epoch
  // A coordinator that is killed is replaced when it has ended; etcd extends it to 2 s at least.
  std::int64_t lease_seconds = 2;
  // While no member answers, nothing is answered here either; after this it is given up.
  Duration ends_unconfirmed = std::chrono::seconds(30);
  Duration answers_within = kEtcdAnswer;  // a request of a coordinator that does not lead yet
  bool allow_unsafe = false;          // a version of etcd that may lose what it has acknowledged
  std::size_t max_queued = 10000;     // commits; a slower etcd than that poisons the store
  std::uint64_t kept_events = 20000;  // a few hundred older ones at most are still there
  std::uint64_t kept_audit = 100000;  // entries of the audit trail; likewise
  // Coordinators that must have exported an event or audit line before it is removed; fewer where
  // there are fewer. 0: none need to.
  std::size_t exports = 0;
  Duration compaction = std::chrono::minutes(5);  // the history of keys goes that often
  // On the thread that opens: EtcdLeadershipOptions'.
  std::function<Status(const EpochClaim* leader)> on_wait = [](const EpochClaim*) {
    return OkStatus();
  };
  // On the thread that opens: what an operator may want to read.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

class EtcdStore final : public Store, private CommitBackend {
 public:
  // Every older coordinator is fenced when it returns OK. kUnavailable: no member answers;
  // kInvalidArgument, kFailedPrecondition: addresses, credentials, versions.
  static Result<std::unique_ptr<EtcdStore>> Open(EtcdStoreOptions options);
  // A commit that waits for room in etcd fails.
  ~EtcdStore() override;
  EtcdStore(const EtcdStore&) = delete;
  EtcdStore& operator=(const EtcdStore&) = delete;

  Result<StoredState> Load() override;
  void Commit(std::vector<StoreOperation> operations, Done done) override;
  void ReadEvents(EventQuery query, EventsDone done) override;
  void ReadArchive(ArchiveQuery query, ArchiveDone done) override;
  void ReadAudit(AuditQuery query, AuditDone done) override;
  bool IsCurrent() const override;
  Status CheckRoom() const override;

  // Checks every `interval` in which nothing is committed. `on_lost`, at most once: this
  // coordinator does not lead any more (kAborted), or no member of etcd answers. `on_change`:
  // IsCurrent or CheckRoom may say something else now. Both on threads of the store; they only
  // post.
  void WatchLeadership(Duration interval, Done on_lost, std::function<void()> on_change);

  // For what others learn of this coordinator. Any thread.
  EtcdLeadership& leadership() { return *leadership_; }
  // Epoch of this coordinator; higher than that of any before it.
  std::uint64_t epoch() const { return leadership_->epoch(); }
  // Transactions so far. Thread-safe.
  std::uint64_t transactions() const { return transactions_; }

 private:
  struct Event {
    JobId job;
    std::string text;
  };

  EtcdStore(EtcdStoreOptions options, std::unique_ptr<EtcdClient> client,
            std::unique_ptr<EtcdLeadership> leadership);
  Status LoadAll(StoredState* state);
  Status LoadJobs(EtcdReader& reader, StoredState* state);
  Status LoadJobEntry(const EtcdEntry& entry, StoredState* state);
  Status LoadQueues(EtcdReader& reader, StoredState* state);
  Status LoadEvents(EtcdReader& reader, StoredState* state);
  Status LoadAudit(EtcdReader& reader, StoredState* state);

  Status WriteGroup(const std::vector<CommitBatch>& group) override;
  Status Add(const StoreOperation& operation, EtcdChanges* changes);
  void AddJob(const JobRecord& job, EtcdChanges* changes);
  void AddEvent(const EventRecord& event, EtcdChanges* changes);
  void AddLine(const AppendAudit& op, EtcdChanges* changes);
  Status Archive(const ArchivedJob& job, EtcdChanges* changes);
  Result<std::vector<EtcdEntry>> EntriesUnder(const std::string& prefix,
                                              const EtcdChanges& changes);
  void ReportChange();
  void AfterGroup() override;
  void Prune();
  void Compact();
  Status Watch() override;

  Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) override;
  Result<std::vector<ArchivedRecords>> SelectArchived(const ArchiveQuery& query) override;
  Result<std::vector<std::string>> SelectAudit(const AuditQuery& query) override;

  const EtcdStoreOptions options_;
  const EtcdKeys keys_;
  const std::unique_ptr<EtcdClient> client_;
  const std::unique_ptr<EtcdLeadership> leadership_;
  std::mutex change_mutex_;
  std::function<void()> on_change_ = [] {};
  EtcdWriter writer_;
  EtcdArchive archive_;
  std::map<std::uint64_t, Event> events_;  // by seq
  std::map<JobId, std::uint64_t> specs_;   // print of the stored job file
  std::uint64_t oldest_event_ = 0;         // in etcd; 0: none
  std::uint64_t oldest_audit_ = 0;         // likewise
  std::uint64_t newest_audit_ = 0;
  TimePoint next_prune_;
  TimePoint next_compaction_;
  std::uint64_t compacted_bytes_ = 0;  // that were written before the last one
  std::int64_t compact_to_ = 0;        // a revision of one compaction ago; 0: none yet
  std::atomic<std::uint64_t> transactions_ = 0;
  CommitQueue queue_;  // last: its thread uses the others
};

}  // namespace muster
