#include "coordinator/control/silence.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "coordinator/control/attempt_end.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/node_verdict.h"
#include "coordinator/control/readings.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

// Taken out of use by a decision, whose reason is shown for as long as it applies.
bool IsOutOfUse(NodeState state) {
  return state == NodeState::kDraining || state == NodeState::kDrained ||
         state == NodeState::kQuarantined;
}

constexpr std::size_t kMaxProbers = 3;
constexpr Duration kProbeTimeout = std::chrono::milliseconds(500);
constexpr Duration kProbeEvery = std::chrono::seconds(1);
constexpr Duration kCheckEvery = std::chrono::milliseconds(500);
// A timer that fires later than this did not sleep: the coordinator was stopped.
constexpr Duration kOversleep = std::chrono::milliseconds(500);

// Ranks elsewhere have lost a peer, no report explains it, and ranks of this node have not
// reported.
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

// Whether the end of a rank of the gang's node has not been reported.
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

// Checks fall on a common interval, so that one Tick checks all suspects.
TimePoint NextCheck(TimePoint now) {
  return TimePoint((now.time_since_epoch() / kCheckEvery + 1) * kCheckEvery);
}

void StartIndirectProbe(Transaction& tx, NodeEntry& node) {
  node.probe.sent = tx.now.mono;
  if (node.record.metrics_port == 0) return;
  ProbeRound round;
  round.id = ++tx.state.next_probe;
  round.sent = tx.now.mono;
  // Round robin, so that many silent nodes do not all go to the same few probers, which have a
  // limit of their own: a rack's nodes are neighbours by name, and fall silent together.
  auto next = tx.state.can_probe.upper_bound(tx.state.last_prober);
  while (round.probers.size() < std::min(kMaxProbers, tx.state.can_probe.size())) {
    if (next == tx.state.can_probe.end()) next = tx.state.can_probe.begin();
    tx.state.last_prober = *next++;
    round.probers.push_back({tx.state.last_prober, std::nullopt});
    tx.Send(tx.state.last_prober,
            Probe{.probe_id = round.id,
                  .node = node.record.name,
                  .address = node.record.address,
                  .port = node.record.metrics_port,
                  .timeout_ms = static_cast<int>(ToSeconds(kProbeTimeout) * 1000)});
  }
  node.probe = std::move(round);
}

void CloseStream(Transaction& tx, NodeEntry& node, const std::string& why) {
  tx.out.closes.push_back({node.session, Unavailable(why + "; connect again")});
  tx.state.sessions.erase(node.session);
  node.session = 0;
  const auto silence = std::chrono::round<std::chrono::milliseconds>(tx.now.mono - node.heard_at);
  node.record.last_seen_unix_ms = tx.now.unix_ms - silence.count();
  UpdateProbers(tx, node);
  GiveUpReadingsOf(tx, node.record.name);
}

void LoseNodeTo(Transaction& tx, JobEntry& job, NodeEntry& node, const std::string& reason) {
  if (!job.gang) return;
  const NodeName name = node.record.name;
  GangNode* member = FindMember(job, name);
  if (member == nullptr || member->quiesced) return;
  if (member->spare && job.attempt().state != AttemptState::kAborting) {
    return DropSpare(tx, job, name, "it was lost: " + reason);
  }
  const bool ranks_left = HasRanksLeft(job, *member);
  tx.Exclude(job, name);
  Orphan(tx, job, *member);
  if (ranks_left) {
    Fail(tx, job,
         {.kind = CauseKind::kNodeLost,
          .node = name,
          .message = "node " + name.value + " was lost: " + reason,
          .at = node.heard_at});
  }
  // The failure may have ended the attempt, and with it the gang.
  if (job.gang) MaybeEndAttempt(tx, job);
}

void LoseNode(Transaction& tx, NodeEntry& node, const std::string& reason) {
  node.suspect = false;
  node.check_at.reset();
  node.record.reason = reason;
  if (node.session != 0) CloseStream(tx, node, "given up as lost: " + reason);
  UpdateProbers(tx, node);
  tx.Move(node, NodeEvent::kLeaseExpired);
  tx.state.reschedule |= SharesDevices(tx.state, node);
  tx.RecordClusterEvent(
      {"node_lost", Severity::kError, "node " + node.record.name.value + " is lost: " + reason});
  for (const JobId& id : tx.state.holds.Holders(node.record.name)) {
    if (JobEntry* job = tx.FindJob(id)) LoseNodeTo(tx, *job, node, reason);
  }
}

}  // namespace

void UpdateProbers(Transaction& tx, const NodeEntry& node) {
  const NodeName& name = node.record.name;
  const bool speaks = node.session != 0 && !node.suspect;
  if (speaks) tx.state.can_probe.insert(name);
  if (!speaks) tx.state.can_probe.erase(name);
  if (node.suspect) tx.state.suspects.insert(name);
  if (!node.suspect) tx.state.suspects.erase(name);
}

void CompensateForStall(Transaction& tx, std::optional<TimePoint> due) {
  const TimePoint before = std::exchange(tx.state.handled_at, tx.now.mono);
  if (tx.now.mono - before < kOversleep) return;
  if (!due || tx.now.mono - *due < kOversleep) return;
  for (auto& [name, node] : tx.state.nodes) {
    if (node.heard_at != TimePoint()) node.heard_at += tx.now.mono - before;
  }
}

void MarkSuspect(Transaction& tx, NodeEntry& node, const std::string& why) {
  if (node.suspect) return;
  node.suspect = true;
  UpdateProbers(tx, node);
  if (!IsOutOfUse(node.record.state)) node.record.reason = why;
  tx.Move(node, NodeEvent::kDisconnect);
  tx.RecordClusterEvent({"node_suspect", Severity::kWarning,
                         "node " + node.record.name.value + ": " + why + "; other nodes probe it"});
  node.probe = {};
  StartIndirectProbe(tx, node);
  node.check_at = NextCheck(tx.now.mono);
}

void MarkAlive(Transaction& tx, NodeEntry& node) {
  node.check_at.reset();
  if (!std::exchange(node.suspect, false)) return;
  UpdateProbers(tx, node);
  if (!IsOutOfUse(node.record.state)) node.record.reason.clear();
  node.ready_at = tx.now.mono;
  tx.Move(node, NodeEvent::kHello);
  tx.RecordClusterEvent(
      {"node_back", Severity::kInfo, "node " + node.record.name.value + " responds again"});
}

void CheckSilence(Transaction& tx, NodeEntry& node) {
  if (node.session != 0 && !node.suspect && node.heard_at + kSuspectAfter <= tx.now.mono) {
    MarkSuspect(tx, node, "no message for " + SecondsText(ToSeconds(kSuspectAfter)));
  }
  if (!tx.Expired(node.check_at)) return;
  node.check_at = NextCheck(tx.now.mono);
  // All were silent because the coordinator's own network was down; the first node that returns can
  // be asked now.
  if (node.suspect && node.probe.probers.empty()) StartIndirectProbe(tx, node);
  DetectLostNode(tx, node);
  if (!node.suspect || !node.check_at) return;
  if (node.session != 0 && tx.now.mono - node.heard_at >= tx.options.lease) {
    CloseStream(tx, node, "no message for " + SecondsText(ToSeconds(tx.options.lease)));
  }
  if (tx.now.mono - node.probe.sent >= kProbeEvery) StartIndirectProbe(tx, node);
}

void DetectLostNode(Transaction& tx, NodeEntry& node) {
  NodeVerdictInput input;
  input.silence = tx.now.mono - node.heard_at;
  input.asked = !node.probe.probers.empty();
  bool all_answered = true;
  for (const ProbeRound::Prober& prober : node.probe.probers) {
    all_answered &= prober.outcome.has_value();
    input.answered += prober.outcome == ProbeOutcome::kAnswered ? 1 : 0;
    input.refused += prober.outcome == ProbeOutcome::kRefused ? 1 : 0;
    input.silent += prober.outcome == ProbeOutcome::kSilent ? 1 : 0;
    input.unreachable += prober.outcome == ProbeOutcome::kUnreachable ? 1 : 0;
  }
  input.complete = all_answered || tx.now.mono - node.probe.sent >= kProbeEvery;
  input.all_silent = tx.state.suspects.size() > 1 && tx.state.can_probe.empty();
  input.lease = tx.options.lease;
  const NodeName name = node.record.name;
  std::vector<JobId> bereft;
  // The verdict depends on them only if its host answers.
  if (input.refused + input.silent > 0) bereft = tx.state.holds.Holders(name);
  std::erase_if(bereft, [&](const JobId& id) {
    JobEntry* job = tx.FindJob(id);
    return job == nullptr || !LostAPeerOn(*job, name);
  });
  input.lost_peer = !bereft.empty();
  const SilenceVerdict verdict = DecideSilence(input);
  if (verdict.verdict == NodeVerdict::kLost) return LoseNode(tx, node, verdict.reason);
  if (verdict.verdict != NodeVerdict::kLostToJobs) return;
  for (const JobId& id : bereft) LoseNodeTo(tx, tx.job(id), node, verdict.reason);
}

void Handle(Transaction& tx, const NodeName& from, const ProbeResult& message) {
  NodeEntry* node = tx.FindNode(message.node);
  if (node == nullptr || !node->suspect || node->probe.id != message.probe_id) return;
  std::vector<ProbeRound::Prober>& probers = node->probe.probers;
  const auto prober = std::find_if(probers.begin(), probers.end(),
                                   [&](const auto& asked) { return asked.node == from; });
  if (prober == probers.end() || prober->outcome) return;
  prober->outcome = message.outcome;
  DetectLostNode(tx, *node);
}

}  // namespace muster::control
