// Silent nodes: suspected, looked at by other nodes, judged.

#include <algorithm>

#include "coordinator/control/core.h"
#include "coordinator/control/node_verdict.h"

namespace muster {
namespace {

// By somebody's decision, whose reason is told as long as it holds.
bool IsOutOfUse(NodeState state) {
  return state == NodeState::kDraining || state == NodeState::kDrained ||
         state == NodeState::kQuarantined;
}

constexpr std::size_t kMaxProbers = 3;
constexpr Duration kProbeTimeout = std::chrono::milliseconds(500);
constexpr Duration kProbeEvery = std::chrono::seconds(1);
constexpr Duration kCheckEvery = std::chrono::milliseconds(500);
// A timer that comes later than this has not slept: the coordinator has.
constexpr Duration kOversleep = std::chrono::milliseconds(500);

// Ranks elsewhere have lost a peer, nothing that was heard explains it, and ranks of this node have
// not been heard of.
bool LostAPeerOn(const JobEntry& job, const NodeName& name) {
  if (!job.gang) return false;
  const bool open = std::any_of(job.gang->nodes.begin(), job.gang->nodes.end(), [&](const auto& m) {
    return m.name == name && !m.quiesced && !m.spare;
  });
  bool symptom = false;
  for (const Failure& failure : job.gang->failures) {
    if (!failure.symptom()) return false;
    symptom |= failure.node != name;
  }
  return open && symptom;
}

}  // namespace

// Time in which the coordinator did not run is nobody's silence: what was said then still waits to
// be read.
void ControllerCore::CompensateForStall() {
  const TimePoint before = std::exchange(handled_at_, now_.mono);
  if (now_.mono - before < kOversleep) return;
  const std::optional<TimePoint> due = NextDeadline();
  if (!due || now_.mono - *due < kOversleep) return;
  for (auto& [name, node] : nodes_) {
    if (node.heard_at != TimePoint()) node.heard_at += now_.mono - before;
  }
}

void ControllerCore::MarkSuspect(NodeEntry& node, const std::string& why) {
  if (node.suspect) return;
  node.suspect = true;
  if (!IsOutOfUse(node.record.state)) node.record.reason = why;
  Move(node, NodeEvent::kDisconnect);
  RecordClusterEvent(
      {"node_suspect", Severity::kWarning,
       "node " + node.record.name.value + ": " + why + "; other nodes are asked for it"});
  node.probe = {};
  StartIndirectProbe(node);
  node.check_at = now_.mono + kCheckEvery;
}

void ControllerCore::MarkAlive(NodeEntry& node) {
  node.check_at.reset();
  if (!std::exchange(node.suspect, false)) return;
  if (!IsOutOfUse(node.record.state)) node.record.reason.clear();
  node.ready_at = now_.mono;
  Move(node, NodeEvent::kHello);
  RecordClusterEvent(
      {"node_back", Severity::kInfo, "node " + node.record.name.value + " is heard of again"});
}

void ControllerCore::StartIndirectProbe(NodeEntry& node) {
  node.probe.sent = now_.mono;
  if (node.record.metrics_port == 0) return;
  ProbeRound round;
  round.id = ++next_probe_;
  round.sent = now_.mono;
  // Those behind it by name, so that many silent nodes do not all fall to the same three.
  auto next = nodes_.upper_bound(node.record.name);
  for (std::size_t seen = 1; seen < nodes_.size() && round.asked < kMaxProbers; ++seen, ++next) {
    if (next == nodes_.end()) next = nodes_.begin();
    if (next->second.session == 0 || next->second.suspect) continue;
    ++round.asked;
    Send(next->first,
         Probe{round.id, node.record.name, node.record.address, node.record.metrics_port,
               static_cast<int>(ToSeconds(kProbeTimeout) * 1000)});
  }
  node.probe = std::move(round);
}

void ControllerCore::Handle(const NodeName&, const ProbeResult& message) {
  NodeEntry* node = FindNode(message.node);
  if (node == nullptr || !node->suspect || node->probe.id != message.probe_id) return;
  node->probe.outcomes.push_back(message.outcome);
  DetectLostNode(*node);
}

void ControllerCore::CheckSilence(NodeEntry& node) {
  if (node.session != 0 && !node.suspect && node.heard_at + options_.suspect_after <= now_.mono) {
    MarkSuspect(node, "not a word for " + SecondsText(ToSeconds(options_.suspect_after)));
  }
  if (!Expired(node.check_at)) return;
  node.check_at = now_.mono + kCheckEvery;
  // All were silent, for it was our own network that was away; who is back first can be asked now.
  if (node.suspect && node.probe.asked == 0) StartIndirectProbe(node);
  DetectLostNode(node);
  if (!node.suspect || !node.check_at) return;
  if (node.session != 0 && now_.mono - node.heard_at >= options_.lease) {
    CloseStream(node, "not a word for " + SecondsText(ToSeconds(options_.lease)));
  }
  if (now_.mono - node.probe.sent >= kProbeEvery) StartIndirectProbe(node);
}

void ControllerCore::CloseStream(NodeEntry& node, const std::string& why) {
  out_.closes.push_back({node.session, Unavailable(why + "; connect again")});
  sessions_.erase(node.session);
  node.session = 0;
  scrubs_.NodeLost(node.record.name);
}

void ControllerCore::DetectLostNode(NodeEntry& node) {
  NodeVerdictInput input;
  input.silence = now_.mono - node.heard_at;
  input.asked = node.probe.asked > 0;
  for (ProbeOutcome outcome : node.probe.outcomes) {
    input.answered += outcome == ProbeOutcome::kAnswered ? 1 : 0;
    input.refused += outcome == ProbeOutcome::kRefused ? 1 : 0;
    input.silent += outcome == ProbeOutcome::kSilent ? 1 : 0;
    input.unreachable += outcome == ProbeOutcome::kUnreachable ? 1 : 0;
  }
  input.complete =
      node.probe.outcomes.size() >= node.probe.asked || now_.mono - node.probe.sent >= kProbeEvery;
  int silent = 0;
  int speaking = 0;
  for (const auto& [name, other] : nodes_) {
    if (other.suspect) ++silent;
    if (other.session != 0 && !other.suspect) ++speaking;
  }
  input.all_silent = silent > 1 && speaking == 0;
  input.lease = options_.lease;
  const NodeName name = node.record.name;
  std::vector<JobId> bereft;
  for (const JobId& id : live_) {
    if (LostAPeerOn(jobs_.at(id), name)) bereft.push_back(id);
  }
  input.lost_peer = !bereft.empty();
  const NodeJudgement judgement = JudgeSilence(input);
  if (judgement.verdict == NodeVerdict::kLost) return LoseNode(node, judgement.reason);
  if (judgement.verdict != NodeVerdict::kLostToJobs) return;
  for (const JobId& id : bereft) LoseNodeTo(jobs_.at(id), node, judgement.reason);
}

void ControllerCore::LoseNode(NodeEntry& node, const std::string& reason) {
  node.suspect = false;
  node.check_at.reset();
  node.record.reason = reason;
  if (node.session != 0) CloseStream(node, "given up as lost: " + reason);
  Move(node, NodeEvent::kLeaseExpired);
  RecordClusterEvent(
      {"node_lost", Severity::kError, "node " + node.record.name.value + " is lost: " + reason});
  const std::set<JobId> live = live_;
  for (const JobId& id : live) LoseNodeTo(jobs_.at(id), node, reason);
}

void ControllerCore::LoseNodeTo(JobEntry& job, NodeEntry& node, const std::string& reason) {
  if (!job.gang) return;
  const NodeName name = node.record.name;
  GangNode* member = FindMember(job, name);
  if (member == nullptr || member->quiesced) return;
  if (member->spare && job.attempt().state != AttemptState::kAborting) {
    return DropSpare(job, name, "it was lost: " + reason);
  }
  const AttemptRecord& attempt = job.attempt();
  const bool ranks_left =
      std::any_of(attempt.ranks.begin(), attempt.ranks.end(), [&](const RankRecord& rank) {
        return rank.node == name && rank.state != RankState::kExited;
      });
  job.excluded.insert(name);
  Orphan(job, *member);
  if (ranks_left) {
    Failure failure;
    failure.kind = CauseKind::kNodeLost;
    failure.node = name;
    failure.message = "node " + name.value + " was lost: " + reason;
    failure.at = node.heard_at;
    Fail(job, std::move(failure));
  }
  // The failure may have ended the attempt, and with it the gang.
  if (job.gang) MaybeEndAttempt(job);
}

}  // namespace muster
