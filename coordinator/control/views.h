// Views of the controller's state, which queries return. Pointers stay valid until the controller
// handles the next event; the controller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/job_spec/job_spec.h"
#include "coordinator/control/events.h"
#include "coordinator/control/hold_ledger.h"
#include "coordinator/control/node_backoff.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/domain/records.h"
#include "coordinator/goodput/time_ledger.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster {

struct Straggler;

// Which jobs a caller may see; empty: all.
using JobFilter = std::function<bool(const JobRecord&)>;

struct JobView {
  const JobRecord* record = nullptr;
  const std::vector<AttemptRecord>* attempts = nullptr;        // oldest first
  const std::vector<CheckpointRecord>* checkpoints = nullptr;  // oldest first; also pruning ones
  // Progress of the newest attempt, in the order of ranks, without ranks that have not reported
  // yet.
  const std::vector<RankProgress>* progress = nullptr;
  double tokens_per_second = 0;
  double eta_seconds = -1;  // negative: not known
  double step_seconds = 0;  // median of the newest steps; 0: unknown
  const JobSpec* spec = nullptr;
  const WaitReason* wait = nullptr;  // null: it does not wait, or has not been considered yet
  const NodeBackoff* backoff = nullptr;
  bool kept_back = false;              // it waits for its release or its begin, not for nodes
  std::uint64_t version = 0;           // rises with every change
  const TimeLedger* ledger = nullptr;  // null: its time is not kept
  bool archived = false;
  // The worst rank of those that delay a running job; null: none does, or it is not known yet.
  const Straggler* straggler = nullptr;

  // Why it waits, by what is known now, or how it ended.
  std::string reason() const;
  // What its time was spent on, up to now.
  Goodput goodput(TimePoint now) const { return ledger ? ledger->At(now) : Goodput{}; }
  // The same without what a restart of the coordinator would lose, so it never decreases.
  Goodput stored_goodput(TimePoint now) const {
    return ledger ? ledger->StoredAt(record->usage, now) : Goodput{};
  }
  // Ranks of the newest attempt; empty before the first.
  const std::vector<RankRecord>& ranks() const;
  // The number of ranks of the newest attempt; before the first, of the job file.
  int world_size() const;
};

// What the store has of an archived job, as a view. The records outlive it.
class ArchivedJobView {
 public:
  explicit ArchivedJobView(const ArchivedRecords& records);
  ArchivedJobView(const ArchivedJobView&) = delete;
  ArchivedJobView& operator=(const ArchivedJobView&) = delete;

  const JobView& view() const { return view_; }

 private:
  const std::vector<RankProgress> progress_;  // of no rank
  TimeLedger ledger_;
  JobView view_;
};

struct NodeView {
  const NodeRecord* record = nullptr;
  int slots_used = 0;  // by ranks, and leaked
  bool connected = false;
  TimePoint heard_at;  // the clock's begin: not since the coordinator started
  const std::map<JobId, HoldLedger::Hold>* holds = nullptr;  // of jobs; null: not known
  DeviceMask allocatable = 0;  // of the inventory: without a fault, and no other node's
  std::map<std::string, NodeName> others = {};  // devices that another node has, with that node
  const std::vector<NamedVersions>* versions = nullptr;  // of its worker; null: not known
};

// What jobs have of a node, or their processes may use. What shared spares hold counts once, and
// what is lent of it is the borrower's.
struct NodeUse {
  struct Device {
    std::string_view id;
    JobId job;
  };
  std::vector<Device> devices = {};  // each once
  int cpus = 0;
  std::uint64_t memory_bytes = 0;
};
// The view's node outlives it.
NodeUse UseOf(const NodeView& node);

// A queue, with all queues below it.
struct QueueView {
  Amounts used;
  int running = 0;         // jobs that have a gang
  int waiting = 0;         // jobs that wait for one
  double share = 0;        // of the cluster, by the weights on the way to it
  double usage_share = 0;  // of what the cluster's jobs have had, decayed; 0: not known
};

struct QueuesView {
  const QueueTree* tree = nullptr;
  const std::string* yaml = nullptr;   // as it was applied; empty: none was
  std::vector<QueueView> queues = {};  // of the tree's, in the same places
  const ShareTree* shares = nullptr;   // the same queues, then leaves of users
  std::vector<QueueView> users = {};   // of these leaves, in the same order
};

struct UsersView {
  const UserDirectory* users = nullptr;
  const std::string* yaml = nullptr;  // as it was applied; empty: none was
};

// What the ranks of queues had: by day, and by KeyOf.
using QueueDays = std::map<std::int64_t, std::map<std::string, QueueDayRecord>>;

// Over all days.
struct QueueTotal {
  UsedMicros gpus;
  UsedMicros slots;
  friend bool operator==(const QueueTotal&, const QueueTotal&) = default;
};
using QueueTotals = std::map<std::string, QueueTotal>;

// Where the log of a rank lies and through which stream it can be read.
struct LogLocation {
  JobId job;
  Generation generation = 0;
  NodeName node;
  SessionId session = 0;
  std::string output_dir;
  bool final = false;        // the rank has ended: nothing will be added
  std::string account = {};  // of the job's owner
  bool metrics = false;      // of metrics.jsonl, and not of a rank's log
};

}  // namespace muster
