#include "coordinator/control/transaction.h"

#include <algorithm>

#include "common/base/text.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/shares.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

constexpr std::size_t kMaxNotes = 50;

// The entry, or nullptr; const where the map is.
template <typename Entries, typename Key>
auto* FindIn(Entries& entries, const Key& key) {
  const auto found = entries.find(key);
  return found == entries.end() ? nullptr : &found->second;
}

void RemoveArchived(Transaction& tx, const JobId& id, TimePoint delete_at) {
  State& state = tx.state;
  const JobEntry& job = state.jobs.at(id);
  const ArchivedJob archived = ArchivedJobOf(job.record);
  state.archived_time = (Goodput{state.archived_time} += job.ledger.At(tx.now.mono)).micros;
  state.archive.Add(archived, delete_at);
  tx.out.store.push_back(ArchiveJob{archived});
  state.jobs_of.Set(id, {});
  state.arrived.erase(id);
  state.order.erase(archived.submit_order);
  state.keys.erase(SubmitKey(job.record));
  const auto owner = state.output_owners.find(job.record.output_dir);
  if (owner != state.output_owners.end() && owner->second.job == id)
    state.output_owners.erase(owner);
  state.jobs.erase(id);
}

void RemoveForgotten(Transaction& tx, const NodeName& name) {
  State& state = tx.state;
  const NodeEntry& node = state.nodes.at(name);
  state.archived_time = (Goodput{state.archived_time} += node.unused.At(tx.now.mono)).micros;
  tx.out.store.push_back(DeleteNode{name});
  state.holds.Reboot(name);  // what archived jobs held
  state.reschedule |= SharesDevices(state, node);
  GiveUpDevices(state, node);
  state.suspects.erase(name);
  state.unused_may_differ.erase(name);
  state.node_deadlines.Set(name, std::nullopt);
  state.nodes.erase(name);
}

}  // namespace

// --- look-ups ---

JobEntry& Transaction::job(const JobId& id) {
  touched_jobs_.insert(id);
  return state.jobs.at(id);
}

JobEntry* Transaction::FindJob(const JobId& id) {
  JobEntry* found = FindIn(state.jobs, id);
  if (found != nullptr) touched_jobs_.insert(id);
  return found;
}

const JobEntry* Transaction::FindJob(const JobId& id) const { return FindIn(state.jobs, id); }

NodeEntry& Transaction::node(const NodeName& name) {
  touched_nodes_.insert(name);
  return state.nodes.at(name);
}

NodeEntry* Transaction::FindNode(const NodeName& name) {
  NodeEntry* found = FindIn(state.nodes, name);
  if (found != nullptr) touched_nodes_.insert(name);
  return found;
}

const NodeEntry* Transaction::FindNode(const NodeName& name) const {
  return FindIn(state.nodes, name);
}

JobEntry* Transaction::Fence(const NodeName& node, const JobId& id, Generation generation,
                             GangNode** member) {
  JobEntry* job = FindJob(id);
  if (job != nullptr && job->gang && job->attempt().generation == generation) {
    if (GangNode* found = FindMember(*job, node); found != nullptr) {
      if (member != nullptr) *member = found;
      return job;
    }
  }
  out.observations.push_back(StaleMessageObserved{});
  return nullptr;
}

JobEntry* Transaction::FenceRank(const NodeName& node, const JobId& id, Generation generation,
                                 int rank) {
  JobEntry* job = Fence(node, id, generation, nullptr);
  if (job == nullptr) return nullptr;
  if (rank < 0 || rank >= WorldSize(*job) || job->attempt().ranks[rank].node != node) {
    out.observations.push_back(StaleMessageObserved{});
    return nullptr;
  }
  return job;
}

// --- marks ---

void Transaction::Mark(JobEntry& job) {
  if (job.archived) return other_operations_.push_back(PutArchivedJob{job.record});
  marked_jobs_.insert(job.record.id);
  to_index_.insert(job.record.id);
  Changed(job);
}

void Transaction::Mark(const AttemptRecord& attempt) {
  marked_attempts_.insert({attempt.job, attempt.generation});
}

void Transaction::MarkAttempt(JobEntry& job) {
  Mark(job.attempt());
  if (job.gang) job.gang->store_exits_at.reset();
  Mark(job);
}

void Transaction::Mark(NodeEntry& node) {
  marked_nodes_.insert(node.record.name);
  touched_nodes_.insert(node.record.name);
}

void Transaction::Mark(const QueueDayRecord& record) {
  marked_days_.emplace(record.day, KeyOf(record));
}

void Transaction::Changed(JobEntry& job) {
  if (job.archived) return;
  changed_.insert(job.record.id);
  touched_jobs_.insert(job.record.id);
}

void Transaction::Exclude(JobEntry& job, const NodeName& node) {
  job.excluded.insert(node);
  to_index_.insert(job.record.id);
}

void Transaction::Archive(const JobEntry& job, TimePoint delete_at) {
  archived_.emplace_back(job.record.id, delete_at);
  state.readings.scrub_times.Set(job.record.id, std::nullopt);  // none begins in this event
}

void Transaction::Forget(const NodeEntry& node) { forgotten_.push_back(node.record.name); }

void Transaction::Put(const CheckpointRecord& checkpoint) {
  if (state.recalls.jobs.contains(checkpoint.job))
    return other_operations_.push_back(PutArchivedCheckpoint{checkpoint});
  to_index_.insert(checkpoint.job);
  other_operations_.push_back(PutCheckpoint{checkpoint});
}

void Transaction::Delete(const CheckpointRecord& checkpoint) {
  to_index_.insert(checkpoint.job);
  other_operations_.push_back(DeleteCheckpoint{checkpoint.job, checkpoint.directory});
}

// --- changes ---

void Transaction::Move(JobEntry& job, JobEvent event) {
  job.record.state = ApplyOrDie(job.record.state, event, "job " + job.record.id.value);
  Mark(job);
}

void Transaction::Move(AttemptRecord& attempt, AttemptEvent event) {
  attempt.state = ApplyOrDie(
      attempt.state, event,
      "generation " + std::to_string(attempt.generation) + " of job " + attempt.job.value);
  // No Launch is sent again after that.
  if (attempt.state != AttemptState::kLaunching) attempt.rendezvous_token.clear();
  MarkAttempt(job(attempt.job));
}

void Transaction::Move(NodeEntry& node, NodeEvent event) {
  const bool usable = IsUsable(node.record);
  node.record.state = ApplyOrDie(node.record.state, event, "node " + node.record.name.value);
  if (IsUsable(node.record) != usable) state.unused_may_differ.insert(node.record.name);
  if (node.record.state == NodeState::kDraining) {
    state.draining.insert(node.record.name);
  } else {
    state.draining.erase(node.record.name);
  }
  node.forget_at.reset();
  if (node.record.state == NodeState::kLost && options.lost_node_retain > Duration::zero())
    node.forget_at = now.mono + options.lost_node_retain;
  RescheduleFor(state, node);
  Mark(node);
}

void Transaction::RecordEvent(const JobEntry& job, EventText text) {
  if (!job.archived) changed_.insert(job.record.id);
  Append({.job = job.record.id,
          .generation = job.record.generation,
          .kind = text.kind,
          .severity = text.severity,
          .message = std::move(text.message)});
}

void Transaction::RecordClusterEvent(EventText text) {
  Append({.kind = text.kind, .severity = text.severity, .message = std::move(text.message)});
}

void Transaction::Write(StoreOperation operation) {
  other_operations_.push_back(std::move(operation));
}

void Transaction::Append(EventRecord event) {
  event.seq = state.next_seq++;
  event.unix_ms = now.unix_ms;
  event.message = CutText(std::move(event.message), kMaxTextBytes);
  other_operations_.push_back(AppendEvent{event});
  state.events.push_back(std::move(event));
  if (state.events.size() > options.max_events) state.events.pop_front();
}

bool Transaction::Note(JobEntry& job, std::string note) {
  note = CutText(std::move(note), kMaxNoteBytes);
  std::vector<std::string>& notes = job.attempt().notes;
  if (std::find(notes.begin(), notes.end(), note) != notes.end()) return false;
  if (notes.size() >= kMaxNotes) notes.erase(notes.begin());
  notes.push_back(std::move(note));
  MarkAttempt(job);
  return true;
}

// --- effects ---

void Transaction::Send(const NodeName& node, CoordinatorMessage message, bool eager) {
  const NodeEntry* entry = std::as_const(*this).FindNode(node);
  if (entry == nullptr || entry->session == 0) return;
  out.sends.push_back({entry->session, node, std::move(message), eager});
}

void Transaction::Index(JobEntry& job) {
  std::vector<NodeName> nodes = job.record.pending_release;
  nodes.insert(nodes.end(), job.excluded.begin(), job.excluded.end());
  const bool commits = std::any_of(
      job.checkpoints.begin(), job.checkpoints.end(), [](const CheckpointRecord& checkpoint) {
        return checkpoint.state == CheckpointState::kPruning || !checkpoint.manifest_written;
      });
  if (commits && !job.attempts.empty()) nodes.push_back(job.attempt().nodes.front());
  const JobId& id = job.record.id;
  state.jobs_of.Set(id, std::move(nodes));
  const auto set = [&id](std::set<JobId>& jobs, bool in) {
    in ? void(jobs.insert(id)) : void(jobs.erase(id));
  };
  set(state.aborting, job.gang && In<Aborting>(*job.gang) != nullptr);
  set(state.claimed, !job.record.reclaim.claimant.empty());
  CountWaiting(state, job);
}

void Transaction::RemoveWhatIsOver() {
  if (archived_.empty() && forgotten_.empty()) return;
  for (const auto& [id, delete_at] : archived_) RemoveArchived(*this, id, delete_at);
  for (const NodeName& name : forgotten_) RemoveForgotten(*this, name);
  out.store.push_back(PutArchivedTime{state.archived_time});
}

Effects Transaction::Finish() {
  for (const JobId& id : to_index_) Index(state.jobs.at(id));
  // Jobs first, so that no row refers to one that is not there yet.
  for (const JobId& id : marked_jobs_) out.store.push_back(PutJob{state.jobs.at(id).record});
  for (const auto& [id, generation] : marked_attempts_) {
    for (const AttemptRecord& attempt : state.jobs.at(id).attempts) {
      if (attempt.generation == generation) out.store.push_back(PutAttempt{attempt});
    }
  }
  for (const NodeName& name : marked_nodes_)
    out.store.push_back(PutNode{state.nodes.at(name).record});
  for (const auto& [day, key] : marked_days_) {
    const auto* records = FindIn(state.queue_days, day);
    const auto* record = records == nullptr ? nullptr : FindIn(*records, key);
    if (record != nullptr) out.store.push_back(PutQueueDay{*record});  // else it is not kept
  }
  for (StoreOperation& operation : other_operations_) out.store.push_back(std::move(operation));
  if (!out.store.empty()) ++state.changes;
  for (const JobId& id : changed_) {
    ++state.jobs.at(id).version;
    out.changed.push_back(id);
  }
  RemoveWhatIsOver();
  return std::move(out);
}

namespace {

// Whether the node, in its current state, may let the scheduler place a waiting job. Thousands of
// nodes change their state at once when a switch fails or a coordinator starts, and a scheduler
// pass reads each.
bool MayChangePlacement(const State& state, const NodeEntry& node) {
  const NodeName& name = node.record.name;
  switch (node.record.state) {
    case NodeState::kSuspect: return false;
    case NodeState::kReady: {
      const int leaked = static_cast<int>(node.record.leaked.size());
      return state.holds.BusySlots(name) + leaked < node.record.slots;
    }
    case NodeState::kLost: {  // a job may have waited for its former node, or be promised it
      const std::vector<JobId> jobs = state.jobs_of.Of(name);
      return std::ranges::any_of(jobs,
                                 [&](const JobId& id) { return state.jobs.at(id).pending(); }) ||
             std::ranges::any_of(state.planned, [&](const JobId& id) {
               return std::ranges::count(state.jobs.at(id).record.promise.nodes, name) > 0;
             });
    }
    default: return true;
  }
}

}  // namespace

void RescheduleFor(State& state, const NodeEntry& node) {
  if (!MayChangePlacement(state, node)) return;
  state.reschedule = true;
  state.pass_is_urgent |= std::ranges::any_of(state.planned, [&](const JobId& id) {
    return state.jobs.at(id).record.state == JobState::kRecovering;
  });
}

}  // namespace muster::control
