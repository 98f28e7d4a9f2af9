// Nodes that are taken out of use: drained by a request or by their own notice, or quarantined.
// And the way a gang is stopped without a loss: at a step boundary, its state saved.

#include <algorithm>
#include <set>
#include <string_view>

#include "common/base/text.h"
#include "coordinator/control/core.h"

namespace muster {
namespace {

// Of a node at one time; a worker gone mad must not fill the memory.
constexpr std::size_t kMaxNotices = 32;
constexpr std::string_view kAfterWord = ": ";

bool AllExited(const AttemptRecord& attempt) {
  return std::all_of(attempt.ranks.begin(), attempt.ranks.end(),
                     [](const RankRecord& rank) { return rank.state == RankState::kExited; });
}

// Rises while ranks write a checkpoint or the trained model.
std::uint64_t Saved(const JobEntry& job) {
  std::uint64_t saved = 0;
  for (const RankProgress& rank : job.progress) {
    if (rank.phase == "checkpoint" || rank.phase == "exporting") saved += rank.stores;
  }
  for (const auto& [directory, checkpoint] : job.gang->writing) saved += checkpoint.shards.size();
  return saved;
}

std::string_view Word(NodeNoticeKind kind) {
  switch (kind) {
    case NodeNoticeKind::kDrain: return "drain";
    case NodeNoticeKind::kMemoryPressure: return "memory";
    case NodeNoticeKind::kXid: return "device";
    case NodeNoticeKind::kDisk: return "disk";
    case NodeNoticeKind::kClear: return "clear";
  }
  return "other";
}

}  // namespace

// --- requests and notices ---

void ControllerCore::On(const DrainRequested& request) {
  Reply reply{request.request, {}, {}};
  NodeEntry* node = FindNode(request.node);
  if (node == nullptr) {
    reply.status = NotFound("no node '" + request.node.value + "'; 'muster nodes' lists them");
  } else if (!Apply(node->record.state, NodeEvent::kDrain)) {
    reply.status = FailedPrecondition("node " + request.node.value + " is " +
                                      std::string(Name(node->record.state)) +
                                      ": nothing is placed on it as it is");
  } else if (!(request.by_seconds >= 0)) {
    reply.status = InvalidArgument("a drain's time limit cannot be negative");
  } else {
    DrainAccepted accepted;
    accepted.jobs = JobsOn(request.node);
    Drain(*node, request.cause, request.reason.empty() ? "asked for by a user" : request.reason,
          request.by_seconds);
    accepted.state = node->record.state;
    reply.body = std::move(accepted);
  }
  out_.replies.push_back(std::move(reply));
}

void ControllerCore::On(const UndrainRequested& request) {
  Reply reply{request.request, {}, {}};
  NodeEntry* node = FindNode(request.node);
  if (node == nullptr) {
    reply.status = NotFound("no node '" + request.node.value + "'; 'muster nodes' lists them");
  } else if (!Apply(node->record.state, NodeEvent::kUndrain) && node->record.drain_reason.empty()) {
    reply.status = FailedPrecondition("node " + request.node.value + " is " +
                                      std::string(Name(node->record.state)) + ", not drained");
  } else {
    NodeRecord& record = node->record;
    record.drain_reason.clear();
    record.drain_cause = DrainCause::kNone;
    record.drain_by_unix_ms = 0;
    record.reason.clear();
    if (Apply(record.state, NodeEvent::kUndrain)) {
      Move(*node, NodeEvent::kUndrain);
      node->ready_at = now_.mono;
      if (node->suspect) Move(*node, NodeEvent::kDisconnect);
      // It may have been given up meanwhile, of which a drained node's state tells nothing.
      if (node->session == 0) MarkSuspect(*node, "it is not connected");
    }
    Mark(*node);
    RecordClusterEvent(
        {"node_undrained", Severity::kInfo, "node " + record.name.value + " is in use again"});
    reply.body = UndrainAccepted{record.state};
  }
  out_.replies.push_back(std::move(reply));
}

void ControllerCore::Handle(const NodeName& name, const NodeNotice& notice) {
  NodeEntry& node = nodes_.at(name);
  NodeRecord& record = node.record;
  if (notice.kind == NodeNoticeKind::kClear) return ClearNotices(node, notice);
  const std::string detail = CutText(notice.detail, kMaxReasonBytes);
  const std::string text = std::string(Word(notice.kind)).append(kAfterWord) + detail;
  const bool known =
      std::find(record.notices.begin(), record.notices.end(), text) != record.notices.end();
  // It is repeated as long as it lasts; the first time is news.
  if (!known && record.notices.size() < kMaxNotices) {
    record.notices.push_back(text);
    Mark(node);
    RecordClusterEvent({"node_notice", notice.fatal ? Severity::kError : Severity::kWarning,
                        "node " + name.value + ": " + detail});
  }
  if (notice.kind == NodeNoticeKind::kXid && notice.fatal) Quarantine(node, detail);
  if (notice.kind != NodeNoticeKind::kDrain) return;
  if (!record.drain_reason.empty())
    return ShortenDrainDeadline(node, detail, notice.deadline_seconds);
  if (Apply(record.state, NodeEvent::kDrain))
    Drain(node, notice.by_pilot ? DrainCause::kPilot : DrainCause::kNode, detail,
          notice.deadline_seconds);
}

// What does not stand any more is over; a drain or a quarantine that it led to is not.
void ControllerCore::ClearNotices(NodeEntry& node, const NodeNotice& clear) {
  std::set<std::string> standing;
  for (const std::string& detail : clear.standing)
    standing.insert(CutText(detail, kMaxReasonBytes));
  std::vector<std::string>& notices = node.record.notices;
  std::string over;
  std::erase_if(notices, [&](const std::string& text) {
    const std::string detail = text.substr(text.find(kAfterWord) + kAfterWord.size());
    if (standing.contains(detail)) return false;
    over += (over.empty() ? "over: " : "; ") + detail;
    return true;
  });
  if (over.empty()) return;
  if (notices.empty()) over += "; all is well again";
  Mark(node);
  RecordClusterEvent(
      {"node_notice", Severity::kInfo, "node " + node.record.name.value + ": " + over});
}

// --- drain ---

std::vector<JobId> ControllerCore::JobsOn(const NodeName& name) {
  std::vector<JobId> jobs;
  for (const JobId& id : live_) {
    const GangNode* member = FindMember(jobs_.at(id), name);
    if (member != nullptr && !member->spare && !member->quiesced) jobs.push_back(id);
  }
  return jobs;
}

void ControllerCore::Drain(NodeEntry& node, DrainCause cause, const std::string& reason,
                           double by_seconds) {
  NodeRecord& record = node.record;
  record.drain_cause = cause;
  record.drain_reason = CutText(reason, kMaxReasonBytes);
  record.drain_by_unix_ms =
      by_seconds > 0 ? now_.unix_ms + static_cast<std::int64_t>(by_seconds * 1000) : 0;
  if (record.state == NodeState::kLost) {
    record.reason = "lost, and to be left alone: " + record.drain_reason;
  } else if (record.state != NodeState::kDrained) {
    record.reason = "draining: " + record.drain_reason;
  }
  Move(node, NodeEvent::kDrain);
  RecordClusterEvent({"node_draining", Severity::kInfo,
                      "node " + record.name.value + " is drained: " + record.drain_reason});
  DrainJobs(node);
}

// A node that is being drained at leisure says that it must be gone sooner.
void ControllerCore::ShortenDrainDeadline(NodeEntry& node, const std::string& detail,
                                          double by_seconds) {
  // A notice is repeated, each time with what is then left.
  constexpr std::int64_t kSameMillis = 1000;
  NodeRecord& record = node.record;
  const std::int64_t by = now_.unix_ms + static_cast<std::int64_t>(by_seconds * 1000);
  const bool sooner = record.drain_by_unix_ms == 0 || by + kSameMillis < record.drain_by_unix_ms;
  if (by_seconds <= 0 || !sooner) return;
  record.drain_by_unix_ms = by;
  Mark(node);
  RecordClusterEvent({"node_draining", Severity::kWarning,
                      "node " + record.name.value + " must be empty within " +
                          SecondsText(by_seconds) + ": " + detail});
  DrainJobs(node);
}

void ControllerCore::DrainJobs(NodeEntry& node) {
  const NodeName name = node.record.name;
  std::optional<TimePoint> deadline;
  if (const std::int64_t by = node.record.drain_by_unix_ms; by > 0) {
    deadline = now_.mono + std::chrono::milliseconds(std::max<std::int64_t>(0, by - now_.unix_ms));
  }
  const std::string why = "node " + name.value + " is drained: " + node.record.drain_reason;
  const std::set<JobId> live = live_;
  for (const JobId& id : live) {
    JobEntry& job = jobs_.at(id);
    const GangNode* member = FindMember(job, name);
    if (member == nullptr || job.attempt().state == AttemptState::kAborting) continue;
    if (member->spare) {
      DropSpare(job, name, why);
    } else if (job.attempt().state != AttemptState::kRunning) {
      EndOnPurpose(job, CauseKind::kDrained, why);  // there is nothing to save yet
    } else {
      StopGang(job, why, deadline);
    }
  }
}

void ControllerCore::CompleteDrains() {
  for (auto& [name, node] : nodes_) {
    if (node.record.state != NodeState::kDraining || slots_.Used(name) > 0) continue;
    // What is there is known from its Hello on; one that does not come back is lost, not drained.
    if (node.session == 0) continue;
    Move(node, NodeEvent::kEmptied);
    node.record.reason = "drained: " + node.record.drain_reason;
    RecordClusterEvent(
        {"node_drained", Severity::kInfo, "nothing runs on node " + name.value + " any more"});
  }
}

void ControllerCore::Quarantine(NodeEntry& node, const std::string& detail) {
  if (node.record.state == NodeState::kQuarantined) return;
  const NodeName name = node.record.name;
  Move(node, NodeEvent::kQuarantine);
  node.record.reason = detail;
  RecordClusterEvent(
      {"node_quarantined", Severity::kError,
       "nothing is placed on node " + name.value + " until 'muster undrain': " + detail});
  const std::set<JobId> live = live_;
  for (const JobId& id : live) {
    JobEntry& job = jobs_.at(id);
    const GangNode* member = FindMember(job, name);
    if (member == nullptr || member->quiesced) continue;
    const bool aborting = job.attempt().state == AttemptState::kAborting;
    if (member->spare) {
      if (!aborting) DropSpare(job, name, detail);
      continue;
    }
    Failure failure;
    failure.kind = CauseKind::kDeviceFault;
    failure.node = name;
    failure.message = "a device of node " + name.value + " has failed: " + detail;
    failure.at = now_.mono;
    for (const RankRecord& rank : job.attempt().ranks) {
      if (rank.node == name) job.gang->kill_ranks.insert(rank.rank);
    }
    Fail(job, std::move(failure));
  }
}

// --- stopping a gang ---

void ControllerCore::StopGang(JobEntry& job, const std::string& reason,
                              std::optional<TimePoint> deadline) {
  Gang& gang = *job.gang;
  gang.saved_at_stop = Saved(job);
  if (deadline) gang.stop_may_take_longer = false;
  if (deadline) gang.stop_deadline = std::min(gang.stop_deadline.value_or(*deadline), *deadline);
  if (std::exchange(gang.stopping, true)) return;
  gang.abort_reason = reason;
  RecordEvent(job, {"stopping_gang", Severity::kInfo,
                    reason + "; it stops at a step boundary and saves its state"});
  for (const GangNode& member : gang.nodes) SendStop(job, member);
}

void ControllerCore::SendStop(JobEntry& job, const GangNode& member) {
  if (member.spare || member.quiesced) return;
  Send(member.name, Stop{job.record.id, job.attempt().generation, job.gang->abort_reason});
}

// True: the exit is the stop's doing, and all that follows from it is done.
bool ControllerCore::ExitedByStop(JobEntry& job, const ProcessExit& exit) {
  const Gang& gang = *job.gang;
  if (!gang.stopping || job.attempt().state == AttemptState::kAborting) return false;
  // A command knows no better way to end than by the signal.
  const bool expected = exit.ok() || !job.spec.train || job.record.stop != StopKind::kNone;
  if (!expected) return false;
  if (!AllExited(job.attempt())) return true;
  GangStopped(job, gang.abort_reason);
  return true;
}

void ControllerCore::StopExpired(JobEntry& job) {
  Gang& gang = *job.gang;
  gang.stop_deadline.reset();
  if (job.attempt().state == AttemptState::kAborting) return MaybeEndAttempt(job);
  const std::uint64_t saved = Saved(job);
  const bool moved = std::exchange(gang.saved_at_stop, saved) != saved;
  if (gang.stop_may_take_longer && moved) {
    gang.stop_deadline = now_.mono + options_.stop_grace;
    return;
  }
  if (job.record.stop == StopKind::kSuspend) {
    job.record.reason += "; it had not stopped in time";
    Mark(job);
  }
  GangStopped(job, job.gang->abort_reason + "; it had not stopped in time");
}

void ControllerCore::GangStopped(JobEntry& job, const std::string& reason) {
  AttemptRecord& attempt = job.attempt();
  // Its last step was done by then: it was not cut short. A command does not tell; but one that
  // ended well before anybody asked it to had come to its end.
  const bool done = job.spec.train ? job.gang->finished : NoneAskedToStop(attempt);
  if (done && AllExitedWell(attempt)) {
    attempt.cause_kind = CauseKind::kFinished;
    attempt.cause = "every rank has finished";
    return BeginAbort(job, {attempt.cause, options_.cancel_grace});
  }
  EndOnPurpose(job, CauseKind::kDrained, reason);
}

}  // namespace muster
