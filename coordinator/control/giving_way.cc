#include "coordinator/control/giving_way.h"

#include <algorithm>
#include <map>
#include <string>

#include "common/base/strings.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/stopping.h"

namespace muster::control {
namespace {

// To save its state on a lent spare. A lost link is found within 3 s; so the job that takes the
// spare goes on within 5 s.
constexpr Duration kGiveBack = std::chrono::milliseconds(1500);

// Where nothing was measured yet.
constexpr double kUsualSave = 30;
constexpr double kUsualReload = 30;

std::int64_t PlacedFromQueue(const JobEntry& job) {
  const auto placed =
      std::find_if(job.attempts.rbegin(), job.attempts.rend(), [](const AttemptRecord& attempt) {
        return attempt.tier == Tier::kLaunch || attempt.tier == Tier::kRequeue;
      });
  const AttemptRecord& first = placed == job.attempts.rend() ? job.attempts.front() : *placed;
  // Later than the newest attempt where the clock was set back in between.
  return std::min(first.started_unix_ms, job.attempts.back().started_unix_ms);
}

// From its gang's end to its next step, as it took the last time.
double ReloadSeconds(const JobEntry& job) {
  const StageSeconds& seconds = job.attempts.back().seconds;
  const double sum = std::max(seconds.reform, 0.0) + std::max(seconds.load, 0.0) +
                     std::max(seconds.first_step, 0.0);
  return sum > 0 ? sum : kUsualReload;
}

bool MayBeVictim(const JobEntry& job) {
  const Running* running = job.gang ? In<Running>(*job.gang) : nullptr;
  return running != nullptr && !running->stop && !job.gang->finished &&
         job.record.state == JobState::kRunning;
}

std::string_view Why(ReclaimCause cause) {
  return cause == ReclaimCause::kClass ? "class: its class is higher"
                                       : "guarantee: its queue is within its guarantee";
}

TimePoint StopBy(const Transaction& tx, const JobEntry& job) {
  return MonotonicOf(tx.now, job.record.reclaim.by_unix_ms) - kAbortDeadline;
}

std::string ShrinkReason(const JobEntry& job) {
  std::vector<std::string> names;
  for (const NodeName& name : job.record.reclaim.gives_up) names.push_back(name.value);
  return "gives up " + Join(names) + " for job " + job.record.reclaim.claimant.value;
}

void GiveWay(Transaction& tx, const Reclaim& reclaim) {
  JobEntry& job = tx.job(reclaim.victim);
  if (!MayBeVictim(job)) return;
  JobRecord& record = job.record;
  const std::string claimant = NameOf(tx.job(reclaim.claimant));
  record.victim_unix_ms = tx.now.unix_ms;
  record.reclaim = {.claimant = reclaim.claimant,
                    .generation = job.attempt().generation,
                    .gives_up = reclaim.gives_up,
                    .by_unix_ms = UnixMillisOf(tx.now, tx.now.mono + StopAllowance(job))};
  tx.Mark(job);
  const std::string why =
      " (" + std::string(Why(reclaim.cause)) + "), at a cost of " + CostText(reclaim.cost);
  if (reclaim.to_nodes > 0) {
    const std::string nodes =
        std::to_string(reclaim.to_nodes) + (reclaim.to_nodes == 1 ? " node" : " nodes");
    tx.RecordEvent(
        job, {"shrinking", Severity::kInfo, "goes on with " + nodes + " for " + claimant + why});
    return StopGang(tx, job, ShrinkReason(job), StopBy(tx, job));
  }
  tx.RecordEvent(job, {"preempted", Severity::kWarning,
                       "preempted for " + claimant + why + "; " + kStopsAndSaves});
  const auto abort = std::chrono::duration_cast<std::chrono::milliseconds>(kAbortDeadline);
  record.stop_by_unix_ms = record.reclaim.by_unix_ms - abort.count();
  StopJob(tx, job, StopKind::kPreempt, "preempted for " + claimant);
}

}  // namespace

double VictimCost(const JobEntry& job, const Now& now) {
  std::int64_t durable = job.attempts.back().started_unix_ms;
  for (const CheckpointRecord& checkpoint : job.checkpoints)
    if (Usable(checkpoint) && checkpoint.committed_unix_ms <= now.unix_ms)
      durable = std::max(durable, checkpoint.committed_unix_ms);
  const double work = static_cast<double>(now.unix_ms - durable) / 1000;
  const double save =
      job.record.checkpoint_seconds > 0 ? job.record.checkpoint_seconds : kUsualSave;
  return WorldSize(job) * (std::max(work, 0.0) + save + ReloadSeconds(job));
}

bool IsGivingWay(const JobEntry& job) {
  return !job.record.reclaim.claimant.empty() && job.gang &&
         job.attempts.back().generation == job.record.reclaim.generation;
}

bool KeepsNodesAway(const State& state, const JobEntry& job) {
  const auto claimant = state.jobs.find(job.record.reclaim.claimant);
  return claimant != state.jobs.end() && claimant->second.promised_at.has_value();
}

void DropOldClaims(Transaction& tx) {
  for (const JobId& id : tx.state.claimed) {
    const JobEntry& job = std::as_const(tx).job(id);
    if (job.record.reclaim.claimant.empty() || IsGivingWay(job) || KeepsNodesAway(tx.state, job))
      continue;
    tx.job(id).record.reclaim = {};
    tx.Mark(tx.job(id));
  }
}

void DescribeVictim(const State& state, const Now& now, const JobEntry& job, RunningGang& gang) {
  gang.nodes = static_cast<int>(job.attempts.back().nodes.size());
  gang.least_nodes = std::min(gang.nodes, job.spec.min_nodes());
  gang.node_amounts = AmountsOf(job.spec.resources.per_node(), 1);
  if (!MayBeVictim(job)) return;
  const std::int64_t placed = PlacedFromQueue(job);
  std::int64_t from = placed + state.queues.preempt_after_seconds * 1000;
  if (const std::int64_t victim = job.record.victim_unix_ms; victim > 0)
    from = std::max(from, victim + state.queues.preempt_every_seconds * 1000);
  gang.victim_from = MonotonicOf(now, from);
  gang.placed = MonotonicOf(now, placed);
  // What is stored has milliseconds of another clock: the claimant's start is a little later.
  gang.leaves_in =
      std::chrono::ceil<std::chrono::seconds>(StopAllowance(job)) + std::chrono::seconds(1);
  gang.cost = VictimCost(job, now);
}

void GiveWay(Transaction& tx, const std::vector<Reclaim>& reclaims) {
  std::map<JobId, std::vector<std::string>> victims;  // by claimant
  for (const Reclaim& reclaim : reclaims) {
    GiveWay(tx, reclaim);
    const std::size_t nodes = reclaim.gives_up.size();
    const std::string what =
        reclaim.to_nodes == 0 ? "" : std::to_string(nodes) + " of the nodes of ";
    victims[reclaim.claimant].push_back(what + NameOf(tx.job(reclaim.victim)) + " (" +
                                        CostText(reclaim.cost) + ")");
  }
  for (auto& [id, names] : victims) {
    constexpr std::size_t kNamed = 5;
    std::string more;
    if (names.size() > kNamed) more = " and " + std::to_string(names.size() - kNamed) + " others";
    names.resize(std::min(names.size(), kNamed));
    tx.RecordEvent(tx.job(id),
                   {"reclaims", Severity::kInfo,
                    "these give way to it and save their state first: " + Join(names) + more});
  }
}

namespace {

void GiveSpareBack(Transaction& tx, const JobEntry& claimant, JobEntry& job, const NodeName& node) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(kGiveBack);
  const std::int64_t by = tx.now.unix_ms + left.count();
  JobRecord& record = job.record;
  if (record.stop == StopKind::kNone) {
    record.stop_by_unix_ms = by;
    const std::string why =
        "gives lent node " + node.value + " back, which " + NameOf(claimant) + " needs";
    tx.RecordEvent(job, {"preempted", Severity::kWarning, why});
    tx.RecordEvent(tx.job(claimant.record.id),
                   {"reclaims", Severity::kInfo,
                    "takes its spare " + node.value + " when " + NameOf(job) + " has left it"});
    return StopJob(tx, job, StopKind::kPreempt, why);
  }
  // It stops already, for another reason perhaps, which may take longer.
  if (!job.gang) return;
  if (Aborting* aborting = In<Aborting>(*job.gang); aborting && aborting->grace > kGiveBack) {
    aborting->grace = kGiveBack;
    for (int n = 0; n < static_cast<int>(job.gang->nodes.size()); ++n)
      if (!job.gang->nodes[n].quiesced) SendAbort(tx, job, n);
  }
  Running* running = In<Running>(*job.gang);
  const TimePoint deadline = tx.now.mono + kGiveBack;
  if (running == nullptr || !running->stop ||
      running->stop->deadline.value_or(TimePoint::max()) <= deadline)
    return;
  record.stop_by_unix_ms = by;
  ShortenStop(*running->stop, deadline);
  tx.Mark(job);
}

}  // namespace

void GiveSparesBack(Transaction& tx, const JobId& claimant, const std::vector<NodeName>& nodes) {
  for (const NodeName& node : nodes) {
    std::vector<JobId> borrowers;
    for (const auto& [id, hold] : tx.state.holds.On(node))
      if (hold.resources.use == HoldUse::kLent && hold.kind != HoldLedger::Kind::kOrphaned)
        borrowers.push_back(id);
    for (const JobId& id : borrowers)
      if (JobEntry* job = tx.FindJob(id); job != nullptr && !job->over())
        GiveSpareBack(tx, tx.job(claimant), *job, node);
  }
}

void GiveWayAgain(Transaction& tx, JobEntry& job) {
  const bool shrinks = IsGivingWay(job) && !job.record.reclaim.gives_up.empty();
  if (!shrinks || job.record.stop != StopKind::kNone || In<Running>(*job.gang) == nullptr) return;
  StopGang(tx, job, ShrinkReason(job), StopBy(tx, job));
}

}  // namespace muster::control
