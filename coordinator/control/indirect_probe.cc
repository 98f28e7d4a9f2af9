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
bool LostAPeerOn(JobEntry& job, const NodeName& name) {
  if (!job.gang) return false;
  bool symptom = false;
  for (const Failure& failure : job.gang->failures) {
    if (!failure.symptom()) return false;
    symptom |= failure.node != name;
  }
  if (!symptom) return false;
  const GangNode* member = FindMember(job, name);
  return member != nullptr && !member->quiesced && !member->spare;
}

// Whether a rank of the gang's node has not been heard to have ended.
bool HasRanksLeft(const JobEntry& job, const GangNode& member) {
  if (member.spare) return false;
  // Ranks lie block by block, by node rank.
  const AttemptRecord& attempt = job.attempts.back();
  const auto node_rank = static_cast<std::size_t>(&member - job.gang->nodes.data());
  const std::size_t per_node = attempt.ranks.size() / attempt.nodes.size();
  const auto first = attempt.ranks.begin() + static_cast<std::ptrdiff_t>(node_rank * per_node);
  return std::any_of(first, first + static_cast<std::ptrdiff_t>(per_node),
                     [](const RankRecord& rank) { return rank.state != RankState::kExited; });
}

// Checks fall on one beat, so that one Tick looks at all suspects.
TimePoint NextCheck(TimePoint now) {
  return TimePoint((now.time_since_epoch() / kCheckEvery + 1) * kCheckEvery);
}

}  // namespace

void ControllerCore::UpdateVoice(const NodeEntry& node) {
  const NodeName& name = node.record.name;
  const bool speaks = node.session != 0 && !node.suspect;
  if (speaks) speaking_.insert(name);
  if (!speaks) speaking_.erase(name);
  if (node.suspect) suspects_.insert(name);
  if (!node.suspect) suspects_.erase(name);
}

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
  UpdateVoice(node);
  if (!IsOutOfUse(node.record.state)) node.record.reason = why;
  Move(node, NodeEvent::kDisconnect);
  RecordClusterEvent(
      {"node_suspect", Severity::kWarning,
       "node " + node.record.name.value + ": " + why + "; other nodes are asked for it"});
  node.probe = {};
  StartIndirectProbe(node);
  node.check_at = NextCheck(now_.mono);
}

void ControllerCore::MarkAlive(NodeEntry& node) {
  node.check_at.reset();
  if (!std::exchange(node.suspect, false)) return;
  UpdateVoice(node);
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
  // In turn, so that many silent nodes do not all fall to the same few, which have a limit of their
  // own: a rack's nodes are neighbours by name, and fall silent together.
  auto next = speaking_.upper_bound(last_witness_);
  while (round.probers.size() < std::min(kMaxProbers, speaking_.size())) {
    if (next == speaking_.end()) next = speaking_.begin();
    last_witness_ = *next++;
    round.probers.push_back({last_witness_, std::nullopt});
    Send(last_witness_,
         Probe{round.id, node.record.name, node.record.address, node.record.metrics_port,
               static_cast<int>(ToSeconds(kProbeTimeout) * 1000)});
  }
  node.probe = std::move(round);
}

void ControllerCore::Handle(const NodeName& from, const ProbeResult& message) {
  NodeEntry* node = FindNode(message.node);
  if (node == nullptr || !node->suspect || node->probe.id != message.probe_id) return;
  std::vector<ProbeRound::Prober>& probers = node->probe.probers;
  const auto prober = std::find_if(probers.begin(), probers.end(),
                                   [&](const auto& asked) { return asked.node == from; });
  if (prober == probers.end() || prober->outcome) return;
  prober->outcome = message.outcome;
  DetectLostNode(*node);
}

void ControllerCore::CheckSilence(NodeEntry& node) {
  if (node.session != 0 && !node.suspect && node.heard_at + options_.suspect_after <= now_.mono) {
    MarkSuspect(node, "not a word for " + SecondsText(ToSeconds(options_.suspect_after)));
  }
  if (!Expired(node.check_at)) return;
  node.check_at = NextCheck(now_.mono);
  // All were silent, for it was our own network that was away; who is back first can be asked now.
  if (node.suspect && node.probe.probers.empty()) StartIndirectProbe(node);
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
  UpdateVoice(node);
  scrubs_.NodeLost(node.record.name);
}

void ControllerCore::DetectLostNode(NodeEntry& node) {
  NodeVerdictInput input;
  input.silence = now_.mono - node.heard_at;
  input.asked = !node.probe.probers.empty();
  bool all_answered = true;
  for (const ProbeRound::Prober& prober : node.probe.probers) {
    all_answered &= prober.outcome.has_value();
    input.answered += prober.outcome == ProbeOutcome::kAnswered ? 1 : 0;
    input.refused += prober.outcome == ProbeOutcome::kRefused ? 1 : 0;
    input.silent += prober.outcome == ProbeOutcome::kSilent ? 1 : 0;
    input.unreachable += prober.outcome == ProbeOutcome::kUnreachable ? 1 : 0;
  }
  input.complete = all_answered || now_.mono - node.probe.sent >= kProbeEvery;
  input.all_silent = suspects_.size() > 1 && speaking_.empty();
  input.lease = options_.lease;
  const NodeName name = node.record.name;
  std::vector<JobId> bereft;
  // Only where its host answers does the verdict depend on them.
  if (input.refused + input.silent > 0) bereft = slots_.Holders(name);
  std::erase_if(bereft, [&](const JobId& id) {
    const auto job = jobs_.find(id);
    return job == jobs_.end() || !LostAPeerOn(job->second, name);
  });
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
  UpdateVoice(node);
  Move(node, NodeEvent::kLeaseExpired);
  RecordClusterEvent(
      {"node_lost", Severity::kError, "node " + node.record.name.value + " is lost: " + reason});
  for (const JobId& id : slots_.Holders(node.record.name)) {
    if (const auto job = jobs_.find(id); job != jobs_.end()) LoseNodeTo(job->second, node, reason);
  }
}

void ControllerCore::LoseNodeTo(JobEntry& job, NodeEntry& node, const std::string& reason) {
  if (!job.gang) return;
  const NodeName name = node.record.name;
  GangNode* member = FindMember(job, name);
  if (member == nullptr || member->quiesced) return;
  if (member->spare && job.attempt().state != AttemptState::kAborting) {
    return DropSpare(job, name, "it was lost: " + reason);
  }
  const bool ranks_left = HasRanksLeft(job, *member);
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
