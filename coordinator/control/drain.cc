#include "coordinator/control/drain.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/strings.h"
#include "common/base/text.h"
#include "coordinator/control/answer.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/silence.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// Notices that one node may have at a time; a defective worker must not fill the memory.
constexpr std::size_t kMaxNotices = 32 + kMaxDevicesPerNode;

std::string_view Word(NodeNoticeKind kind) {
  switch (kind) {
    case NodeNoticeKind::kDrain: return "drain";
    case NodeNoticeKind::kMemoryPressure: return "memory";
    case NodeNoticeKind::kXid:
    case NodeNoticeKind::kDevicesInUse: return "device";
    case NodeNoticeKind::kDisk: return "disk";
    case NodeNoticeKind::kClear: return "clear";
  }
  return "other";
}

// Removes the notices that no longer hold; a drain or quarantine that they caused stays.
void ClearNotices(Transaction& tx, NodeEntry& node, const NodeNotice& clear) {
  std::set<std::string> standing;
  for (const std::string& detail : clear.standing)
    standing.insert(CutText(detail, kMaxReasonBytes));
  std::vector<NoticeRecord>& notices = node.record.notices;
  std::string over;
  std::erase_if(notices, [&](const NoticeRecord& notice) {
    if (standing.contains(notice.detail)) return false;
    over += (over.empty() ? "over: " : "; ") + notice.detail;
    tx.state.reschedule |= !notice.in_use.empty();
    return true;
  });
  if (over.empty()) return;
  if (notices.empty()) over += "; no notice is left";
  tx.Mark(node);
  tx.RecordClusterEvent(
      {"node_notice", Severity::kInfo, "node " + node.record.name.value + ": " + over});
}

std::vector<JobId> JobsOn(Transaction& tx, const NodeName& name) {
  std::vector<JobId> jobs;
  for (const JobId& id : tx.state.jobs_of.Of(name)) {
    const GangNode* member = FindMember(tx.job(id), name);
    if (member != nullptr && !member->spare && !member->quiesced) jobs.push_back(id);
  }
  return jobs;
}

std::int64_t UnixMillisIn(const Transaction& tx, double seconds) {
  return tx.now.unix_ms +
         std::chrono::duration_cast<std::chrono::milliseconds>(FromSeconds(seconds)).count();
}

void Drain(Transaction& tx, NodeEntry& node, DrainCause cause, const std::string& reason,
           double by_seconds) {
  NodeRecord& record = node.record;
  record.drain_cause = cause;
  record.drain_reason = CutText(reason, kMaxReasonBytes);
  record.drain_by_unix_ms = by_seconds > 0 ? UnixMillisIn(tx, by_seconds) : 0;
  if (record.state == NodeState::kLost) {
    record.reason = "lost, drain requested: " + record.drain_reason;
  } else if (record.state != NodeState::kDrained) {
    record.reason = "draining: " + record.drain_reason;
  }
  tx.Move(node, NodeEvent::kDrain);
  tx.RecordClusterEvent({"node_draining", Severity::kInfo,
                         "node " + record.name.value + " is drained: " + record.drain_reason});
  DrainJobs(tx, node);
}

// A node that is being drained without a deadline reports that it must be empty by one.
void ShortenDrainDeadline(Transaction& tx, NodeEntry& node, const std::string& detail,
                          double by_seconds) {
  // A notice is repeated, each time with the time that is left.
  constexpr std::int64_t kSameMillis = 1000;
  NodeRecord& record = node.record;
  const std::int64_t by = UnixMillisIn(tx, by_seconds);
  const bool sooner = record.drain_by_unix_ms == 0 || by + kSameMillis < record.drain_by_unix_ms;
  if (by_seconds <= 0 || !sooner) return;
  record.drain_by_unix_ms = by;
  tx.Mark(node);
  tx.RecordClusterEvent({"node_draining", Severity::kWarning,
                         "node " + record.name.value + " must be empty within " +
                             SecondsText(by_seconds) + ": " + detail});
  DrainJobs(tx, node);
}

void Quarantine(Transaction& tx, NodeEntry& node, const std::string& detail) {
  if (node.record.state == NodeState::kQuarantined) return;
  const NodeName name = node.record.name;
  tx.Move(node, NodeEvent::kQuarantine);
  node.record.reason = detail;
  tx.RecordClusterEvent(
      {"node_quarantined", Severity::kError,
       "nothing is placed on node " + name.value + " until 'muster undrain': " + detail});
  for (const JobId& id : tx.state.jobs_of.Of(name)) {
    JobEntry& job = tx.job(id);
    const GangNode* member = FindMember(job, name);
    if (member == nullptr || member->quiesced) continue;
    const bool aborting = job.attempt().state == AttemptState::kAborting;
    if (member->spare) {
      if (!aborting) DropSpare(tx, job, name, detail);
      continue;
    }
    for (const RankRecord& rank : job.attempt().ranks) {
      if (rank.node == name) job.gang->kill_ranks.insert(rank.rank);
    }
    Fail(tx, job,
         {.kind = CauseKind::kDeviceFault,
          .node = name,
          .message = "a device of node " + name.value + " has failed: " + detail,
          .at = tx.now.mono});
  }
}

std::vector<std::string> KnownDevices(const NodeEntry& node, const std::vector<std::string>& ids) {
  return DeviceIds(node, MaskOf(node, ids));
}

// Ranks and spares of the job that have one of the devices go on with others.
void TakeDevicesFrom(Transaction& tx, JobEntry& job, const GangNode& member,
                     const std::vector<std::string>& devices, const std::string& detail) {
  const auto has = [&devices](const std::vector<std::string>& own) {
    return std::ranges::find_first_of(own, devices) != own.end();
  };
  const AttemptRecord& attempt = job.attempts.back();
  const NodeName name = member.name;
  if (member.spare) {
    if (attempt.state != AttemptState::kAborting && has(DevicesOn(attempt, name)))
      DropSpare(tx, job, name, detail);
    return;
  }
  bool any = false;
  for (const RankRecord& rank : attempt.ranks) {
    if (rank.node != name || !has(DevicesOf(job, attempt, rank))) continue;
    job.gang->kill_ranks.insert(rank.rank);
    any = true;
  }
  if (!any) return;
  Fail(tx, job,
       {.kind = CauseKind::kDeviceFault,
        .node = name,
        .message = "a device of node " + name.value + " has failed: " + detail,
        .at = tx.now.mono});
}

// They take themselves out, not their node.
void BreakDevices(Transaction& tx, NodeEntry& node, const std::vector<std::string>& devices,
                  const std::string& detail) {
  std::vector<BrokenDevice>& broken = node.record.broken_devices;
  std::vector<std::string> fresh;
  for (const std::string& id : devices) {
    if (std::ranges::find(broken, id, &BrokenDevice::id) != broken.end()) continue;
    broken.push_back({.id = id, .reason = detail});
    fresh.push_back(id);
  }
  if (fresh.empty()) return;
  const NodeName name = node.record.name;
  tx.Mark(node);
  tx.RecordClusterEvent({"device_broken", Severity::kError,
                         "no job gets " + Join(fresh) + " of node " + name.value +
                             " until it boots again or 'muster undrain': " + detail});
  for (const JobId& id : tx.state.jobs_of.Of(name)) {
    JobEntry& job = tx.job(id);
    const GangNode* member = FindMember(job, name);
    if (member != nullptr && !member->quiesced) TakeDevicesFrom(tx, job, *member, fresh, detail);
  }
}

// A fatal error of unknown devices may be of any.
void OnDeviceError(Transaction& tx, NodeEntry& node, const NodeNotice& notice,
                   const std::string& detail) {
  const std::vector<std::string> devices = KnownDevices(node, notice.devices);
  if (devices.empty() || devices.size() < notice.devices.size())
    return Quarantine(tx, node, detail);
  BreakDevices(tx, node, devices, detail);
}

Result<NodeEntry*> NamedNode(Transaction& tx, const NodeName& name) {
  if (NodeEntry* node = tx.FindNode(name)) return node;
  return NotFound("no node '" + name.value + "'; 'muster nodes' lists them");
}

}  // namespace

void DrainJobs(Transaction& tx, NodeEntry& node) {
  const NodeName name = node.record.name;
  std::optional<TimePoint> deadline;
  if (const std::int64_t by = node.record.drain_by_unix_ms; by > 0) {
    deadline =
        tx.now.mono + std::chrono::milliseconds(std::max<std::int64_t>(0, by - tx.now.unix_ms));
  }
  const std::string why = "node " + name.value + " is drained: " + node.record.drain_reason;
  for (const JobId& id : tx.state.jobs_of.Of(name)) {
    JobEntry& job = tx.job(id);
    const GangNode* member = FindMember(job, name);
    if (member == nullptr || job.attempt().state == AttemptState::kAborting) continue;
    if (member->spare) {
      DropSpare(tx, job, name, why);
    } else if (job.attempt().state != AttemptState::kRunning) {
      EndOnPurpose(tx, job, CauseKind::kDrained, why);  // there is nothing to save yet
    } else {
      StopGang(tx, job, why, deadline);
    }
  }
}

void CompleteDrains(Transaction& tx) {
  const std::set<NodeName> draining = tx.state.draining;
  for (const NodeName& name : draining) {
    NodeEntry& node = tx.node(name);
    if (tx.state.holds.UsedSlots(name) > 0) continue;
    // What runs on a node is known from its Hello; a node that does not return is lost, not
    // drained.
    if (node.session == 0) continue;
    tx.Move(node, NodeEvent::kEmptied);
    node.record.reason = "drained: " + node.record.drain_reason;
    tx.RecordClusterEvent(
        {"node_drained", Severity::kInfo, "nothing runs on node " + name.value + " any more"});
  }
}

void On(Transaction& tx, const DrainRequested& request) {
  Answer(tx, request, [&]() -> Result<DrainAccepted> {
    MUSTER_ASSIGN_OR_RETURN(NodeEntry * node, NamedNode(tx, request.node));
    if (!Apply(node->record.state, NodeEvent::kDrain)) {
      return FailedPrecondition("node " + request.node.value + " is " +
                                std::string(Name(node->record.state)) +
                                ": no job is placed on it in this state");
    }
    MUSTER_RETURN_IF_ERROR(CheckBySeconds(request.by_seconds));
    std::vector<JobId> jobs = JobsOn(tx, request.node);
    Drain(tx, *node, request.cause,
          request.reason.empty() ? "requested " + ByWhom(tx, request.actor) : request.reason,
          request.by_seconds);
    return DrainAccepted{node->record.state, std::move(jobs)};
  });
}

void On(Transaction& tx, const UndrainRequested& request) {
  Answer(tx, request, [&]() -> Result<UndrainAccepted> {
    MUSTER_ASSIGN_OR_RETURN(NodeEntry * node, NamedNode(tx, request.node));
    NodeRecord& record = node->record;
    const bool undrains = Apply(record.state, NodeEvent::kUndrain).has_value();
    const bool mends = !record.broken_devices.empty();
    if (!undrains && record.drain_reason.empty() && !mends) {
      return FailedPrecondition("node " + request.node.value + " is " +
                                std::string(Name(record.state)) + ", not drained");
    }
    record.ClearDrain();
    record.reason.clear();
    record.broken_devices.clear();
    tx.state.reschedule = true;
    if (undrains) {
      tx.Move(*node, NodeEvent::kUndrain);
      node->ready_at = tx.now.mono;
      if (node->suspect) tx.Move(*node, NodeEvent::kDisconnect);
      // It may have been given up in the meantime, which the state of a drained node does not show.
      if (node->session == 0) MarkSuspect(tx, *node, "it is not connected");
    }
    tx.Mark(*node);
    tx.RecordClusterEvent(
        {"node_undrained", Severity::kInfo, "node " + record.name.value + " is in use again"});
    return UndrainAccepted{record.state};
  });
}

void Handle(Transaction& tx, const NodeName& name, const NodeNotice& notice) {
  NodeEntry& node = tx.node(name);
  NodeRecord& record = node.record;
  if (notice.kind == NodeNoticeKind::kClear) return ClearNotices(tx, node, notice);
  const std::string detail = CutText(notice.detail, kMaxReasonBytes);
  NoticeRecord entry{.kind = std::string(Word(notice.kind)), .detail = detail};
  if (notice.kind == NodeNoticeKind::kDevicesInUse) entry.in_use = notice.devices;
  const bool known = std::ranges::find(record.notices, entry) != record.notices.end();
  // The notice is repeated while it lasts; only the first one is recorded.
  if (!known && record.notices.size() < kMaxNotices) {
    // Another job may have been promised them.
    tx.state.reschedule |= !entry.in_use.empty();
    record.notices.push_back(std::move(entry));
    tx.Mark(node);
    tx.RecordClusterEvent({"node_notice", notice.fatal ? Severity::kError : Severity::kWarning,
                           "node " + name.value + ": " + detail});
  }
  if (notice.kind == NodeNoticeKind::kXid && notice.fatal) OnDeviceError(tx, node, notice, detail);
  if (notice.kind != NodeNoticeKind::kDrain) return;
  if (!record.drain_reason.empty())
    return ShortenDrainDeadline(tx, node, detail, notice.deadline_seconds);
  if (Apply(record.state, NodeEvent::kDrain))
    Drain(tx, node, notice.by_pilot ? DrainCause::kPilot : DrainCause::kNode, detail,
          notice.deadline_seconds);
}

}  // namespace muster::control
