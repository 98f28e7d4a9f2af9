// Controller: the coordinator's mind. A pure state machine over (event, now) that returns what is
// to be done; it owns the jobs, attempts, checkpoints, nodes and the newest events in memory.
//
// Owned by the server and called on its loop's thread only. It touches no clock, file, socket or
// random number but the caller's tokens, so the same sequence of events gives the same effects. The
// caller obeys the rule at the head of effects.h, drives one timer by NextDeadline(), and calls
// Restore exactly once before anything else. docs/job-lifecycle.md tells what it does and when.
//
// Invariants: slots are never given out twice; generations of a job only rise; a message of
// another generation than the current one changes nothing; a terminal job never changes again
// (but for notes of its clean-up and of its checkpoints).
//
// Errors of clients are replies; a broken invariant ends the process.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "coordinator/control/effects.h"
#include "coordinator/control/events.h"
#include "coordinator/domain/records.h"
#include "coordinator/goodput/time_ledger.h"

namespace muster {

struct ControllerOptions {
  std::string cluster = "muster";                            // told to workers and in Version
  std::uint64_t epoch = 0;                                   // told to workers
  Duration suspect_after = std::chrono::milliseconds(1500);  // of silence; other nodes are asked
  Duration lease = std::chrono::seconds(10);  // of silence until a node nobody can look at is lost
  Duration prepare_deadline = std::chrono::seconds(30);
  Duration launch_deadline = std::chrono::seconds(60);  // Launch until every rank has a process
  Duration form_deadline = std::chrono::minutes(10);    // until every rank did its first collective
  Duration abort_deadline = std::chrono::seconds(30);   // Abort until Quiesced; grace is added
  Duration error_timeout = std::chrono::seconds(2);     // a trainer that reported an error exits
  // A rank that lost its peers: until its cause shows.
  Duration symptom_timeout = std::chrono::milliseconds(300);
  Duration park =
      std::chrono::seconds(1);  // a rank called out of its collectives parks, or is killed
  // Launch to first step of a gang with kept processes, at least; a job's ten slowest steps if
  // more.
  Duration tier_budget = std::chrono::seconds(10);
  Duration cancel_grace = std::chrono::seconds(5);
  Duration first_backoff = std::chrono::milliseconds(500);  // from the second failure without
  Duration max_backoff = std::chrono::seconds(10);          // progress on, doubling
  // A job over its time limit, or to be suspended by no given time, saves its state.
  Duration stop_grace = std::chrono::seconds(60);
  int heartbeat_ms = 500;
  int progress_ms = 100;
  // Each committed checkpoint is read again so long after it was last; zero: never by itself.
  Duration scrub_interval = std::chrono::hours(6);
  std::uint64_t scrub_bytes_per_second = 100'000'000;  // at most, on a node
  std::uint64_t verify_bytes_per_second = 0;           // of the first reading; 0: no limit
  bool allow_faults = false;                           // users may cause faults
  // 64 hexadecimal digits that nobody can guess, anew at each call; none: no token.
  std::function<std::string()> new_token;
  // What else a submitted job must fulfil; none: nothing. Pure.
  std::function<Status(const JobSpec&)> check_job;
  std::size_t max_events = 10000;  // kept in memory, of the whole cluster
};

struct Straggler;

// A job as a query sees it. Pointers stay good until the next call of Handle.
struct JobView {
  const JobRecord* record = nullptr;
  const std::vector<AttemptRecord>* attempts = nullptr;        // oldest first
  const std::vector<CheckpointRecord>* checkpoints = nullptr;  // oldest first; also pruning ones
  // Of the newest attempt, in the order of ranks; one that has said nothing yet is left out.
  const std::vector<RankProgress>* progress = nullptr;
  Step step = 0;  // newest finished step, fresher than record->step
  Step max_steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  double eta_seconds = -1;  // negative: not known
  double step_seconds = 0;  // of late; 0: not known
  const JobSpec* spec = nullptr;
  std::uint64_t version = 0;           // rises with every change
  const TimeLedger* ledger = nullptr;  // null: its time is not kept
  // The worst rank of those that hold up a job that runs; null: none does, or it is not known yet.
  const Straggler* straggler = nullptr;

  // What its time went to, up to now.
  Goodput goodput(TimePoint now) const { return ledger ? ledger->At(now) : Goodput{}; }
  // The same without what a coordinator that starts again would not know: it never falls.
  Goodput stored_goodput(TimePoint now) const {
    return ledger ? ledger->StoredAt(record->usage, now) : Goodput{};
  }
  // Ranks of the newest attempt; empty before the first.
  const std::vector<RankRecord>& ranks() const;
};

struct NodeView {
  const NodeRecord* record = nullptr;
  int slots_used = 0;  // by ranks, and leaked
  bool connected = false;
  TimePoint heard_at;  // the clock's begin: not since the coordinator started
};

// Where the log of a rank lies and through which stream it can be read.
struct LogLocation {
  JobId job;
  Generation generation = 0;
  NodeName node;
  SessionId session = 0;
  std::string output_dir;
  bool final = false;  // the rank has ended: nothing will be added
};

class ControllerCore;

class Controller {
 public:
  explicit Controller(ControllerOptions options);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Takes over what an earlier process left. Live jobs wait for their workers' Hello for one lease
  // from `now`; nothing is assumed to have died.
  Effects Restore(StoredState state, Now now);

  Effects Handle(const Event& event, Now now);

  // When a Tick is due; nothing: only events can change anything.
  std::optional<TimePoint> NextDeadline() const;

  // --- queries ---

  // By id, unique prefix of one, or name (the newest of that name). Fails with kNotFound or, for a
  // prefix of several, kInvalidArgument.
  Result<JobView> FindJob(std::string_view job) const;
  // In order of submission.
  std::vector<JobView> Jobs() const;
  // By name.
  std::vector<NodeView> Nodes() const;
  // Newest events of the cluster that are kept in memory, by seq. Older ones are in the store.
  const std::deque<EventRecord>& Events() const;
  // `generation` 0: the newest. kNotFound, or kUnavailable when the node is not connected.
  Result<LogLocation> LocateLog(std::string_view job, int rank, Generation generation) const;
  // Jobs that wait for a gang.
  int PendingJobs() const;
  // All jobs that ever were, and the slots that none of them has. `stored` as in JobView.
  Goodput ClusterGoodput(TimePoint now, bool stored = false) const;

 private:
  std::unique_ptr<ControllerCore> core_;
};

}  // namespace muster
