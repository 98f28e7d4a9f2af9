#include "coordinator/control/core.h"

#include <algorithm>

#include "common/base/text.h"

namespace muster {
namespace {

// What every node says several times a second, and what probers say of many at once.
bool IsRoutine(const Event& event) {
  const auto* said = std::get_if<WorkerMessageReceived>(&event);
  return said != nullptr && (std::holds_alternative<Heartbeat>(said->message) ||
                             std::holds_alternative<Progress>(said->message) ||
                             std::holds_alternative<ProbeResult>(said->message));
}

// When a node that is silent from now on is to be suspected: on a common beat, so that one Tick
// finds the hundreds that a dead switch silences.
TimePoint SuspectAt(const NodeEntry& node, Duration suspect_after) {
  using Beat = std::chrono::duration<std::int64_t, std::ratio<1, 20>>;
  return TimePoint(std::chrono::ceil<Beat>((node.heard_at + suspect_after).time_since_epoch()));
}

// Of the gang's nodes those that hold up the phase that it is in. Nobody, where no rank at all has
// found another.
std::vector<NodeName> LateNodes(const JobEntry& job) {
  const AttemptRecord& attempt = job.attempts.back();
  const Gang& gang = *job.gang;
  std::vector<NodeName> late;
  const auto add = [&late](const NodeName& name) {
    if (late.empty() || late.back() != name) late.push_back(name);
  };
  switch (attempt.state) {
    case AttemptState::kReserving:
    case AttemptState::kPreparing:
      for (const GangNode& node : gang.nodes) {
        if (!node.prepared && !node.spare) add(node.name);
      }
      break;
    case AttemptState::kLaunching:
      for (const RankRecord& rank : attempt.ranks) {
        if (rank.state == RankState::kPrepared) add(rank.node);
      }
      break;
    case AttemptState::kRunning:
      for (const RankRecord& rank : attempt.ranks) {
        if (!gang.formed.empty() && !gang.formed.contains(rank.rank)) add(rank.node);
      }
      break;
    case AttemptState::kAborting:
      for (const GangNode& node : gang.nodes) {
        if (!node.quiesced) add(node.name);
      }
      break;
    case AttemptState::kEnded: break;
  }
  return late;
}

}  // namespace

Effects ControllerCore::Handle(const Event& event, Now now) {
  now_ = now;
  CompensateForStall();
  std::visit([this](const auto& e) { On(e); }, event);
  while (reschedule_) {
    Schedule();
    CompleteDrains();
  }
  scrubs_.Run();
  Effects effects = Flush();
  // Where a routine word has changed no record, it has but moved its own node's deadline away,
  // which the next Tick finds out: thousands of them a second are not to look at every node and
  // job.
  if (!IsRoutine(event) || !effects.store.empty()) next_deadline_ = EarliestDeadline();
  return effects;
}

void ControllerCore::On(const WorkerMessageReceived& said) {
  const auto session = sessions_.find(said.session);
  if (session == sessions_.end()) return;
  const NodeName name = session->second;
  NodeEntry& node = nodes_.at(name);
  node.heard_at = now_.mono;
  if (node.suspect) MarkAlive(node);
  std::visit([&](const auto& message) { Handle(name, message); }, said.message);
}

Effects ControllerCore::Flush() {
  for (const JobId& id : changed_) AccrueTime(jobs_.at(id));
  if (unused_may_differ_) BookUnused();
  // Jobs first, so that no row refers to one that is not there yet.
  for (const JobId& id : marked_jobs_) out_.store.push_back(PutJob{jobs_.at(id).record});
  for (const auto& [id, generation] : marked_attempts_) {
    for (const AttemptRecord& attempt : jobs_.at(id).attempts) {
      if (attempt.generation == generation) out_.store.push_back(PutAttempt{attempt});
    }
  }
  for (const NodeName& name : marked_nodes_) out_.store.push_back(PutNode{nodes_.at(name).record});
  for (StoreOperation& operation : other_operations_) out_.store.push_back(std::move(operation));
  for (const JobId& id : changed_) {
    ++jobs_.at(id).version;
    out_.changed.push_back(id);
  }
  marked_jobs_.clear();
  marked_attempts_.clear();
  marked_nodes_.clear();
  changed_.clear();
  other_operations_.clear();
  return std::exchange(out_, {});
}

// --- time ---

std::optional<TimePoint> ControllerCore::EarliestDeadline() const {
  std::optional<TimePoint> next;
  auto consider = [&next](const std::optional<TimePoint>& when) {
    if (when && (!next || *when < *next)) next = when;
  };
  for (const JobId& id : live_) {
    const JobEntry& job = jobs_.at(id);
    consider(job.not_before);
    consider(job.time_limit_at);
    consider(job.refusals.NextExpiry());
    if (!job.gang) continue;
    consider(job.grow_at);
    consider(job.gang->store_exits_at);
    consider(job.gang->stop_deadline);
    consider(job.gang->phase_deadline);
    consider(job.gang->fault_deadline);
    consider(job.gang->tier_deadline);
  }
  for (const auto& [name, node] : nodes_) {
    consider(node.check_at);
    if (node.session != 0 && !node.suspect) consider(SuspectAt(node, options_.suspect_after));
  }
  for (const auto& [id, fault] : faults_) consider(fault.deadline);
  consider(scrubs_.NextDeadline());
  return next;
}

void ControllerCore::On(const Tick&) {
  for (auto& [name, node] : nodes_) CheckSilence(node);
  ExpireFaults();
  const std::set<JobId> live = live_;  // a job that ends leaves live_
  for (const JobId& id : live) ExpireJob(jobs_.at(id));
}

void ControllerCore::ExpireJob(JobEntry& job) {
  if (Expired(job.not_before)) {
    job.not_before.reset();
    reschedule_ = true;
  }
  reschedule_ |= job.refusals.Expire(now_.mono);
  if (!job.over() && Expired(job.time_limit_at)) {
    job.time_limit_at.reset();
    StopJob(job, StopKind::kTimeLimit,
            "its time limit of " + SecondsText(double(job.spec.resources.time_limit_seconds)) +
                " is reached");
  }
  if (Expired(job.grow_at)) {
    job.grow_at.reset();
    reschedule_ = true;
  }
  if (job.gang && Expired(job.gang->store_exits_at)) MarkAttempt(job);
  if (job.gang && Expired(job.gang->stop_deadline)) StopExpired(job);
  if (job.gang && Expired(job.gang->fault_deadline)) FaultTimeoutOver(job);
  if (job.gang && Expired(job.gang->tier_deadline)) TierExpired(job);
  if (job.gang && Expired(job.gang->phase_deadline)) PhaseExpired(job);
}

void ControllerCore::TierExpired(JobEntry& job) {
  job.gang->tier_deadline.reset();
  Failure failure;
  failure.kind = CauseKind::kSlowTier;
  failure.at = now_.mono;
  failure.message = "with the processes of generation " +
                    std::to_string(job.attempt().generation - 1) +
                    " no step was finished in time; all processes restart";
  Fail(job, std::move(failure));
}

void ControllerCore::PhaseExpired(JobEntry& job) {
  Gang& gang = *job.gang;
  gang.phase_deadline.reset();
  const AttemptState state = job.attempt().state;
  const std::vector<NodeName> late = LateNodes(job);
  if (state == AttemptState::kAborting) {
    for (const NodeName& name : late) {
      // The job is not to wait for one that has said nothing all that time.
      if (nodes_.at(name).suspect) job.excluded.insert(name);
      Orphan(job, *FindMember(job, name));
    }
    return MaybeEndAttempt(job);
  }
  Failure failure;
  failure.at = now_.mono;
  if (!late.empty()) failure.node = late.front();
  if (state == AttemptState::kRunning) {
    failure.kind = CauseKind::kFormTimeout;
    failure.message = std::to_string(gang.formed.size()) + " of " + std::to_string(WorldSize(job)) +
                      " ranks found each other within " +
                      SecondsText(ToSeconds(options_.form_deadline));
  } else if (state == AttemptState::kLaunching) {
    failure.kind = CauseKind::kLaunchTimeout;
    const std::vector<RankRecord>& ranks = job.attempt().ranks;
    const auto first = std::find_if(ranks.begin(), ranks.end(), [](const RankRecord& rank) {
      return rank.state == RankState::kPrepared;
    });
    if (first != ranks.end()) failure.rank = first->rank;
    failure.message = "rank " + std::to_string(failure.rank) + " on " + failure.node.value +
                      " had no process within " + SecondsText(ToSeconds(options_.launch_deadline));
  } else {
    failure.kind = CauseKind::kPrepareTimeout;
    failure.message = "node " + failure.node.value + " was not prepared within " +
                      SecondsText(ToSeconds(options_.prepare_deadline));
  }
  // What others have trained is no fault of the job.
  if (job.record.best_step > 0) {
    for (const NodeName& node : late) Refuse(job, node, "it was not ready in time", false);
  }
  Fail(job, std::move(failure));
}

// --- marks ---

void ControllerCore::Mark(JobEntry& job) {
  marked_jobs_.insert(job.record.id);
  Changed(job);
}

void ControllerCore::MarkAttempt(JobEntry& job) {
  marked_attempts_.insert({job.record.id, job.attempt().generation});
  if (job.gang) job.gang->store_exits_at.reset();
  Mark(job);
}

void ControllerCore::Mark(NodeEntry& node) { marked_nodes_.insert(node.record.name); }

void ControllerCore::Changed(JobEntry& job) { changed_.insert(job.record.id); }

void ControllerCore::Put(const CheckpointRecord& checkpoint) {
  other_operations_.push_back(PutCheckpoint{checkpoint});
}

void ControllerCore::RecordEvent(const JobEntry& job, EventText text) {
  EventRecord event{next_seq_++,
                    now_.unix_ms,
                    job.record.id,
                    job.record.generation,
                    text.kind,
                    text.severity,
                    CutText(std::move(text.message), kMaxTextBytes)};
  changed_.insert(job.record.id);
  other_operations_.push_back(AppendEvent{event});
  events_.push_back(std::move(event));
  if (events_.size() > options_.max_events) events_.pop_front();
}

void ControllerCore::RecordClusterEvent(EventText text) {
  EventRecord event{next_seq_++,
                    now_.unix_ms,
                    {},
                    0,
                    text.kind,
                    text.severity,
                    CutText(std::move(text.message), kMaxTextBytes)};
  other_operations_.push_back(AppendEvent{event});
  events_.push_back(std::move(event));
  if (events_.size() > options_.max_events) events_.pop_front();
}

void ControllerCore::Move(JobEntry& job, JobEvent event) {
  job.record.state = ApplyOrDie(job.record.state, event, "job " + job.record.id.value);
  Mark(job);
}

void ControllerCore::Move(AttemptRecord& attempt, AttemptEvent event) {
  attempt.state = ApplyOrDie(
      attempt.state, event,
      "generation " + std::to_string(attempt.generation) + " of job " + attempt.job.value);
  // No Launch is said again after that.
  if (attempt.state != AttemptState::kLaunching) attempt.rendezvous_token.clear();
  MarkAttempt(jobs_.at(attempt.job));
}

void ControllerCore::Move(NodeEntry& node, NodeEvent event) {
  const bool usable = IsUsable(node.record);
  node.record.state = ApplyOrDie(node.record.state, event, "node " + node.record.name.value);
  unused_may_differ_ |= IsUsable(node.record) != usable;
  // A node that is only suspect makes room for no job.
  reschedule_ |= node.record.state != NodeState::kSuspect;
  Mark(node);
}

// --- look-ups ---

NodeEntry* ControllerCore::FindNode(const NodeName& name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

void ControllerCore::Send(const NodeName& node, CoordinatorMessage message) {
  const NodeEntry* entry = FindNode(node);
  // What a silent node misses is said again after its next Hello (nodes.cc).
  if (entry == nullptr || entry->session == 0) return;
  out_.sends.push_back({entry->session, node, std::move(message)});
}

JobEntry* ControllerCore::Fence(const NodeName& node, const JobId& id, Generation generation,
                                GangNode** member) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end() && found->second.gang &&
      found->second.attempt().generation == generation) {
    for (GangNode& candidate : found->second.gang->nodes) {
      if (candidate.name != node) continue;
      if (member != nullptr) *member = &candidate;
      return &found->second;
    }
  }
  out_.observations.push_back(StaleMessageObserved{});
  return nullptr;
}

JobEntry* ControllerCore::FenceRank(const NodeName& node, const JobId& id, Generation generation,
                                    int rank) {
  JobEntry* job = Fence(node, id, generation, nullptr);
  if (job == nullptr) return nullptr;
  if (rank < 0 || rank >= WorldSize(*job) || job->attempt().ranks[rank].node != node) {
    out_.observations.push_back(StaleMessageObserved{});
    return nullptr;
  }
  return job;
}

}  // namespace muster
