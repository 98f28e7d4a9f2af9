// Store: the durable state of the coordinator.
//
// Owned by the server. Load is called once, before the first Commit; Commit and the reads belong to
// the loop's thread. `done` runs on a thread of the store's choosing, possibly before the call
// returns, those of commits in the order of the calls; it only posts. A read sees every commit
// before it, and delays none behind it. docs/store-format.md has the format.
//
// Invariants: the operations of one Commit become durable all together or not at all, and never
// before those of an earlier Commit. After a Commit has failed the store is poisoned: every later
// one fails too, because the disk may no longer match memory; the process must end and restart from
// what is durable.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/audit/audit_chain.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/status.h"
#include "coordinator/control/effects.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/domain/records.h"

namespace muster {

// Events with seq > after_seq, oldest first.
struct EventQuery {
  JobId job;  // empty: of every job and of the cluster
  std::uint64_t after_seq = 0;
  int limit = 1000;
};

// Reads the archive: one job whole, or a page of jobs without attempts, checkpoints and owner.
struct ArchiveQuery {
  JobId job;
  std::string name;  // if `job` is empty: the newest job of this name
  // If both are empty: a page, the newest submission first.
  // For a page: jobs that were submitted before the one with this submit_order.
  std::uint64_t before_order = std::numeric_limits<std::int64_t>::max();
  int limit = 256;

  bool is_page() const { return job.empty() && name.empty(); }
};

// Lines of the audit trail with seq > after_seq, oldest first.
struct AuditQuery {
  std::uint64_t after_seq = 0;
  int limit = 1000;
};

class Store {
 public:
  using Done = std::function<void(const Status&)>;
  using EventsDone = std::function<void(Result<std::vector<EventRecord>>)>;
  using ArchiveDone = std::function<void(Result<std::vector<ArchivedRecords>>)>;
  using AuditDone = std::function<void(Result<std::vector<std::string>>)>;

  // Events that Load returns: the newest ones.
  static constexpr int kLoadedEvents = 10000;

  virtual ~Store() = default;
  virtual Result<StoredState> Load() = 0;
  virtual void Commit(std::vector<StoreOperation> operations, Done done) = 0;
  virtual void ReadEvents(EventQuery query, EventsDone done) = 0;
  // None where the job is not archived.
  virtual void ReadArchive(ArchiveQuery query, ArchiveDone done) = 0;
  virtual void ReadAudit(AuditQuery query, AuditDone done) = 0;
  // Whether what was loaded and committed is known to be all: no other process has changed the
  // store since. One that belongs to one process always knows. Any thread.
  virtual bool IsCurrent() const { return true; }
  // kResourceExhausted: commits wait until an operator makes room. Any thread.
  virtual Status CheckRoom() const { return OkStatus(); }
};

}  // namespace muster
