// SimStore: the coordinator's disk. Commits become durable in order and some time after they were
// asked for; a crash keeps those that are durable and, of the others, as many of the first ones as
// chance will have it: their outcome is unknown to the caller.
//
// Commit is virtual so that a planted bug can be another disk.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "coordinator/control/effects.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"

namespace muster::sim {

class SimStore {
 public:
  using Done = std::function<void()>;

  SimStore(EventQueue& queue, Random& random) : queue_(queue), random_(random) {}
  virtual ~SimStore() = default;

  // `done` runs when the batch is durable, never before Commit returns, and not at all if the
  // coordinator crashed before.
  virtual void Commit(std::vector<StoreOperation> operations, Done done);
  // Power is cut: what of the commits under way has reached the disk is a matter of chance.
  void Crash();
  StoredState Load() const;

  // Records that are durable.
  const JobRecord* FindJob(const JobId& id) const;
  const NodeRecord* FindNode(const NodeName& name) const;
  std::vector<CheckpointRecord> Checkpoints(const JobId& job) const;
  const ArchivedRecords* FindArchived(const JobId& id) const;     // nullptr: it is not archived
  std::size_t archive_scrubs() const { return archive_scrubs_; }  // results that are durable
  std::uint64_t Hash() const;

  // Commits take much longer until `until`.
  void SlowUntil(TimePoint until) { slow_until_ = until; }

 protected:
  struct Batch {
    std::vector<StoreOperation> operations;
    Done done;
  };
  void Apply(const StoreOperation& operation);
  Duration Latency();
  void FinishFirst();

  EventQueue& queue_;
  Random& random_;
  std::deque<Batch> pending_;
  std::uint64_t life_ = 0;  // rises with every crash
  TimePoint slow_until_;
  TimePoint last_due_;

 private:
  std::map<JobId, JobRecord> jobs_;
  std::map<std::pair<JobId, Generation>, AttemptRecord> attempts_;
  std::map<std::pair<JobId, std::string>, CheckpointRecord> checkpoints_;
  std::map<NodeName, NodeRecord> nodes_;
  std::deque<EventRecord> events_;
  std::map<JobId, ArchivedRecords> archive_;
  std::size_t archive_scrubs_ = 0;
  RankMicros archived_time_ = {};
};

}  // namespace muster::sim
