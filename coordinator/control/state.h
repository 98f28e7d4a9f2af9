// What the controller keeps in memory: the durable records, and beside them the live state of jobs
// and nodes. The live state is not stored, so it must be possible to rebuild all of it from the
// records and from what workers report in their Hello.
//
// Owned by Controller (controller.cc) and private to coordinator/control; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/on_demand.h"
#include "common/job_spec/job_spec.h"
#include "coordinator/access/user_file.h"
#include "coordinator/control/archive.h"
#include "coordinator/control/checkpoint_clock.h"
#include "coordinator/control/deadline_queue.h"
#include "coordinator/control/effects.h"
#include "coordinator/control/events.h"
#include "coordinator/control/gang.h"
#include "coordinator/control/hold_ledger.h"
#include "coordinator/control/job_index.h"
#include "coordinator/control/node_backoff.h"
#include "coordinator/control/views.h"
#include "coordinator/detect/hang_detector.h"
#include "coordinator/detect/straggler_detector.h"
#include "coordinator/domain/records.h"
#include "coordinator/goodput/time_ledger.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/node_fit.h"
#include "coordinator/scheduler/wait_reason.h"

namespace muster::control {

// The fault that the next attempt recovers from.
struct Fault {
  TimePoint at;
  TimePoint aborted;
  TimePoint quiesced;
};

// Scrubs of a job's committed checkpoints; readings.cc.
struct Scrub {
  std::uint64_t id = 0;      // of the outstanding order; 0: none
  NodeName node;             // that has it
  std::string directory;     // of the round under way: one checkpoint, one node after the other
  std::set<NodeName> asked;  // in this round, without a result
  std::string missing;       // what a node of the gang does not find
  std::string trouble;       // what the other nodes report
  std::map<std::string, TimePoint> skip;     // directories that no node could read, until then
  std::map<std::string, TimePoint> read_at;  // directories that were read whole
  // What clients wait for, and the results so far.
  std::vector<RequestId> requests;
  std::set<std::string> wanted;  // directories
  std::set<std::string> whole;   // of those, in this reading
  std::string unverified;        // why some could not be read
};

// The first reading of what was committed: each node reads the shards of its own ranks, all at the
// same time; readings.cc.
struct Verification {
  std::string directory;                     // under way; empty: none
  std::map<std::uint64_t, NodeName> orders;  // of it, without an answer
  TimePoint give_up_at;
  std::string waiting;  // the newest one behind it; empty: none
};

// The node that was asked to write a commit record; its answer counts once.
struct CommitOrder {
  NodeName node;
  Generation generation = 0;
  friend bool operator==(const CommitOrder&, const CommitOrder&) = default;
};

// What watches the ranks' progress.
struct Detectors {
  HangDetector hangs;
  StragglerDetector stragglers;
};

struct JobEntry {
  JobRecord record;
  JobSpec spec;
  std::vector<AttemptRecord> attempts;        // oldest first
  std::vector<CheckpointRecord> checkpoints;  // oldest first
  std::vector<RankProgress> progress;         // in the order of ranks; of those that have reported
  std::unique_ptr<Gang> gang;                 // while the newest attempt is live
  std::optional<Fault> fault;
  std::optional<Survivors> survivors;  // of the newest attempt, which has ended
  bool waited = false;                 // no gang was found for it since its newest attempt ended
  std::set<NodeName> excluded;         // lost to this job, although they may come back
  NodeBackoff backoff;
  std::optional<TimePoint> regrouped;    // when it was ended last to go on with more nodes
  std::optional<TimePoint> grow_at;      // when nodes for it may have been ready for long enough
  std::optional<TimePoint> not_before;   // back-off
  std::optional<TimePoint> begin_at;     // while it waits for its begin
  std::optional<TimePoint> promised_at;  // its start, at the latest (record.promise)
  bool promise_is_due = false;           // a pass was asked for because that has come
  std::optional<TimePoint> turn;         // the first start that it was promised
  std::vector<NodeName> collecting;      // where devices are kept for it as they become free
  std::optional<TimePoint> time_limit_at;
  std::optional<TimePoint> ends_at;  // of its gang, as planned; empty: it has no limit
  std::map<std::string, CommitOrder> commit_sent;  // by directory; without an answer
  std::set<std::string> manifest_failed;           // directories whose commit record is not to come
  bool wait_recorded = false;                      // the timeline records that it waits for a gang
  std::optional<WaitReason> wait;                  // since a scheduler pass left it out
  double step_seconds = 0;                         // median of the newest steps; 0: unknown
  std::vector<double> newest_steps;                // in seconds, the oldest first
  double slowest_step = 0;                         // in seconds
  std::unique_ptr<Detectors> detectors;            // since its first launch
  OnDemand<Scrub> scrub;
  OnDemand<Verification> verification;
  CheckpointClock checkpoint_clock;
  bool checkpoints_fail = false;  // none was committed since one could not be written
  TimeLedger ledger;
  TimePoint usage_stored_at;
  Generation booked = 0;  // the attempt whose ranks its nodes count; 0: none
  std::uint64_t version = 0;
  bool archived = false;  // in Recalls::jobs, and only its checkpoints matter
  int waits_at = -1;      // in State::shares, where it counts as waiting; -1: nowhere

  bool over() const { return IsTerminal(record.state); }
  // Nothing of it runs, and nothing will.
  bool at_rest() const { return over() || record.state == JobState::kSuspended; }
  // Waits for a gang.
  bool pending() const {
    return !gang && (record.state == JobState::kQueued || record.state == JobState::kRecovering);
  }
  AttemptRecord& attempt() { return attempts.back(); }
};

// Other nodes that were asked to reach a silent one. Only their answers count, and only the first
// answer of each.
struct ProbeRound {
  struct Prober {
    NodeName node;
    std::optional<ProbeOutcome> outcome;  // empty: no answer yet
  };
  std::uint64_t id = 0;
  TimePoint sent;
  std::vector<Prober> probers;
};

struct NodeEntry {
  NodeRecord record;
  std::vector<NamedVersions> versions;  // of its worker; none: not connected yet
  SessionId session = 0;                // 0: not connected
  TimePoint heard_at;
  TimePoint ready_at;                 // connected or heard of again
  bool suspect = false;               // silent, and not given up
  TimeLedger unused;                  // its slots that no rank has
  int ranks = 0;                      // of attempts that jobs are booked to
  std::optional<TimePoint> check_at;  // while suspect
  ProbeRound probe;
  std::optional<TimePoint> forget_at;  // while lost
};

// A fault that was sent to its node and has no answer yet.
struct OrderedFault {
  RequestId request = 0;
  NodeName node;
  Generation generation = 0;
  TimePoint deadline;
};

struct EventText {
  const char* kind;
  Severity severity = Severity::kInfo;
  std::string message;
};

struct AbortOptions {
  std::string reason;
  Duration grace = Duration::zero();
  bool keep = false;   // survivors keep their processes
  bool eager = false;  // sent before it is durable
};

// The outstanding orders of readings.cc, and when the next ones are due.
struct Readings {
  DeadlineQueue<JobId> scrub_times;          // when ScrubNext is due
  DeadlineQueue<JobId> give_up_times;        // of verifications
  std::map<NodeName, JobId> scrubbing;       // for which job a node scrubs
  std::map<std::uint64_t, JobId> verifying;  // by order
  std::map<RequestId, JobId> requests;       // of clients that wait
  std::uint64_t newest_order = 0;
};

// Archived jobs whose checkpoints are read again; recalls.cc.
struct Recalls {
  std::map<JobId, JobEntry> jobs;                 // until that is done
  std::map<JobId, std::vector<RequestId>> asked;  // of the store, without an answer; the clients
  JobId turn;                                     // the last one that had its turn
  TimePoint turn_at;                              // when that was due
  std::optional<TimePoint> next_at;               // when the next one has its turn; empty: never
};

// The newest job that writes to a directory.
struct OutputOwner {
  std::uint64_t submit_order = 0;
  JobId job;
};

// Finish updates the indexes (`jobs_of`, the deadlines) with what a transaction touched, so that
// the cost of an event does not grow with the number of jobs and nodes.
struct State {
  std::map<JobId, JobEntry> jobs;
  using Some = std::map<JobId, JobEntry*>;  // entries of `jobs`, which stay where they are
  std::map<std::uint64_t, JobId> order;     // of submission
  Some live;                                // not terminal
  Some with_gang;                           // JobEntry::gang
  std::set<JobId> aborting;                 // those whose gang ends
  std::set<JobId> claimed;                  // JobRecord::reclaim
  // Waiting jobs that every pass considers: with a planned start, with nodes that are kept for
  // them, or with an attempt before.
  std::set<JobId> planned;
  std::set<JobId> arrived;  // since the last pass
  std::map<std::string, JobId> keys;
  std::map<std::string, OutputOwner> output_owners;  // by output directory
  std::map<NodeName, NodeEntry> nodes;
  std::map<SessionId, NodeName> sessions;  // current ones only
  std::set<NodeName> can_probe;            // connected and not suspect: can be probers
  std::set<NodeName> suspects;
  std::set<NodeName> draining;
  JobIndex jobs_of;
  DeadlineQueue<JobId> job_deadlines;
  QueueTree queues = DefaultTree();
  UserDirectory users;
  std::map<SecretName, SecretRecord> secrets;  // durable
  std::string users_yaml;                      // as it was applied; empty: none was
  AuditHead audit;                             // end of the audit trail
  std::string queues_yaml;                     // as it was applied; empty: none was
  ShareTree shares;                            // by which the scheduler goes; shares.h
  std::vector<int> waiting_of;                 // jobs that wait, by place in `shares`; by user only
  // By queue and where there are users by owner, of ended gangs; queue_usage.h.
  std::map<std::string, double> queue_usage;
  std::size_t sift_usage_at = 1024;   // so many of these are looked through
  QueueDays queue_days;               // durable; queue_days.h
  QueueTotals queue_totals;           // of queue_days
  std::int64_t usage_at_unix_ms = 0;  // the newest start or end of a gang
  Archive archive;
  Recalls recalls;
  RankMicros archived_time = {};  // of archived jobs and forgotten nodes; durable
  TimePoint archive_again_at;
  DeadlineQueue<JobId> archive_times;  // of jobs that are over; none if they stay
  // May be earlier than a node's current deadline: each heartbeat moves that one.
  DeadlineQueue<NodeName> node_deadlines;
  NodeName last_prober;  // they are asked in turn
  HoldLedger holds;
  std::map<std::string, std::vector<NodeName>> device_nodes;  // that report it, the first one first
  std::set<std::string> contested;  // of those, devices that several nodes report
  std::deque<EventRecord> events;
  std::uint64_t next_seq = 1, next_order = 1, next_fault = 0, next_probe = 0;
  std::map<std::uint64_t, OrderedFault> faults;  // by their number
  Readings readings;
  TimePoint handled_at;              // the newest event
  std::int64_t clock_offset_ms = 0;  // then, of the clock of the day to the monotonic one
  bool reschedule = false;           // a pass over all that waits may place or plan something else
  bool pass_is_urgent = false;       // such a one, because a gang may go on after a fault
  // Before then no pass over all that waits is made unless it is urgent, and none over what has
  // arrived.
  TimePoint next_whole_pass, next_small_pass;
  std::uint64_t changes = 0;               // passes, and events with durable effects
  std::optional<TimePoint> reschedule_at;  // a gang may give way then; empty: none is waited for
  std::map<JobId, std::string> forced_delays;  // by the next pass; why
  std::optional<PoolDeclared> pool;            // empty: there is none
  std::set<NodeName> unused_may_differ;        // nodes whose slots without a rank are to be booked

  // When the pass that is wanted may be made; empty: none is wanted.
  std::optional<TimePoint> NextPass() const {
    if (reschedule) return pass_is_urgent ? TimePoint() : next_whole_pass;
    return arrived.empty() ? std::nullopt : std::optional(next_small_pass);
  }
};

// A job that recovers for months keeps all attempts in memory and shows them, the old ones without
// their large fields; the store has them whole.
inline constexpr std::size_t kWholeAttempts = 20;
inline void CondenseOld(std::vector<AttemptRecord>& attempts) {
  for (std::size_t n = 0; n + kWholeAttempts < attempts.size(); ++n) {
    AttemptRecord& old = attempts[n];
    if (old.ranks.empty()) continue;
    old.ranks = {};
    old.notes = {};
    old.log_tail = {};
    old.card.facts = {};
  }
}

}  // namespace muster::control
