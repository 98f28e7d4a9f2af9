#include "coordinator/control/scheduler_snapshot.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/control/gang_orders.h"
#include "coordinator/control/giving_way.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/queue_usage.h"

namespace muster::control {
namespace {

constexpr Duration kSuspectUntil = std::chrono::minutes(1);

// FNV-1a over numbers and texts.
class Digest {
 public:
  void Add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) AddByte(static_cast<unsigned char>(number >> (8 * i)));
  }
  void Add(std::string_view text) {
    for (const char c : text) AddByte(static_cast<unsigned char>(c));
    AddByte(0);
  }
  void Add(const NodeParts& parts) {
    Add(static_cast<std::uint64_t>(parts.slots));
    Add(parts.devices);
    Add(static_cast<std::uint64_t>(parts.cpus));
    Add(parts.memory_bytes);
  }
  // What decides whether a job may have the node, and which devices of it.
  void Add(const NodeInventory& inventory) {
    for (const Device& device : inventory.devices) {
      Add(device.kind);
      Add(device.memory_bytes);
      Add(static_cast<std::uint64_t>(device.shared));
      Add(device.link_domain);
    }
    Add(inventory.devices.size());
    for (const auto& [key, value] : inventory.labels) {
      Add(key);
      Add(value);
    }
    Add(inventory.labels.size());
    Add(inventory.topology.block);
    Add(inventory.topology.rack);
    Add(inventory.topology.switch_name);
  }
  // A number that programs take and people can copy: 15 digits.
  std::uint64_t value() const { return value_ >> 15; }

 private:
  void AddByte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

const NodeEntry* FindNode(const State& state, const NodeName& name) {
  const auto found = state.nodes.find(name);
  return found == state.nodes.end() ? nullptr : &found->second;
}

// A running job that lacks nodes or spares: what it requests from the scheduler.
bool WantsMoreNodes(const State& state, const JobEntry& job) {
  if (!job.gang || job.record.state != JobState::kRunning) return false;
  const Running* running = In<Running>(*job.gang);
  if (running == nullptr || running->stop || KeepsNodesAway(state, job)) return false;
  const AttemptRecord& attempt = job.attempts.back();
  const int missing = job.spec.resources.nodes - static_cast<int>(attempt.nodes.size());
  return missing > 0 || static_cast<int>(attempt.spares.size()) < job.spec.resources.spares;
}

// What survived SIGKILL may use a device of the job's hold, which no process of it can have then.
NodeParts PartsOf(const State& state, const NodeName& name, const HeldResources& held) {
  NodeParts parts{.slots = held.slots, .cpus = held.cpus, .memory_bytes = held.memory_bytes};
  if (held.devices.empty()) return parts;
  const NodeEntry* node = FindNode(state, name);
  if (node == nullptr) return parts;
  parts.devices = MaskOf(*node, held.devices) & WholeOf(state, *node).all.devices;
  for (const LeakedSlot& leaked : node->record.leaked)
    parts.devices &= ~MaskOf(*node, leaked.devices);
  return parts;
}

std::optional<Promise> PromiseOf(const State& state, const JobEntry& job) {
  if (!job.promised_at) return std::nullopt;
  const PromiseRecord& record = job.record.promise;
  Promise promise{.start = *job.promised_at, .nodes = record.nodes, .devices = {}};
  for (std::size_t i = 0; i < record.nodes.size(); ++i) {
    const NodeEntry* node = FindNode(state, record.nodes[i]);
    const bool known = node != nullptr && i < record.devices.size();
    promise.devices.push_back(known ? MaskOf(*node, record.devices[i]) : 0);
  }
  return promise;
}

// It goes on with the nodes that it has not given up.
void LeaveToClaimant(const JobEntry& job, GangRequest& request) {
  const std::vector<NodeName>& given = job.record.reclaim.gives_up;
  const auto kept = std::ranges::count_if(job.attempts.back().nodes, [&](const NodeName& name) {
    return std::ranges::find(given, name) == given.end();
  });
  request.nodes = std::max(static_cast<int>(kept), job.spec.min_nodes());
  request.min_nodes = std::min(request.min_nodes, request.nodes);
  request.exclude.insert(request.exclude.end(), given.begin(), given.end());
}

}  // namespace

bool FormerNodeSuspect(const State& state, const JobEntry& job) {
  if (job.attempts.empty()) return false;
  const std::vector<NodeName>& nodes = job.attempts.back().nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeName& name) {
    const auto node = state.nodes.find(name);
    return node != state.nodes.end() && node->second.record.state == NodeState::kSuspect &&
           !job.excluded.contains(name);
  });
}

namespace {

// Its queue and class are left out.
GangRequest DescribeRequest(const State& state, const Now& now, const JobEntry& job) {
  const ResourceSpec& resources = job.spec.resources;
  GangRequest request;
  request.job = job.record.id;
  request.demand = resources.per_node();
  request.priority = job.record.priority;
  request.length = LengthOf(job, now);
  request.share_spares = resources.share_spares;
  request.preemptible = job.spec.preemptible;
  request.submit_order = job.record.submit_order;
  request.exclude = job.backoff.Paused();
  for (const std::string& name : resources.exclude) request.exclude.push_back({name});
  if (!job.gang) {
    request.nodes = resources.nodes;
    request.spares = resources.spares;
    // A job starts whole. One that had a gang takes fewer nodes, unless its own node may return.
    const bool whole = job.attempts.empty() || FormerNodeSuspect(state, job);
    request.min_nodes = whole ? resources.nodes : job.spec.min_nodes();
    if (KeepsNodesAway(state, job)) LeaveToClaimant(job, request);
    request.recovering = !job.attempts.empty() && !job.waited;
    for (const auto& [name, hold] : state.holds.Parked(job.record.id)) {
      const HoldUse use = hold.resources.use;
      if (use == HoldUse::kShared) continue;  // it may take all of what is held there
      request.held.push_back({.node = name,
                              .parts = PartsOf(state, name, hold.resources),
                              .lent = use == HoldUse::kLent});
    }
    request.promise = PromiseOf(state, job);
    request.turn = job.turn.value_or(kNever);
    request.collecting = job.collecting;
    if (job.attempts.empty()) return request;
    request.former_nodes = job.attempts.back().nodes;
    request.preferred = job.attempts.back().spares;
    return request;
  }
  const AttemptRecord& attempt = job.attempts.back();
  const int missing = resources.nodes - static_cast<int>(attempt.nodes.size());
  request.nodes = 0;
  request.spares =
      missing > 0 ? missing : resources.spares - static_cast<int>(attempt.spares.size());
  request.share_spares &= missing <= 0;
  for (const GangNode& member : job.gang->nodes) request.exclude.push_back(member.name);
  request.domains = DomainsOf(attempt, state.nodes);
  const TopologyDemand& topology = request.demand.topology;
  if (const NodeEntry* first = FindNode(state, attempt.nodes.front());
      topology.within != TopologyLevel::kNone && first)
    request.place = PlaceOf(first->record.inventory, topology.within);
  return request;
}

// Where the job stands in the tree.
struct JobPlace {
  int queue = 0;
  int class_value = 0;
};

JobPlace PlaceIn(const ShareTree& shares, const JobEntry& job) {
  const PriorityClass* known = shares.tree().FindClass(ClassOf(job));
  return {.queue = std::max(0, shares.FindOrAny(QueueOf(job), job.record.owner)),
          .class_value = known == nullptr ? 0 : known->value};
}

GangRequest RequestAt(const State& state, const Now& now, const JobEntry& job, JobPlace place) {
  GangRequest request = DescribeRequest(state, now, job);
  request.queue = place.queue;
  request.class_value = place.class_value;
  return request;
}

// The nodes of its gang, its spares, and nodes where processes of older generations may be left.
std::vector<NodeName> NodesWithProcesses(const State& state, const JobEntry& job) {
  const std::set<NodeName>& held = state.holds.Nodes(job.record.id);
  std::vector<NodeName> names = job.attempts.back().nodes;
  std::erase_if(names, [&](const NodeName& name) { return !held.contains(name); });
  if (names.size() == held.size()) return names;
  const std::set<NodeName> gang(names.begin(), names.end());
  std::ranges::set_difference(held, gang, std::back_inserter(names));
  return names;
}

RunningGang GivenBy(const Now& now, const JobEntry& job, JobPlace place) {
  RunningGang given{.job = job.record.id, .queue = place.queue, .class_value = place.class_value};
  given.gives_way_to = job.record.reclaim.claimant;
  given.ends = MonotonicOf(now, job.record.reclaim.by_unix_ms);
  return given;
}

// Between two gangs of the job what it gives up is still held for its processes there.
void AddGivenBetweenGangs(const State& state, const Now& now, const JobEntry& job, JobPlace place,
                          std::vector<RunningGang>& gangs) {
  RunningGang given = GivenBy(now, job, place);
  for (const NodeName& name : job.record.reclaim.gives_up)
    if (const HoldLedger::Hold* hold = state.holds.Find(name, job.record.id);
        hold != nullptr && hold->resources.use == HoldUse::kOwn)
      given.parts.push_back({name, PartsOf(state, name, hold->resources)});
  if (!given.parts.empty()) gangs.push_back(std::move(given));
}

// What the job gives up for a claimant ends before the rest of its gang, and is one of its own.
void AddGangsOf(const State& state, const Now& now, const JobEntry& job, JobPlace place,
                std::vector<RunningGang>& gangs) {
  RunningGang gang{.job = job.record.id,
                   .queue = place.queue,
                   .class_value = place.class_value,
                   .amounts = AmountsOf(job),
                   .ends = job.ends_at.value_or(kNever)};
  gang.amounts.jobs = 1;
  const ReclaimRecord& reclaim = job.record.reclaim;
  const bool may_reclaim = state.queues.MayReclaim();
  if (may_reclaim) DescribeVictim(state, now, job, gang);
  RunningGang given = GivenBy(now, job, place);
  if (gang.ends == kNever && !may_reclaim && reclaim.claimant.empty()) {
    gangs.push_back(std::move(gang));
    return;
  }
  for (const NodeName& name : NodesWithProcesses(state, job)) {
    const HoldLedger::Hold* hold = state.holds.Find(name, job.record.id);
    const bool gives = !reclaim.claimant.empty() &&
                       (reclaim.gives_up.empty() ||
                        std::ranges::find(reclaim.gives_up, name) != reclaim.gives_up.end());
    // What it has of shared spares is free for nothing else then.
    const bool own = hold->resources.use == HoldUse::kOwn;
    const NodeParts parts = own ? PartsOf(state, name, hold->resources) : NodeParts();
    (gives ? given : gang).parts.push_back({name, parts});
  }
  if (IsGivingWay(job)) {
    given.amounts = reclaim.gives_up.empty() ? gang.amounts
                                             : AmountsOf(job.spec.resources.per_node(),
                                                         static_cast<int>(reclaim.gives_up.size()));
    gang.amounts -= given.amounts;
  }
  if (!given.parts.empty()) gangs.push_back(std::move(given));
  gangs.push_back(std::move(gang));
}

// Adds jobs to a snapshot.
class Collector {
 public:
  Collector(const State& state, const Now& now)
      : state_(state), now_(now), snapshot_{.now = now.mono, .queues = &state.shares.tree()} {}

  void AddGangs() {
    snapshot_.running.reserve(state_.with_gang.size());
    for (const auto& [id, job] : state_.with_gang) {
      AddGangsOf(state_, now_, *job, PlaceOfJob(*job), snapshot_.running);
      if (WantsMoreNodes(state_, *job)) AddRequest(*job);
    }
    for (const JobId& id : state_.claimed)
      if (const JobEntry& job = state_.jobs.at(id); !job.gang)
        AddGivenBetweenGangs(state_, now_, job, PlaceOfJob(job), snapshot_.running);
  }
  void AddWaiting(const JobEntry& job) {
    if (MayBePlaced(job)) AddRequest(job);
  }
  void AddRequest(const JobEntry& job) {
    snapshot_.requests.push_back(RequestAt(state_, now_, job, PlaceOfJob(job)));
  }
  SchedulerSnapshot Take(bool always_nodes) {
    if (always_nodes || !snapshot_.requests.empty()) AddCluster();
    return std::move(snapshot_);
  }

 private:
  JobPlace PlaceOfJob(const JobEntry& job) const { return PlaceIn(state_.shares, job); }
  void AddCluster() {
    if (state_.shares.tree().queues.size() > 1) snapshot_.usage = UsageOfQueues(state_);
    for (const auto& [name, node] : state_.nodes) {
      const bool suspect = node.record.state == NodeState::kSuspect;
      if (!suspect && !IsReady(node)) continue;
      snapshot_.nodes.push_back(CapacityOf(state_, node));
      // Until then it is back, or lost.
      if (suspect) snapshot_.nodes.back().usable_from = now_.mono + kSuspectUntil;
    }
  }

  const State& state_;
  const Now& now_;
  SchedulerSnapshot snapshot_;
};

}  // namespace

GangRequest RequestOf(const State& state, const Now& now, const JobEntry& job,
                      const ShareTree& shares) {
  return RequestAt(state, now, job, PlaceIn(shares, job));
}

SchedulerSnapshot SnapshotOf(const State& state, const Now& now, bool always_nodes) {
  Collector collector(state, now);
  collector.AddGangs();
  for (const auto& [id, job] : state.live) collector.AddWaiting(*job);
  return collector.Take(always_nodes);
}

SchedulerSnapshot SnapshotOfArrived(const State& state, const Now& now) {
  Collector collector(state, now);
  collector.AddGangs();
  std::set<JobId> jobs = state.planned;
  jobs.insert(state.arrived.begin(), state.arrived.end());
  for (const JobId& id : jobs) collector.AddWaiting(state.jobs.at(id));
  return collector.Take(/*always_nodes=*/false);
}

bool IsReady(const NodeEntry& node) {
  return node.record.state == NodeState::kReady && node.session != 0;
}

std::uint64_t IndexOf(const State& state, const Now& now) {
  const bool may_reclaim = state.queues.MayReclaim();
  Digest digest;
  digest.Add(state.queues_yaml);
  digest.Add(static_cast<std::uint64_t>(state.shares.by_user()));
  for (const auto& [name, node] : state.nodes) {
    digest.Add(name.value);
    digest.Add(IsReady(node) ? 0 : static_cast<std::uint64_t>(node.record.state) + 1);
    const NodeCapacity capacity = CapacityOf(state, node);
    digest.Add(capacity.all);
    digest.Add(capacity.free);
    digest.Add(capacity.shared);
    digest.Add(capacity.lent);
    digest.Add(node.record.inventory);
    digest.Add(node.record.domain());
  }
  // What else a job asks for never changes under its id.
  for (const auto& [id, live] : state.live) {
    const JobEntry& job = *live;
    const JobRecord& record = job.record;
    digest.Add(id.value);
    digest.Add(record.queue);
    digest.Add(record.priority_class);
    for (const std::int64_t number :
         {static_cast<std::int64_t>(record.priority), record.time_limit_seconds, record.generation,
          record.promise.start_unix_ms, static_cast<std::int64_t>(MayBePlaced(job)),
          static_cast<std::int64_t>(job.gang != nullptr)})
      digest.Add(static_cast<std::uint64_t>(number));
    if (!may_reclaim || !job.gang) continue;
    RunningGang gang;
    DescribeVictim(state, now, job, gang);
    digest.Add(static_cast<std::uint64_t>(gang.victim_from <= now.mono));
  }
  return digest.value();
}

}  // namespace muster::control
