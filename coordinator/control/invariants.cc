#include "coordinator/control/invariants.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "coordinator/control/deadlines.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/readings.h"
#include "coordinator/control/shares.h"
#include "coordinator/control/time_booking.h"

namespace muster::control {
namespace {

std::string BrokenGang(const State& state, const JobEntry& job) {
  const bool has_attempt =
      !job.attempts.empty() && job.attempts.back().state != AttemptState::kEnded;
  if (has_attempt != (job.gang != nullptr)) return "has an attempt that lives without a gang";
  if (!job.gang) return job.record.state == JobState::kRunning ? "runs without a gang" : "";
  if (job.at_rest()) return "is at rest with a gang";
  const AttemptRecord& attempt = job.attempts.back();
  if (attempt.generation != job.record.generation) return "has a gang of another generation";
  std::vector<NodeName> placed = attempt.nodes;
  placed.insert(placed.end(), attempt.spares.begin(), attempt.spares.end());
  const bool same = std::ranges::equal(job.gang->nodes, placed, {}, &GangNode::name);
  if (!same) return "has a gang of other nodes than its attempt";
  const bool lent_known = std::ranges::all_of(attempt.lent, [&](const NodeName& name) {
    return std::ranges::find(attempt.nodes, name) != attempt.nodes.end();
  });
  if (!lent_known) return "runs on a lent node that is none of its own";
  for (const GangNode& member : job.gang->nodes) {
    if (!member.quiesced && state.holds.Find(member.name, job.record.id) == nullptr)
      return "has no slots on node " + member.name.value;
  }
  const auto state_of = [](const auto& phase) { return phase.kState; };
  if (std::visit(state_of, job.gang->phase) != attempt.state)
    return "is in another phase than its attempt says";
  return "";
}

std::string BrokenJob(const State& state, const JobEntry& job) {
  if (state.live.contains(job.record.id) == job.over()) return "is over and live, or neither";
  if (state.with_gang.contains(job.record.id) != (job.gang != nullptr))
    return "has a gang that the scheduler does not count, or none that it does";
  if (state.aborting.contains(job.record.id) != (job.gang && In<Aborting>(*job.gang)))
    return "has a gang that ends, and is not known for it, or none";
  if (state.claimed.contains(job.record.id) == job.record.reclaim.claimant.empty())
    return "gives way, and is not known for it, or does not";
  if (state.archive.contains(job.record.id)) return "is archived and in memory";
  if (state.archive_times.Find(job.record.id) && !job.over()) return "is to be archived and live";
  if (std::string broken = BrokenGang(state, job); !broken.empty()) return broken;
  if (state.job_deadlines.Find(job.record.id) != DeadlineOf(job)) return "has a stale deadline";
  const int share = ShareOf(state, job);
  if (!job.over() &&
      (share < 0 || !state.shares.tree().queues[static_cast<std::size_t>(share)].leaf))
    return "counts in no queue, or in one that has others below it";
  if (job.waits_at != (state.shares.by_user() && job.pending() ? share : -1))
    return "waits, and is not counted for it, or is and does not";
  const bool owed = std::ranges::all_of(job.record.pending_release, [&](const NodeName& node) {
    return state.jobs_of.Has(node, job.record.id);
  });
  if (!owed) return "is missing in the index of a node that it may have processes on";
  for (const NodeName& node : job.excluded) {
    if (!state.jobs_of.Has(node, job.record.id))
      return "is missing in the index of a node that is excluded from it";
  }
  return "";
}

// An index by node beside the nodes, both in the order of names: a look-up for each node is one
// walk.
template <typename Index>
class InStep {
 public:
  explicit InStep(const Index& index) : at_(index.begin()), end_(index.end()) {}
  // The caller asks for the nodes in their order. nullptr: it is not in the index.
  const typename Index::value_type* Find(const NodeName& node) {
    while (at_ != end_ && NameOf(*at_) < node) ++at_;
    return at_ != end_ && NameOf(*at_) == node ? &*at_ : nullptr;
  }

 private:
  static const NodeName& NameOf(const NodeName& name) { return name; }
  template <typename Value>
  static const NodeName& NameOf(const std::pair<const NodeName, Value>& entry) {
    return entry.first;
  }

  typename Index::const_iterator at_;
  const typename Index::const_iterator end_;
};

struct NodeIndexes {
  InStep<std::set<NodeName>> can_probe;
  InStep<std::set<NodeName>> draining;
  InStep<std::map<NodeName, int>> ranks;
};

// No device is that of two gangs that go on, one of them on a lent spare perhaps.
std::string DeviceGivenTwice(const State& state, const NodeName& name) {
  std::set<std::string_view> given;
  for (const auto& [id, hold] : state.holds.On(name)) {
    if (hold.kind != HoldLedger::Kind::kGang || hold.resources.use == HoldUse::kShared) continue;
    const auto job = state.jobs.find(id);
    if (job == state.jobs.end() || !job->second.gang || In<Aborting>(*job->second.gang)) continue;
    for (const std::string& device : hold.resources.devices)
      if (!given.insert(device).second) return device;
  }
  return "";
}

std::string BrokenNode(const State& state, const NodeEntry& node, NodeIndexes& indexes) {
  const NodeName& name = node.record.name;
  const auto session = state.sessions.find(node.session);
  const bool known = session != state.sessions.end() && session->second == name;
  if (known != (node.session != 0)) return "has a session that is not its own";
  if (const std::string device = DeviceGivenTwice(state, name); !device.empty())
    return "gives device " + device + " to two gangs";
  if ((indexes.can_probe.Find(name) != nullptr) != (node.session != 0 && !node.suspect))
    return "speaks, or does not, against its state";
  if ((indexes.draining.Find(name) != nullptr) != (node.record.state == NodeState::kDraining))
    return "is draining, or is not, against its state";
  const std::optional<TimePoint> due = DeadlineOf(node);
  const std::optional<TimePoint> planned = state.node_deadlines.Find(name);
  if (due && (!planned || *planned > *due)) return "would be looked at too late";
  if (node.forget_at && node.record.state != NodeState::kLost)
    return "is to be forgotten, not lost";
  const auto* ranks = indexes.ranks.Find(name);
  if (node.ranks != (ranks == nullptr ? 0 : ranks->second))
    return "counts other ranks than are booked there";
  return "";
}

std::map<NodeName, int> BookedRanks(const State& state) {
  std::map<NodeName, int> ranks;
  for (const auto& [id, job] : state.jobs) {
    if (BookedAttempt(job) == 0) continue;
    for (const NodeName& node : job.attempts.back().nodes)
      ranks[node] += job.spec.resources.ranks_per_node;
  }
  return ranks;
}

std::string BrokenRecall(const State& state) {
  for (const auto& [id, job] : state.recalls.jobs) {
    if (!job.archived || state.jobs.contains(id))
      return "job " + id.value + " is in memory and recalled";
    if (NothingToRead(job)) return "job " + id.value + " was recalled and is not read";
  }
  return "";
}

std::string BrokenShares(const State& state) {
  std::vector<int> waiting(state.waiting_of.size());
  for (const auto& [id, job] : state.jobs)
    if (job.waits_at >= 0) ++waiting.at(static_cast<std::size_t>(job.waits_at));
  return waiting == state.waiting_of ? "" : "users have other numbers of waiting jobs";
}

// Nothing in memory leads to a job that is not there any more.
std::string BrokenReference(const State& state) {
  const auto known = [&state](const JobId& id) { return state.jobs.contains(id); };
  for (const auto& [id, job] : state.live)
    if (!known(id) || job != &state.jobs.at(id))
      return "live job " + id.value + " is not in memory";
  for (const auto& [id, job] : state.with_gang)
    if (!known(id) || job != &state.jobs.at(id))
      return "job " + id.value + " with a gang is not in memory";
  for (const std::set<JobId>* jobs : {&state.planned, &state.arrived})
    if (const auto left = std::ranges::find_if_not(*jobs, known); left != jobs->end())
      return "job " + left->value + ", which the scheduler considers, is not in memory";
  for (const auto& [key, id] : state.keys)
    if (!known(id)) return "key " + key + " leads to job " + id.value + ", which is not in memory";
  for (const auto& [directory, owner] : state.output_owners)
    if (!known(owner.job)) return directory + " belongs to job " + owner.job.value + ", which left";
  for (const auto& [node, jobs] : state.jobs_of.jobs()) {
    if (!std::ranges::all_of(jobs, known))
      return "node " + node.value + " leads to a job that left";
    if (!state.nodes.contains(node)) return "jobs lead to node " + node.value + ", which left";
  }
  const auto read = [&](const JobId& id) { return known(id) || state.recalls.jobs.contains(id); };
  for (const auto& [node, id] : state.readings.scrubbing)
    if (!read(id)) return "node " + node.value + " scrubs for job " + id.value + ", which left";
  for (const auto& [order, id] : state.readings.verifying)
    if (!read(id)) return "an order verifies for job " + id.value + ", which left";
  return "";
}

}  // namespace

std::string BrokenInvariant(const State& state) {
  for (const auto& [id, job] : state.jobs) {
    if (const std::string broken = BrokenJob(state, job); !broken.empty())
      return "job " + id.value + " " + broken;
  }
  const std::map<NodeName, int> ranks = BookedRanks(state);
  NodeIndexes indexes{.can_probe = InStep(state.can_probe),
                      .draining = InStep(state.draining),
                      .ranks = InStep(ranks)};
  for (const auto& [name, node] : state.nodes) {
    const std::string broken = BrokenNode(state, node, indexes);
    if (!broken.empty()) return "node " + name.value + " " + broken;
  }
  if (state.jobs.size() != state.order.size()) return "a job has no place in the order";
  if (std::string broken = BrokenShares(state); !broken.empty()) return broken;
  if (std::string broken = BrokenRecall(state); !broken.empty()) return broken;
  return BrokenReference(state);
}

}  // namespace muster::control
