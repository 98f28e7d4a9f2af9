// Transaction: one event under way. The state that handlers change, the time of the event, and the
// effects so far.
//
// A handler changes records in place, marks them, and adds sends and events; Finish then writes
// each marked record once. Handlers are idempotent: after a reconnect workers repeat all their
// reports. Handlers are free functions, one file per lifecycle. Their files form layers, and a file
// calls only those below it; docs/architecture.md shows them. A lower layer leaves work for a
// higher one in `may_end`, `to_decide` or State::reschedule, which the controller processes at the
// end of the event.
//
// Owned by Controller::Handle, for the length of a call; private to coordinator/control; one
// thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/effects.h"
#include "coordinator/control/options.h"
#include "coordinator/control/state.h"

namespace muster::control {

class Transaction {
 public:
  Transaction(const ControllerOptions& options, State& state, Now now)
      : options(options), state(state), now(now) {}

  const ControllerOptions& options;
  State& state;
  const Now now;
  Effects out;
  std::set<JobId> may_end;       // aborting attempts that may be complete
  std::set<NodeName> to_decide;  // suspects about which something became known

  // --- look-ups; an entry fetched for a change is touched, and indexed again at the end ---
  JobEntry& job(const JobId& id);  // must exist
  const JobEntry& job(const JobId& id) const { return state.jobs.at(id); }
  JobEntry* FindJob(const JobId& id);
  const JobEntry* FindJob(const JobId& id) const;
  NodeEntry& node(const NodeName& name);  // must exist
  const NodeEntry& node(const NodeName& name) const { return state.nodes.at(name); }
  NodeEntry* FindNode(const NodeName& name);
  const NodeEntry* FindNode(const NodeName& name) const;
  void Index(JobEntry& job);  // in State::jobs_of now, before Finish does
  bool Expired(const std::optional<TimePoint>& when) const { return when && *when <= now.mono; }

  // The one place where a message meets the generation: returns the job if `generation` is that of
  // its live attempt and `node` belongs to it, else nullptr and counts the message. `member`
  // receives the gang's node.
  JobEntry* Fence(const NodeName& node, const JobId& id, Generation generation, GangNode** member);
  JobEntry* FenceRank(const NodeName& node, const JobId& id, Generation generation, int rank);

  // --- what Finish is to write ---
  void Mark(JobEntry& job);         // its record as it is at the end; if archived, as it is now
  void MarkAttempt(JobEntry& job);  // its newest attempt and its record
  void Mark(const AttemptRecord& attempt);
  void Mark(NodeEntry& node);
  void Mark(const QueueDayRecord& record);  // in State::queue_days
  void Changed(JobEntry& job);              // its view only
  bool IsMarked(const JobEntry& job) const { return marked_jobs_.contains(job.record.id); }
  const std::set<JobId>& changed() const { return changed_; }
  const std::set<JobId>& touched_jobs() const { return touched_jobs_; }
  const std::set<NodeName>& touched_nodes() const { return touched_nodes_; }
  void Exclude(JobEntry& job, const NodeName& node);  // the job's gangs do without the node
  // The job, which is over, leaves memory at the end of the transaction.
  void Archive(const JobEntry& job, TimePoint delete_at);
  // The node, which is lost, leaves memory at the end of the transaction.
  void Forget(const NodeEntry& node);
  void Put(const CheckpointRecord& checkpoint);
  void Write(StoreOperation operation);  // as it is, in this order
  void Delete(const CheckpointRecord& checkpoint);

  // --- changes that are written ---
  void Move(JobEntry& job, JobEvent event);
  void Move(AttemptRecord& attempt, AttemptEvent event);
  void Move(NodeEntry& node, NodeEvent event);
  // The next phase of the newest attempt, in its record and its gang.
  template <typename Phase>
  void Enter(JobEntry& job, Phase phase) {
    Move(job.attempt(), Phase::kEnteredBy);
    job.gang->phase = std::move(phase);
  }
  void RecordEvent(const JobEntry& job, EventText text);
  void RecordClusterEvent(EventText text);
  // To the job's newest attempt; false: it is noted there already.
  bool Note(JobEntry& job, std::string note);

  // To the node's stream; dropped where there is none, and sent again after its next Hello.
  void Send(const NodeName& node, CoordinatorMessage message, bool eager = false);

  // The effects, with each marked record once. Nothing follows it.
  Effects Finish();

 private:
  void Append(EventRecord event);
  void RemoveWhatIsOver();

  std::set<JobId> marked_jobs_;
  std::set<std::pair<JobId, Generation>> marked_attempts_;
  std::set<NodeName> marked_nodes_;
  std::set<std::pair<std::int64_t, std::string>> marked_days_;
  std::set<JobId> changed_;
  std::set<JobId> touched_jobs_;
  std::set<NodeName> touched_nodes_;
  std::set<JobId> to_index_;
  std::vector<std::pair<JobId, TimePoint>> archived_;
  std::vector<NodeName> forgotten_;
  std::vector<StoreOperation> other_operations_;  // in order
};

// If the node, in its current state, may let the scheduler place a waiting job, a pass is made over
// all that waits; at once if a gang waits for a node to go on.
void RescheduleFor(State& state, const NodeEntry& node);

}  // namespace muster::control
