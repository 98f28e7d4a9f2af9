// Explanations: examples, and what must hold of each in random clusters.

#include "coordinator/scheduler/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = 1 << 20;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool OneIn(int n) { return Pick(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

// Nodes of different kinds, and the jobs on them.
class Cluster {
 public:
  struct Job {
    GangRequest request;
    std::optional<GangPlacement> placement;
    TimePoint started, ends;
  };

  TimePoint now;
  QueueTree tree = DefaultTree();
  std::vector<NodeInventory> inventories;
  std::vector<Job> jobs;

  void AddNode(NodeInventory inventory) { inventories.push_back(std::move(inventory)); }
  Job& Submit(GangRequest request) {
    request.job = JobId{"j" + std::to_string(next_)};
    request.submit_order = static_cast<std::uint64_t>(++next_);
    jobs.push_back({.request = std::move(request), .placement = {}, .started = {}, .ends = {}});
    return jobs.back();
  }

  NodeParts Whole(std::size_t node) const {
    const NodeInventory& has = inventories[node];
    return {.slots = kSlots,
            .devices = (DeviceMask{1} << has.devices.size()) - 1,
            .cpus = has.cpus,
            .memory_bytes = has.memory_bytes};
  }
  static NodeName NameOf(std::size_t node) { return NodeName{"n" + std::to_string(node)}; }

  SchedulerSnapshot Snapshot() const {
    SchedulerSnapshot snapshot{.now = now, .queues = &tree};
    for (std::size_t i = 0; i < inventories.size(); ++i)
      snapshot.nodes.push_back({.name = NameOf(i),
                                .inventory = &inventories[i],
                                .all = Whole(i),
                                .free = Whole(i),
                                .domain = {}});
    for (const Job& job : jobs) {
      if (!job.placement) {
        snapshot.requests.push_back(job.request);
        continue;
      }
      RunningGang gang{.queue = job.request.queue,
                       .amounts = job.request.LoadOf(job.request.nodes),
                       .ends = EndOf(job.started, job.request.length)};
      for (std::size_t i = 0; i < job.placement->nodes.size(); ++i) {
        const NodeName& name = job.placement->nodes[i];
        NodeCapacity& node = *std::ranges::find(snapshot.nodes, name, &NodeCapacity::name);
        const NodeDemand& demand = job.request.demand;
        const NodeParts parts{
            .slots = demand.ranks,
            .devices = job.placement->node_devices[i],
            .cpus = demand.cpus(),
            .memory_bytes = node.inventory->memory_bytes > 0 ? demand.memory_bytes() : 0};
        node.free.slots -= parts.slots;
        node.free.devices &= ~parts.devices;
        node.free.cpus -= parts.cpus;
        node.free.memory_bytes -= parts.memory_bytes;
        gang.parts.push_back({name, parts});
      }
      snapshot.running.push_back(gang);
    }
    return snapshot;
  }

  void RunPass() {
    const SchedulePlan plan = Plan(Snapshot());
    for (const GangPlacement& placement : plan.placements) {
      Job& job = Find(placement.job);
      job.placement = placement;
      job.started = now;
    }
    for (const WaitingJob& waiting : plan.waiting) {
      GangRequest& request = Find(waiting.job).request;
      request.promise = waiting.promise;
      request.collecting = waiting.collects;
      if (waiting.promise) request.turn = std::min(request.turn, waiting.promise->start);
    }
  }
  Job& Find(const JobId& id) {
    return *std::ranges::find_if(jobs, [&](const Job& job) { return job.request.job == id; });
  }
  std::vector<GangWithNodes> Gangs() const {
    std::vector<GangWithNodes> gangs;
    for (const Job& job : jobs)
      if (job.placement)
        gangs.push_back({.job = job.request.job,
                         .nodes = job.placement->nodes,
                         .ends = EndOf(job.started, job.request.length)});
    return gangs;
  }

 private:
  static constexpr int kSlots = 4;
  int next_ = 0;
};

NodeInventory RandomNode(Random& random) {
  NodeInventory node;
  for (int i = random.Pick(0, 4); i > 0; --i)
    node.devices.push_back({.id = "GPU-" + std::to_string(i),
                            .kind = random.OneIn(2) ? "A100" : "H100",
                            .memory_bytes = random.OneIn(2) ? 40 * kMiB : 80 * kMiB,
                            .shared = random.OneIn(8)});
  if (random.OneIn(2)) node.cpus = random.Pick(2, 10);
  if (random.OneIn(2)) node.memory_bytes = kMiB * static_cast<std::uint64_t>(random.Pick(2, 16));
  if (random.OneIn(2)) node.labels["pool"] = random.OneIn(2) ? "a" : "b";
  if (random.OneIn(3)) node.labels["zone"] = "x";
  if (!random.OneIn(4)) node.topology.rack = random.OneIn(2) ? "r1" : "r2";
  return node;
}

// `alike`: jobs that want nothing but slots, so that they wait for each other's ends.
GangRequest RandomJob(Random& random, const QueueTree& tree, int nodes, bool alike) {
  GangRequest job;
  job.nodes = random.OneIn(3) ? nodes : random.Pick(1, 2);
  job.demand.ranks = random.OneIn(3) ? random.Pick(1, 4) : random.Pick(1, 2);
  if (!alike && random.OneIn(2)) {
    job.demand.devices.per_rank = random.Pick(1, 2);
    if (random.OneIn(3)) job.demand.devices.kinds = {"A100"};
    if (random.OneIn(3)) job.demand.devices.min_memory_bytes = 60 * kMiB;
  }
  job.demand.cpus_per_rank = alike ? 1 : random.Pick(1, 3);
  if (!alike && random.OneIn(2))
    job.demand.memory_per_rank = kMiB / 2 * static_cast<std::uint64_t>(random.Pick(1, 9));
  if (!alike && random.OneIn(4))
    job.demand.labels.push_back({.key = "pool", .kind = LabelRule::Kind::kIn, .values = {"a"}});
  if (!alike && random.OneIn(6)) job.demand.labels.push_back({.key = "zone"});
  if (!alike && random.OneIn(3))
    job.demand.topology = {.within = TopologyLevel::kRack, .required = !random.OneIn(3)};
  if (!alike && random.OneIn(4)) job.exclude.push_back(Cluster::NameOf(0));
  if (!alike && random.OneIn(4)) job.exclude.push_back(Cluster::NameOf(1));
  do job.queue = random.Pick(0, static_cast<int>(tree.queues.size()) - 1);
  while (!tree.queues[static_cast<std::size_t>(job.queue)].leaf);
  if (random.OneIn(4))
    job.class_value = tree.classes[static_cast<std::size_t>(random.Pick(0, 2))].value;
  job.priority = random.Pick(0, 2);
  if (!random.OneIn(4)) job.length = seconds(random.Pick(60, 7200));
  return job;
}

void AddQueues(QueueTree& tree, Random& random) {
  tree.classes = {{"normal", 0}, {"low", -1}, {"high", 5}, {"urgent", 9}};
  for (int i = random.Pick(0, 3); i > 0; --i) {
    QueueSpec spec{.name = "q" + std::to_string(i)};
    if (tree.queues.size() > 1 && random.OneIn(3)) {
      spec.parent = static_cast<int>(tree.queues.size()) - 1;
      tree.queues.back().leaf = false;
    }
    if (random.OneIn(2)) spec.guarantee = {random.Pick(1, 6), random.Pick(1, 12)};
    if (random.OneIn(2))
      spec.ceiling = {std::max(spec.guarantee.gpus, random.Pick(1, 8)),
                      std::max(spec.guarantee.slots, random.Pick(2, 16))};
    spec.weight = random.Pick(1, 4);
    if (spec.weight > 3) spec.ceiling.jobs = 2;
    tree.queues.push_back(spec);
  }
}

SchedulerSnapshot With(SchedulerSnapshot snapshot, const GangRequest& request) {
  *std::ranges::find(snapshot.requests, request.job, &GangRequest::job) = request;
  return snapshot;
}

bool IsPlaced(const SchedulePlan& plan, const JobId& job) {
  return std::ranges::count(plan.placements, job, &GangPlacement::job) > 0;
}

// All variants of a key, the smallest change first.
std::map<ChangeKey, std::vector<GangRequest>> AllVariants(const GangRequest& job,
                                                          const QueueTree& tree,
                                                          const ExplainQuestion& question) {
  std::map<ChangeKey, std::vector<GangRequest>> all;
  GangRequest base = job;
  base.promise.reset();
  const auto add = [&](ChangeKey key, auto change) {
    GangRequest variant = base;
    change(variant);
    all[key].push_back(variant);
  };
  for (int n = job.nodes - 1; n > 0; --n) add(ChangeKey::kNodes, [n](auto& r) { r.nodes = n; });
  for (int n = job.demand.ranks - 1; n > 0; --n)
    add(ChangeKey::kRanksPerNode, [n](auto& r) { r.demand.ranks = n; });
  for (int n = job.demand.devices.per_rank - 1; n > 0; --n)
    add(ChangeKey::kGpusPerRank, [n](auto& r) { r.demand.devices.per_rank = n; });
  for (int n = job.demand.cpus_per_rank - 1; n > 0; --n)
    add(ChangeKey::kCpusPerRank, [n](auto& r) { r.demand.cpus_per_rank = n; });
  for (std::uint64_t n = (std::max<std::uint64_t>(job.demand.memory_per_rank, 1) - 1) / kMiB; n > 0;
       --n)
    add(ChangeKey::kMemoryPerRank, [n](auto& r) { r.demand.memory_per_rank = n * kMiB; });
  if (!job.demand.devices.kinds.empty())
    add(ChangeKey::kGpuKind, [](auto& r) { r.demand.devices.kinds.clear(); });
  if (job.demand.devices.min_memory_bytes > 0)
    add(ChangeKey::kGpuMemory, [](auto& r) { r.demand.devices.min_memory_bytes = 0; });
  const auto labels = static_cast<std::ptrdiff_t>(job.demand.labels.size());
  for (std::ptrdiff_t i = 0; i < labels; ++i)
    add(ChangeKey::kLabels, [i](auto& r) { r.demand.labels.erase(r.demand.labels.begin() + i); });
  if (labels > 1) add(ChangeKey::kLabels, [](auto& r) { r.demand.labels.clear(); });
  if (job.demand.topology.required && job.demand.topology.within != TopologyLevel::kNone)
    add(ChangeKey::kTopology, [](auto& r) { r.demand.topology.required = false; });
  if (job.exclude.size() > question.kept_away.size())
    add(ChangeKey::kExclude, [&](auto& r) { r.exclude = question.kept_away; });
  for (const int value : {0, 5, 9})
    if (value > job.class_value)
      add(ChangeKey::kClass, [value](auto& r) { r.class_value = value; });
  for (int i = 0; i < static_cast<int>(tree.queues.size()); ++i)
    if (std::ranges::count(question.queues, i) > 0)
      add(ChangeKey::kQueue, [i](auto& r) { r.queue = i; });
  return all;
}

// What tells variants of a key from each other.
auto Identity(const GangRequest& r) {
  return std::tuple(r.nodes, r.demand.ranks, r.demand.devices.per_rank, r.demand.cpus_per_rank,
                    r.demand.memory_per_rank, r.demand.devices.kinds,
                    r.demand.devices.min_memory_bytes, r.demand.labels.size(),
                    r.demand.labels.empty() ? "" : r.demand.labels[0].key,
                    r.demand.topology.required, r.exclude.size(), r.class_value, r.queue, r.length);
}

std::map<JobId, TimePoint> Starts(const SchedulerSnapshot& snapshot, const SchedulePlan& plan) {
  std::map<JobId, TimePoint> starts;
  for (const GangPlacement& each : plan.placements) starts[each.job] = snapshot.now;
  for (const WaitingJob& each : plan.waiting)
    starts[each.job] = each.promise ? each.promise->start : kNever;
  return starts;
}

struct Counts {
  std::map<ChangeKey, int> reported, missing;
  int delays = 0, within_guarantee = 0;
};

void CheckDelays(const SchedulerSnapshot& snapshot, const Change& change, Counts& counts) {
  std::map<JobId, TimePoint> wanted;
  const std::map<JobId, TimePoint> before = Starts(snapshot, Plan(snapshot));
  const SchedulerSnapshot changed = With(snapshot, change.request);
  const std::map<JobId, TimePoint> after = Starts(changed, Plan(changed));
  for (const GangRequest& other : snapshot.requests) {
    if (!other.promise || other.job == change.request.job) continue;
    const TimePoint at = after.at(other.job);
    if (at > other.promise->start && at > before.at(other.job)) wanted[other.job] = at;
  }
  std::map<JobId, TimePoint> got;
  for (const Delay& delay : change.delays) got[delay.job] = delay.later;
  EXPECT_EQ(got, wanted) << Name(change.key);
  counts.delays += static_cast<int>(got.size());
}

void CheckTimeLimit(const SchedulerSnapshot& snapshot, const GangRequest& job,
                    const ExplainQuestion& question, const Change* change, Random& random) {
  const auto starts = [&](Duration length) {
    GangRequest variant = job;
    variant.promise.reset();
    variant.length = length;
    return IsPlaced(Plan(With(snapshot, variant)), job.job);
  };
  if (change != nullptr) {
    const Duration length = change->request.length;
    EXPECT_TRUE(starts(length)) << "with " << ToSeconds(length) << " s";
    EXPECT_LT(length, job.length);
    if (length + seconds(1) < job.length) {
      EXPECT_FALSE(starts(length + seconds(1))) << "with one more than " << ToSeconds(length);
    }
    return;
  }
  const Duration most = std::min<Duration>(job.length, hours(3));
  for (int i = 0; i < 4; ++i) {
    const Duration length =
        i == 0 ? question.least_length
               : question.least_length +
                     seconds(random.Pick(0, std::max(1, static_cast<int>(ToSeconds(most)))));
    if (length >= job.length || length < question.least_length) continue;
    EXPECT_FALSE(starts(length)) << "with " << ToSeconds(length) << " s";
  }
}

void CheckExplanation(const Cluster& cluster, const GangRequest& job, Random& random,
                      Counts& counts) {
  const SchedulerSnapshot snapshot = cluster.Snapshot();
  ExplainQuestion question{.job = job.job};
  question.least_length = seconds(60);
  for (int i = 0; i < static_cast<int>(cluster.tree.queues.size()); ++i)
    if (i != job.queue && cluster.tree.queues[static_cast<std::size_t>(i)].leaf)
      question.queues.push_back(i);
  if (!job.exclude.empty() && random.OneIn(2)) question.kept_away = {job.exclude.back()};
  const std::vector<GangWithNodes> gangs = cluster.Gangs();
  const KnownPlan known(snapshot, gangs);
  const Explanation explanation = Explain(known, question);
  ASSERT_FALSE(explanation.placement);
  EXPECT_FALSE(explanation.causes.empty()) << WaitText(explanation.waiting.reason);
  const WaitingJob& waiting = *std::ranges::find(known.plan().waiting, job.job, &WaitingJob::job);
  EXPECT_EQ(explanation.waiting.reason.over_ceiling, waiting.reason.over_ceiling);
  EXPECT_EQ(explanation.waiting.promise, waiting.promise);
  EXPECT_EQ(explanation.waiting.collects, waiting.collects);
  std::map<ChangeKey, const Change*> reported;
  for (const Change& change : explanation.changes) reported[change.key] = &change;
  const auto limit = reported.find(ChangeKey::kTimeLimit);
  CheckTimeLimit(snapshot, job, question, limit == reported.end() ? nullptr : limit->second,
                 random);
  std::map<ChangeKey, std::vector<GangRequest>> all = AllVariants(job, cluster.tree, question);
  for (const auto& [key, change] : reported) {
    ++counts.reported[key];
    EXPECT_TRUE(key == ChangeKey::kTimeLimit || all.contains(key)) << Name(key);
    CheckDelays(snapshot, *change, counts);
  }
  for (const auto& [key, variants] : all) {
    const auto change = reported.find(key);
    bool found = false;
    for (const GangRequest& variant : variants) {
      const bool is_it =
          change != reported.end() && Identity(change->second->request) == Identity(variant);
      EXPECT_EQ(IsPlaced(Plan(With(snapshot, variant)), job.job), is_it)
          << Name(key) << " of " << job.job.value;
      found |= is_it;
      if (is_it) break;
    }
    EXPECT_EQ(found, change != reported.end()) << Name(key) << " of " << job.job.value;
    if (!found) ++counts.missing[key];
  }
}

// MUSTER_EXPLANATIONS: how many random clusters.
int Clusters() {
  const char* wanted = std::getenv("MUSTER_EXPLANATIONS");
  return wanted == nullptr ? 60 : std::atoi(wanted);
}

TEST(ExplanationProperties, EachChangeLetsTheJobStartNoSmallerOneDoesAndNoneIsLeftOut) {
  Counts counts;
  for (int seed = 0; seed < Clusters() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Cluster cluster;
    const bool alike = seed % 2 == 0;
    AddQueues(cluster.tree, random);
    for (int i = random.Pick(2, 6); i > 0; --i)
      cluster.AddNode(alike ? NodeInventory() : RandomNode(random));
    const int nodes = static_cast<int>(cluster.inventories.size());
    for (int pass = 0; pass < 8; ++pass) {
      cluster.now += seconds(random.Pick(0, 1800));
      // Some end early, some late, some never.
      std::erase_if(cluster.jobs, [&](const Cluster::Job& job) {
        return job.placement && cluster.now >= job.ends;
      });
      for (int n = random.Pick(1, 4); n > 0; --n) {
        Cluster::Job& job = cluster.Submit(RandomJob(random, cluster.tree, nodes, alike));
        job.ends = cluster.now + seconds(random.Pick(600, 7200));
      }
      cluster.RunPass();
      if (!alike && random.OneIn(6)) cluster.inventories[0].cpus = random.Pick(1, 6);
      for (const Cluster::Job& job : cluster.jobs) {
        const SchedulePlan plan = Plan(cluster.Snapshot());
        if (job.placement || !plan.placements.empty() || !random.OneIn(3)) continue;
        ASSERT_NO_FATAL_FAILURE(CheckExplanation(cluster, job.request, random, counts));
      }
    }
  }
  if (HasFailure()) return;
  for (int key = 0; key <= static_cast<int>(ChangeKey::kQueue); ++key) {
    const auto each = static_cast<ChangeKey>(key);
    EXPECT_GT(counts.reported[each], 0) << Name(each);
    if (each != ChangeKey::kTimeLimit) {
      EXPECT_GT(counts.missing[each], 0) << Name(each);
    }
  }
  EXPECT_GT(counts.delays, 0);
}

// --- a record beside passes of one's own ---

// All that a probe could find at a turn.
std::string Found(const Turn& turn, const SchedulerSnapshot& snapshot) {
  const Amounts amounts = turn.probe.AmountsOf(turn.probe.least());
  std::ostringstream text;
  text << turn.entitled << turn.endangers_promises;
  for (int i = 0; i < static_cast<int>(snapshot.queues->queues.size()); ++i)
    text << " " << turn.loads.Used(i).gpus << "/" << turn.loads.Used(i).slots << "/"
         << turn.guaranteed.IsEntitled(i, amounts) << "/"
         << turn.loads.OverFrom(i, amounts).time_since_epoch().count();
  for (const PlannedNode& node : turn.nodes) {
    text << "\n" << node.capacity.name.value << " for " << node.ReservedFor().value;
    std::string last;  // a search for victims may leave steps that are none
    for (std::size_t i = 0; i < node.free.size(); ++i) {
      const auto& [from, free] = node.free.at(i);
      std::ostringstream parts;
      parts << free.slots << " " << free.devices << " " << free.cpus << " " << free.memory_bytes;
      if (std::exchange(last, parts.str()) != parts.str())
        text << ", " << from.time_since_epoch().count() << ": " << parts.str();
    }
  }
  return text.str();
}

struct Asked {
  std::vector<std::vector<std::string>> found;  // by each probe, at turns that differ
  bool was_recorded = false;
};
Asked AskAll(const PassRecord& record, const GangRequest* own,
             const std::vector<GangRequest>& probes) {
  Asked asked{.found = std::vector<std::vector<std::string>>(probes.size())};
  asked.was_recorded = AskAtTurns(record, own, probes, [&](const Turn& turn) {
    std::vector<std::string>& found =
        asked.found[static_cast<std::size_t>(&turn.probe - probes.data())];
    const std::string now = Found(turn, record.snapshot());
    if (found.empty() || found.back() != now) found.push_back(now);
    return !turn.entitled ||
           turn.guaranteed.IsEntitled(turn.probe.queue, turn.probe.AmountsOf(turn.probe.least()));
  });
  return asked;
}

// The job in its own turn, and those that it would have in other queues and classes.
std::vector<GangRequest> ProbesOf(GangRequest job, const QueueTree& tree) {
  job.promise.reset();
  std::vector<GangRequest> probes = {job};
  for (const int value : {0, 5, 9}) {
    probes.push_back(job);
    probes.back().class_value = value;
    if (value <= job.class_value) probes.pop_back();
  }
  for (int i = 0; i < static_cast<int>(tree.queues.size()); ++i) {
    if (i == job.queue || !tree.queues[static_cast<std::size_t>(i)].leaf) continue;
    probes.push_back(job);
    probes.back().queue = i;
  }
  return probes;
}

// Beside jobs that wait: one recovers, gangs give way to another one, others may give way.
void Disturb(SchedulerSnapshot& snapshot, const Cluster& cluster, Random& random) {
  const auto any = [&](auto& list) -> auto& {
    return list[static_cast<std::size_t>(random.Pick(0, static_cast<int>(list.size()) - 1))];
  };
  std::size_t i = 0;
  for (const Cluster::Job& job : cluster.jobs) {
    if (!job.placement) continue;
    RunningGang& gang = snapshot.running[i++];
    gang.job = job.request.job;
    gang.class_value = job.request.class_value;
    gang.victim_from = random.OneIn(4) ? kNever : snapshot.now;
    gang.placed = job.started;
    gang.nodes = gang.least_nodes = static_cast<int>(gang.parts.size());
    gang.node_amounts = job.request.AmountsOf(1);
    gang.leaves_in = seconds(120);
    gang.cost = random.Pick(1, 9);
  }
  if (snapshot.requests.empty()) return;
  if (!snapshot.running.empty() && random.OneIn(3))
    any(snapshot.running).gives_way_to = any(snapshot.requests).job;
  if (random.OneIn(3)) {
    GangRequest& fallen = any(snapshot.requests);
    fallen.recovering = true;
    fallen.promise.reset();
    fallen.turn = kNever;
  }
}

// --- changes with which gangs give way ---

// The victims of the job, its start, and whether it starts at once.
struct Outcome {
  bool placed = false;
  std::map<JobId, std::vector<NodeName>> victims;  // what they give up
  TimePoint start = kNever;
  auto operator<=>(const Outcome&) const = default;
};
Outcome OutcomeOf(const SchedulePlan& plan, const JobId& job) {
  Outcome outcome{.placed = IsPlaced(plan, job)};
  for (const Reclaim& reclaim : plan.reclaims)
    if (reclaim.claimant == job) outcome.victims[reclaim.victim] = reclaim.gives_up;
  const auto waiting = std::ranges::find(plan.waiting, job, &WaitingJob::job);
  if (!outcome.victims.empty() && waiting != plan.waiting.end() && waiting->promise)
    outcome.start = waiting->promise->start;
  return outcome;
}

struct ReclaimCounts {
  std::map<ChangeKey, int> reported;
  int starts = 0, none = 0, has_victims = 0;
};

void CheckReclaiming(const Cluster& cluster, const SchedulerSnapshot& snapshot,
                     const GangRequest& job, ReclaimCounts& counts) {
  ExplainQuestion question{.job = job.job, .least_length = seconds(60)};
  for (int i = 0; i < static_cast<int>(cluster.tree.queues.size()); ++i)
    if (i != job.queue && cluster.tree.queues[static_cast<std::size_t>(i)].leaf)
      question.queues.push_back(i);
  const std::vector<GangWithNodes> gangs = cluster.Gangs();
  const KnownPlan known(snapshot, gangs);
  const Explanation explanation = Explain(known, question);
  const bool has_victims =
      !OutcomeOf(known.plan(), job.job).victims.empty() ||
      std::ranges::count(snapshot.running, job.job, &RunningGang::gives_way_to) > 0;
  counts.has_victims += has_victims ? 1 : 0;
  for (const auto& [key, variants] : AllVariants(job, cluster.tree, question)) {
    SCOPED_TRACE(std::string(Name(key)) + " of " + job.job.value);
    const auto change = std::ranges::find(explanation.changes, key, &Change::key);
    const GangRequest* starts = nullptr;  // the first of them
    const GangRequest* reclaims = nullptr;
    Outcome expected;
    for (const GangRequest& variant : variants) {
      const Outcome outcome = OutcomeOf(Plan(With(snapshot, variant)), job.job);
      if (outcome.placed && starts == nullptr) starts = &variant;
      if (outcome.victims.empty() || reclaims != nullptr) continue;
      reclaims = &variant;
      expected = outcome;
    }
    const GangRequest* wanted = starts != nullptr ? starts : has_victims ? nullptr : reclaims;
    ASSERT_EQ(change != explanation.changes.end(), wanted != nullptr);
    ++(wanted == nullptr ? counts.none : starts != nullptr ? counts.starts : counts.reported[key]);
    if (wanted == nullptr) continue;
    EXPECT_EQ(Identity(change->request), Identity(*wanted));
    Outcome got{.victims = {}, .start = change->start};
    for (const Reclaim& reclaim : change->reclaims) got.victims[reclaim.victim] = reclaim.gives_up;
    EXPECT_TRUE(got == (starts != nullptr ? Outcome() : expected))
        << ToSeconds(got.start - cluster.now) << " s, " << got.victims.size() << " victims, not "
        << ToSeconds(expected.start - cluster.now) << " s, " << expected.victims.size();
  }
}

struct RecordCounts {
  int recorded = 0, not_recorded = 0;  // jobs that wait
  int added = 0, not_added = 0, placed = 0, promised = 0, reclaims = 0, endangers = 0;
};

void CheckAdded(const PassRecord& record, const SchedulePlan& plan, const GangRequest& job,
                RecordCounts& counts) {
  const std::optional<AddedJob> added = PlanAdded(record, job);
  ++(added ? counts.added : counts.not_added);
  SchedulerSnapshot snapshot = record.snapshot();
  snapshot.requests.push_back(job);
  const SchedulePlan whole = Plan(snapshot);
  const std::map<JobId, TimePoint> before = Starts(snapshot, plan), after = Starts(snapshot, whole);
  const SchedulePlan partly = PlanPromises(record.snapshot(), &job);
  const std::map<JobId, TimePoint> partly_after = Starts(snapshot, partly);
  for (const GangRequest& each : record.snapshot().requests) {
    if (!each.promise) continue;
    EXPECT_EQ(partly_after.at(each.job), after.at(each.job)) << each.job.value;
    if (added && !added->endangers_promises) {
      EXPECT_EQ(before.at(each.job), after.at(each.job)) << each.job.value;
    }
  }
  if (!added) return;
  counts.endangers += added->endangers_promises;
  ASSERT_EQ(added->plan.placements.size() + added->plan.waiting.size(), 1u);
  const auto placed = std::ranges::find(whole.placements, job.job, &GangPlacement::job);
  ASSERT_EQ(placed == whole.placements.end(), added->plan.placements.empty());
  if (placed != whole.placements.end()) {
    EXPECT_EQ(added->plan.placements[0].nodes, placed->nodes);
    EXPECT_EQ(added->plan.placements[0].node_devices, placed->node_devices);
    EXPECT_EQ(added->plan.placements[0].spares, placed->spares);
    ++counts.placed;
    return;
  }
  const WaitingJob& is = added->plan.waiting[0];
  const WaitingJob& should = *std::ranges::find(whole.waiting, job.job, &WaitingJob::job);
  EXPECT_EQ(is.promise, should.promise);
  EXPECT_EQ(is.collects, should.collects);
  EXPECT_EQ(is.is_behind_planned, should.is_behind_planned);
  EXPECT_EQ(is.reason, std::ranges::find(partly.waiting, job.job, &WaitingJob::job)->reason);
  counts.promised += is.promise ? 1 : 0;
  std::vector<JobId> victims;
  for (const Reclaim& reclaim : added->plan.reclaims) victims.push_back(reclaim.victim);
  for (const Reclaim& reclaim : whole.reclaims)
    if (reclaim.claimant == job.job) {
      EXPECT_EQ(std::erase(victims, reclaim.victim), 1u);
      ++counts.reclaims;
    }
  EXPECT_THAT(victims, IsEmpty());
}

void CheckRecord(const Cluster& cluster, Random& random, RecordCounts& counts) {
  SchedulerSnapshot snapshot = cluster.Snapshot();
  if (random.OneIn(2)) Disturb(snapshot, cluster, random);
  PassRecord record(snapshot);
  const SchedulePlan plan = Plan(record);
  const PassRecord none(snapshot);
  for (const GangRequest& request : snapshot.requests) {
    if (request.recovering || !random.OneIn(4)) continue;
    const std::vector<GangRequest> probes = ProbesOf(request, cluster.tree);
    const Asked asked = AskAll(record, &request, probes);
    ++(asked.was_recorded ? counts.recorded : counts.not_recorded);
    EXPECT_EQ(asked.found, AskAll(none, &request, probes).found) << request.job.value;
  }
  GangRequest job = RandomJob(random, cluster.tree, 3, random.OneIn(2));
  job.job = JobId{"new"};
  job.submit_order = 1'000'000;
  job.spares = random.Pick(0, 1);
  if (random.OneIn(3)) job.class_value = 9;
  const std::vector<GangRequest> probes = ProbesOf(job, cluster.tree);
  EXPECT_EQ(AskAll(record, nullptr, probes).found, AskAll(none, nullptr, probes).found);
  ASSERT_NO_FATAL_FAILURE(CheckAdded(record, plan, job, counts));
}

TEST(ExplanationProperties, ARecordHasWhatAPassOfItsOwnFindsAtEachTurn) {
  RecordCounts counts;
  for (int seed = 0; 3 * seed < 2 * Clusters() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Cluster cluster;
    const bool alike = seed % 2 == 0;
    AddQueues(cluster.tree, random);
    for (int i = random.Pick(2, 8); i > 0; --i)
      cluster.AddNode(alike ? NodeInventory() : RandomNode(random));
    const int nodes = static_cast<int>(cluster.inventories.size());
    for (int pass = 0; pass < 6; ++pass) {
      cluster.now += seconds(random.Pick(0, 1800));
      std::erase_if(cluster.jobs, [&](const Cluster::Job& job) {
        return job.placement && cluster.now >= job.ends;
      });
      // Now and then more start in a pass than a record keeps apart.
      for (int n = random.OneIn(12) ? 40 : random.Pick(1, 4); n > 0; --n) {
        GangRequest job = RandomJob(random, cluster.tree, nodes, alike);
        if (random.OneIn(4)) job.length = kForever;
        cluster.Submit(job).ends = cluster.now + seconds(random.Pick(600, 7200));
      }
      if (random.OneIn(2)) {
        ASSERT_NO_FATAL_FAILURE(CheckRecord(cluster, random, counts));
      }
      cluster.RunPass();
      ASSERT_NO_FATAL_FAILURE(CheckRecord(cluster, random, counts));
    }
  }
  if (HasFailure()) return;
  EXPECT_GT(counts.recorded, 100);
  EXPECT_GT(counts.not_recorded, 100);
  EXPECT_GT(counts.added, 100);
  EXPECT_GT(counts.not_added, 0);
  for (const int each : {counts.placed, counts.promised, counts.reclaims, counts.endangers})
    EXPECT_GT(each, 10);
}

TEST(ExplanationProperties, AChangeThatReclaimsIsListedWithItsVictimsWhereNoneStartsTheJob) {
  ReclaimCounts counts;
  for (int seed = 0; seed < 2 * Clusters() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    Cluster cluster;
    const bool alike = seed % 3 == 0;
    AddQueues(cluster.tree, random);
    for (int i = random.Pick(2, 6); i > 0; --i)
      cluster.AddNode(alike ? NodeInventory() : RandomNode(random));
    const int nodes = static_cast<int>(cluster.inventories.size());
    for (int pass = 0; pass < 4; ++pass) {
      cluster.now += seconds(random.Pick(0, 1800));
      std::erase_if(cluster.jobs, [&](const Cluster::Job& job) {
        return job.placement && cluster.now >= job.ends;
      });
      for (int n = random.Pick(1, 4); n > 0; --n) {
        GangRequest job = RandomJob(random, cluster.tree, nodes, alike);
        if (random.OneIn(2)) job.length = kForever;
        cluster.Submit(job).ends = cluster.now + seconds(random.Pick(600, 7200));
      }
      cluster.RunPass();
      SchedulerSnapshot snapshot = cluster.Snapshot();
      Disturb(snapshot, cluster, random);
      const SchedulePlan plan = Plan(snapshot);
      if (!plan.placements.empty()) continue;
      for (const GangRequest& request : snapshot.requests)
        if (!request.recovering && random.OneIn(2)) {
          ASSERT_NO_FATAL_FAILURE(CheckReclaiming(cluster, snapshot, request, counts));
        }
    }
  }
  if (HasFailure()) return;
  // The others are rare: MUSTER_EXPLANATIONS=580 has all.
  for (const ChangeKey key :
       {ChangeKey::kNodes, ChangeKey::kRanksPerNode, ChangeKey::kGpusPerRank,
        ChangeKey::kMemoryPerRank, ChangeKey::kGpuKind, ChangeKey::kGpuMemory, ChangeKey::kLabels,
        ChangeKey::kTopology, ChangeKey::kClass, ChangeKey::kQueue})
    EXPECT_GT(counts.reported[key], 0) << Name(key);
  for (const int each : {counts.starts, counts.none, counts.has_victims}) EXPECT_GT(each, 20);
}

GangRequest Plain(int nodes, Duration length, int ranks = 4) {
  GangRequest job{.nodes = nodes};
  job.demand.ranks = ranks;
  job.length = length;
  return job;
}

// Three nodes of four slots; jobs have run for a pass.
struct ThreeNodes : Cluster {
  explicit ThreeNodes(const std::vector<GangRequest>& first) {
    for (int i = 0; i < 3; ++i) AddNode({});
    for (const GangRequest& job : first) Submit(job);
    RunPass();
  }
  Explanation Why(const GangRequest& job) {
    const JobId id = Submit(job).request.job;
    RunPass();
    return Explain(id);
  }
  Explanation Explain(const JobId& id) const {
    const SchedulerSnapshot snapshot = Snapshot();
    const std::vector<GangWithNodes> gangs = Gangs();
    return muster::Explain({snapshot, gangs}, {.job = id, .least_length = seconds(60)});
  }
};

TEST(ExplanationTest, BlockersAreInTheOrderOfTheirEndsWithTheNodesThatTheyHave) {
  ThreeNodes cluster({Plain(1, kForever), Plain(1, hours(2)), Plain(1, hours(1))});
  const Explanation why = cluster.Why(Plain(3, hours(1)));
  ASSERT_EQ(why.blockers.size(), 3u);
  EXPECT_EQ(why.blockers[0].at, cluster.now + hours(1));
  EXPECT_EQ(why.blockers[1].at, cluster.now + hours(2));
  EXPECT_EQ(why.blockers[2].at, kNever);
  ASSERT_EQ(why.causes.size(), 1u);
  EXPECT_EQ(why.causes[0].code, WaitCode::kOccupied);
  EXPECT_EQ(why.causes[0].nodes, 3);
  EXPECT_EQ(why.waiting.collects.size(), 3u) << "the end of one is not known";
  EXPECT_THAT(why.changes, IsEmpty());
}

TEST(ExplanationTest, ATimeLimitReachesBeyondAPromisedStartToTheSecond) {
  ThreeNodes cluster({Plain(2, hours(1)), Plain(3, hours(1))});
  const Explanation why = cluster.Why(Plain(1, hours(2)));
  ASSERT_FALSE(why.causes.empty());
  EXPECT_EQ(why.causes[0].code, WaitCode::kTimeLimit);
  EXPECT_EQ(why.causes[0].at, cluster.now + hours(1));
  const auto limit = std::ranges::find(why.changes, ChangeKey::kTimeLimit, &Change::key);
  ASSERT_NE(limit, why.changes.end());
  EXPECT_EQ(limit->request.length, hours(1));
  EXPECT_THAT(limit->delays, IsEmpty());
}

TEST(ExplanationTest, AJobThatIsPlacedHasNodesAndNothingElse) {
  ThreeNodes cluster({});
  const JobId id = cluster.Submit(Plain(2, hours(1))).request.job;
  const Explanation why = cluster.Explain(id);
  ASSERT_TRUE(why.placement);
  EXPECT_THAT(why.placement->nodes, ElementsAre(Cluster::NameOf(0), Cluster::NameOf(1)));
  EXPECT_THAT(why.causes, IsEmpty());
  EXPECT_THAT(why.changes, IsEmpty());
}

}  // namespace
}  // namespace muster
