// Random clusters over virtual time: what must hold of every schedule, whatever is submitted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <ranges>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/queue_loads.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

NodeInventory Gpus(int count) {
  NodeInventory inventory;
  for (int i = 0; i < count; ++i) inventory.devices.push_back({.id = "GPU-" + std::to_string(i)});
  return inventory;
}

// A cluster of equal nodes, in which gangs start when the scheduler says so and end by themselves.
class World {
 public:
  World(int nodes, int gpus, QueueTree tree)
      : inventory_(Gpus(gpus)), gpus_(gpus), tree_(std::move(tree)), usage_(tree_.queues.size()) {
    for (int i = 0; i < nodes; ++i) up_.insert(NodeName{"n" + std::to_string(i)});
  }

  struct Job {
    GangRequest request;
    TimePoint submitted;
    Duration runs = {};
    std::optional<TimePoint> started;
    GangPlacement placement;
    WaitReason reason;
    std::optional<TimePoint> ended;
    bool was_delayed = false;
    std::optional<TimePoint> victim_at;  // the newest time
    std::optional<Reclaim> gives_way;    // it saves its state and stops
    TimePoint leaves;
  };

  TimePoint now() const { return now_; }
  const std::map<std::string, Job>& jobs() const { return jobs_; }
  Job& job(const std::string& id) { return jobs_.at(id); }
  const std::map<DelayCause, int>& delays() const { return delays_; }
  void set_now(TimePoint now) { now_ = now; }
  // `late`: some victims take longer to save and stop than they may.
  void set_reclaims(bool reclaims, bool late = false) {
    reclaims_ = reclaims;
    longest_save_ = late ? 500 : 170;
  }
  int shrunk() const { return shrunk_; }
  int preempted() const { return preempted_; }
  // Cost times seconds that each queue had.
  double Used(int queue) const { return had_.contains(queue) ? had_.at(queue) : 0; }

  Job& Submit(int nodes, int ranks, Duration limit, Duration runs, int queue = 0) {
    const std::string id = "j" + std::to_string(next_++);
    Job& job = jobs_[id];
    job.request.job = JobId{id};
    job.request.submit_order = static_cast<std::uint64_t>(next_);
    job.request.nodes = nodes;
    job.request.demand.ranks = ranks;
    job.request.demand.devices.per_rank = gpus_ > 0 ? 1 : 0;
    job.request.queue = queue;
    job.request.length = limit;
    job.submitted = now_;
    job.runs = std::min(runs, limit);
    return job;
  }

  void LoseNode(const NodeName& name) {
    up_.erase(name);
    ++lost_;
    for (auto& [id, job] : jobs_)
      if (IsRunning(job) && std::ranges::count(job.placement.nodes, name) > 0) Fault(job);
  }
  void BringBack(const NodeName& name) { up_.insert(name); }

  // The gang is to form again: before all others.
  void Fault(Job& job) {
    End(job);
    job.ended.reset();
    job.request.former_nodes = job.placement.nodes;
    if (job.request.length != kForever)
      job.request.length =
          std::max<Duration>(job.request.length - (now_ - *job.started), seconds(1));
    job.runs = std::max<Duration>(job.runs - (now_ - *job.started), seconds(1));
    job.started.reset();
    job.request.recovering = true;
    job.request.promise.reset();
    job.request.turn = kNever;
  }

  // When the next gang ends or gives way, or may, or a promise is due; kNever: nothing of that.
  TimePoint NextEvent() const {
    TimePoint next = plan_.again_at;
    for (const auto& [id, job] : jobs_) {
      if (IsRunning(job)) next = std::min(next, *job.started + job.runs);
      if (job.gives_way) next = std::min(next, job.leaves);
      if (!job.started && job.request.promise) next = std::min(next, job.request.promise->start);
    }
    return next;
  }
  // Ends what is over at that time, which is now.
  void EndUntil(TimePoint time) {
    now_ = time;
    for (auto& [id, job] : jobs_) {
      if (IsRunning(job) && *job.started + job.runs <= now_) End(job);
      if (job.gives_way && (job.ended || job.leaves <= now_)) Leave(job);
    }
  }

  SchedulerSnapshot Snapshot() const {
    SchedulerSnapshot snapshot;
    snapshot.now = now_;
    snapshot.queues = &tree_;
    const std::map<NodeName, NodeParts> free = Free();
    for (const NodeName& name : up_) {
      NodeCapacity node{.name = name, .inventory = &inventory_, .all = Whole()};
      node.free = free.at(name);
      snapshot.nodes.push_back(node);
    }
    snapshot.usage = usage_;
    for (const auto& [id, job] : jobs_) {
      if (job.ended) continue;
      if (!job.started) {
        snapshot.requests.push_back(job.request);
        continue;
      }
      const Duration ahead = std::min<Duration>(job.request.length, kChargedAhead);
      snapshot.usage[Index(job)] += Charged(job, std::max(booked_at_, *job.started + ahead));
      for (RunningGang& gang : GangsOf(job)) snapshot.running.push_back(std::move(gang));
    }
    for (double& usage : snapshot.usage) usage /= Weight(booked_at_);
    return snapshot;
  }

  // What the newest pass decided.
  const SchedulePlan& plan() const { return plan_; }
  // What the queue has, with all below it.
  Amounts Has(int queue) const {
    Amounts has;
    for (const auto& [id, job] : jobs_) {
      int at = job.request.queue;
      while (at >= 0 && at != queue) at = tree_.queues[static_cast<std::size_t>(at)].parent;
      if (at == queue && IsRunning(job)) has += AmountsOf(job);
    }
    return has;
  }

  // One pass: checks it and does what it says.
  void RunPass() {
    const SchedulerSnapshot snapshot = Snapshot();
    plan_ = Plan(snapshot);
    const SchedulePlan& plan = plan_;
    CheckReclaims(snapshot);
    CheckPromisedCeilings(snapshot);
    for (const GangPlacement& placement : plan.placements) Begin(placement);
    for (const WaitingJob& waiting : plan.waiting) {
      Job& job = jobs_.at(waiting.job.value);
      job.reason = waiting.reason;
      job.request.collecting = waiting.collects;
      CheckPromise(job, waiting);
      job.request.promise = waiting.promise;
      if (waiting.promise) job.request.turn = std::min(job.request.turn, waiting.promise->start);
    }
    for (const Reclaim& reclaim : plan.reclaims) GiveWay(reclaim);
    CheckDevices();
    CheckCeilings();
  }

  std::map<NodeName, NodeParts> Free() const {
    std::map<NodeName, NodeParts> free;
    for (const NodeName& name : up_) free[name] = Whole();
    for (const auto& [id, job] : jobs_) {
      if (!IsRunning(job)) continue;
      for (std::size_t i = 0; i < job.placement.nodes.size(); ++i) {
        NodeParts& node = free[job.placement.nodes[i]];
        node.slots -= job.request.demand.ranks;
        node.devices &= ~job.placement.node_devices[i];
      }
    }
    return free;
  }

 private:
  static bool IsRunning(const Job& job) { return job.started && !job.ended; }
  static std::size_t Index(const Job& job) { return static_cast<std::size_t>(job.request.queue); }
  NodeParts Whole() const {
    return {.slots = std::max(gpus_, 4), .devices = (DeviceMask{1} << gpus_) - 1};
  }
  // A gang that shrinks is two: what it gives up ends before the rest.
  std::vector<RunningGang> GangsOf(const Job& job) const {
    RunningGang gang{.job = job.request.job,
                     .queue = job.request.queue,
                     .class_value = job.request.class_value,
                     .ends = EndOf(*job.started, job.request.length),
                     .placed = *job.started};
    if (reclaims_ && !job.gives_way) {
      gang.victim_from = *job.started + kVictimAfter;
      if (job.victim_at)
        gang.victim_from = std::max(gang.victim_from, *job.victim_at + kVictimEvery);
    }
    gang.node_amounts = job.request.AmountsOf(1);
    gang.leaves_in = kLeavesIn;
    gang.cost = CostOf(AmountsOf(job)) * static_cast<double>(job.request.submit_order % 7 + 1);
    RunningGang given = gang;
    for (std::size_t i = 0; i < job.placement.nodes.size(); ++i) {
      const bool gives = job.gives_way &&
                         (job.gives_way->to_nodes == 0 ||
                          std::ranges::count(job.gives_way->gives_up, job.placement.nodes[i]) > 0);
      (gives ? given : gang).parts.push_back({job.placement.nodes[i], PartsOn(job, i)});
    }
    std::vector<RunningGang> gangs;
    for (RunningGang* each : {&gang, &given}) {
      if (each->parts.empty()) continue;
      each->nodes = static_cast<int>(each->parts.size());
      each->least_nodes = std::min(each->nodes, job.request.least());
      each->amounts = job.request.AmountsOf(each->nodes);
      each->amounts.jobs = gangs.empty() ? 1 : 0;
      if (each == &given) {
        each->gives_way_to = job.gives_way->claimant;
        each->ends = *job.victim_at + kLeavesIn;
      }
      gangs.push_back(*each);
    }
    return gangs;
  }

  void GiveWay(const Reclaim& reclaim) {
    Job& job = jobs_.at(reclaim.victim.value);
    ++(reclaim.to_nodes > 0 ? shrunk_ : preempted_);
    job.gives_way = reclaim;
    job.victim_at = now_;
    job.leaves = now_ + seconds(1 + job.request.submit_order * 37 % longest_save_);
  }

  void Leave(Job& job) {
    const Reclaim reclaim = *std::exchange(job.gives_way, std::nullopt);
    if (job.ended || !job.started) return;
    Fault(job);
    job.request.recovering = reclaim.to_nodes > 0;
    if (reclaim.to_nodes == 0) return;
    job.request.nodes = reclaim.to_nodes;
    job.request.exclude = reclaim.gives_up;
  }

  const QueueSpec& Queue(int queue) const { return tree_.queues[static_cast<std::size_t>(queue)]; }
  bool IsAbove(int queue, int other) const {
    while (other >= 0 && other != queue) other = Queue(other).parent;
    return other == queue;
  }

  // That a job which recovers has not given up.
  static int HeldNodes(const GangRequest& request) {
    const int had = static_cast<int>(request.former_nodes.size());
    return request.recovering ? std::clamp(had, request.least(), request.nodes) : 0;
  }

  // What the queue will have when the gangs that give way are gone.
  int Left(const SchedulerSnapshot& snapshot, int queue) const {
    int left = 0;
    for (const RunningGang& gang : snapshot.running)
      if (IsAbove(queue, gang.queue) && gang.gives_way_to.empty()) left += gang.amounts.gpus;
    for (const GangRequest& request : snapshot.requests) {
      if (IsAbove(queue, request.queue)) left += request.AmountsOf(HeldNodes(request)).gpus;
    }
    return left;
  }

  // The snapshot as it is once the victims give way, without one of them or without one node that a
  // gang would give up; nothing else may give way.
  SchedulerSnapshot Without(const SchedulerSnapshot& before, std::size_t victim,
                            std::size_t node) const {
    SchedulerSnapshot snapshot = before;
    for (RunningGang& gang : snapshot.running) gang.victim_from = kNever;
    for (std::size_t v = 0; v < plan_.reclaims.size(); ++v) {
      const Reclaim& reclaim = plan_.reclaims[v];
      const auto gang = std::ranges::find_if(snapshot.running, [&](const RunningGang& each) {
        return each.job == reclaim.victim && each.gives_way_to.empty();
      });
      RunningGang given = *gang;
      std::erase_if(given.parts, [&](const HeldParts& parts) {
        const auto at = std::ranges::find(reclaim.gives_up, parts.node) - reclaim.gives_up.begin();
        if (reclaim.to_nodes == 0) return v == victim;
        return at == std::ssize(reclaim.gives_up) ||
               (v == victim && at == static_cast<std::ptrdiff_t>(node));
      });
      given.gives_way_to = reclaim.claimant;
      given.ends = now_ + kLeavesIn;
      given.amounts = {};
      for (std::size_t i = 0; i < given.parts.size(); ++i) given.amounts += gang->node_amounts;
      if (given.parts.size() == gang->parts.size()) given.amounts.jobs = gang->amounts.jobs;
      gang->amounts -= given.amounts;
      std::erase_if(gang->parts, [&](const HeldParts& parts) {
        return std::ranges::count(given.parts, parts.node, &HeldParts::node) > 0;
      });
      snapshot.running.push_back(given);
    }
    return snapshot;
  }

  TimePoint StartIn(const SchedulePlan& plan, const JobId& job) const {
    for (const WaitingJob& waiting : plan.waiting)
      if (waiting.job == job) return waiting.promise ? waiting.promise->start : kNever;
    return now_;
  }

  void CheckReclaims(const SchedulerSnapshot& snapshot) const {
    std::set<JobId> claimants, victims;
    std::map<int, int> left;
    for (std::size_t q = 0; q < tree_.queues.size(); ++q)
      left[static_cast<int>(q)] = Left(snapshot, static_cast<int>(q));
    std::map<int, int> had = left;  // without what is placed now, perhaps later in the pass
    for (const GangPlacement& placement : plan_.placements) {
      const GangRequest& request = jobs_.at(placement.job.value).request;
      const int nodes = static_cast<int>(placement.nodes.size()) - HeldNodes(request);
      for (int q = request.queue; q >= 0; q = Queue(q).parent) {
        left[q] += request.AmountsOf(nodes).gpus;
        if (request.recovering) had[q] += request.AmountsOf(nodes).gpus;  // before all others
      }
    }
    const auto claims = [&](const GangRequest& request) {
      for (int q = request.queue; q >= 0; q = Queue(q).parent) {
        left[q] += request.AmountsOf(request.least()).gpus;
        had[q] += request.AmountsOf(request.least()).gpus;
      }
    };
    std::set<JobId> given_way_to;
    for (const RunningGang& gang : snapshot.running) given_way_to.insert(gang.gives_way_to);
    for (const WaitingJob& waiting : plan_.waiting)
      if (given_way_to.contains(waiting.job)) claims(jobs_.at(waiting.job.value).request);
    std::map<int, int> before = had;  // the victims of the claimant
    for (const Reclaim& reclaim : plan_.reclaims) {
      if (claimants.insert(reclaim.claimant).second) {
        before = had;
        claims(jobs_.at(reclaim.claimant.value).request);
      }
      ASSERT_TRUE(victims.insert(reclaim.victim).second);
      const Job& victim = jobs_.at(reclaim.victim.value);
      const GangRequest& claimant = jobs_.at(reclaim.claimant.value).request;
      ASSERT_TRUE(IsRunning(victim) && !victim.gives_way);
      ASSERT_GE(now_ - *victim.started, kVictimAfter);
      ASSERT_TRUE(!victim.victim_at || now_ - *victim.victim_at >= kVictimEvery);
      ASSERT_FALSE(claimant.recovering);
      for (const auto& [id, job] : jobs_)
        ASSERT_FALSE(IsRunning(job) && job.gives_way &&
                     job.gives_way->claimant == reclaim.claimant);
      const int nodes = static_cast<int>(victim.placement.nodes.size());
      ASSERT_EQ(reclaim.to_nodes == 0 ? 0 : nodes - std::ssize(reclaim.gives_up), reclaim.to_nodes);
      ASSERT_TRUE(reclaim.to_nodes == 0 || reclaim.to_nodes >= victim.request.least());
      const int given = victim.request.AmountsOf(nodes - reclaim.to_nodes).gpus;
      for (int q = victim.request.queue; q >= 0; q = Queue(q).parent) {
        left[q] -= given;
        had[q] -= given;
        if (reclaim.cause == ReclaimCause::kGuarantee && !IsAbove(q, claimant.queue)) {
          ASSERT_GE(left[q], Queue(q).guarantee.gpus) << "a guarantee is broken";
        }
      }
      if (reclaim.cause == ReclaimCause::kClass) {
        ASSERT_LT(victim.request.class_value, claimant.class_value);
        continue;
      }
      ASSERT_LE(victim.request.class_value, claimant.class_value);
      bool entitled = false;
      for (int q = claimant.queue; q >= 0 && !IsAbove(q, victim.request.queue); q = Queue(q).parent)
        entitled |=
            before[q] + claimant.AmountsOf(claimant.least()).gpus <= Queue(q).guarantee.gpus;
      ASSERT_TRUE(entitled) << "it would borrow";
    }
    // Who waits ahead of it would have what leaves.
    const bool first = !claimants.empty() && *claimants.begin() == plan_.waiting.front().job;
    if (first && claimants.size() == 1) CheckNeeded(snapshot, *claimants.begin());
  }

  // With all of the victims it fits once they have stopped, without any one it does not.
  void CheckNeeded(const SchedulerSnapshot& snapshot, const JobId& claimant) const {
    constexpr std::size_t kNone = 1000;
    ASSERT_LE(StartIn(plan_, claimant), now_ + kLeavesIn);
    SchedulerSnapshot with_all = Without(snapshot, kNone, 0);
    // From its old promise it would not move for the seconds by which a gang that is late may end
    // after the victims.
    std::ranges::find(with_all.requests, claimant, &GangRequest::job)->promise =
        std::ranges::find(plan_.waiting, claimant, &WaitingJob::job)->promise;
    ASSERT_LE(StartIn(Plan(with_all), claimant), now_ + kLeavesIn);
    for (std::size_t v = 0; v < plan_.reclaims.size(); ++v) {
      for (std::size_t n = 0; n < std::max<std::size_t>(plan_.reclaims[v].gives_up.size(), 1); ++n)
        ASSERT_GT(StartIn(Plan(Without(snapshot, v, n)), claimant), now_ + kLeavesIn)
            << plan_.reclaims[v].victim.value << " is a needless victim";
    }
  }

  static NodeParts PartsOn(const Job& job, std::size_t i) {
    return {.slots = job.request.demand.ranks, .devices = job.placement.node_devices[i]};
  }
  Amounts AmountsOf(const Job& job) const {
    return job.request.AmountsOf(static_cast<int>(job.placement.nodes.size()));
  }
  // What a second counts at that time: half as much a week before.
  double Weight(TimePoint time) const {
    return std::exp2(ToSeconds(time - TimePoint()) / kHalfLife);
  }
  double Charged(const Job& job, TimePoint until) const {
    return CostOf(AmountsOf(job)) * (Weight(until) - Weight(*job.started)) * kHalfLife /
           std::log(2.0);
  }

  void End(Job& job) {
    job.ended = booked_at_ = now_;
    usage_[Index(job)] += Charged(job, now_);
    had_[job.request.queue] += CostOf(AmountsOf(job)) * ToSeconds(now_ - *job.started);
  }

  void Begin(const GangPlacement& placement) {
    Job& job = jobs_.at(placement.job.value);
    ASSERT_FALSE(job.started);
    ASSERT_GE(static_cast<int>(placement.nodes.size()), job.request.least());
    ASSERT_LE(static_cast<int>(placement.nodes.size()), job.request.nodes);
    if (job.request.promise) {
      ASSERT_LE(now_, job.request.promise->start) << placement.job.value << " was promised a start";
    }
    job.started = booked_at_ = now_;
    job.placement = placement;
    job.request.recovering = false;
  }

  void CheckPromise(Job& job, const WaitingJob& waiting) {
    const std::optional<Promise>& before = job.request.promise;
    if (!before) return;
    const bool later = !waiting.promise || waiting.promise->start > before->start;
    ASSERT_EQ(later, waiting.delayed != DelayCause::kNone) << waiting.job.value;
    if (!later) return;
    ++delays_[waiting.delayed];
    job.was_delayed = true;
  }

  void CheckDevices() const {
    std::map<NodeName, DeviceMask> used;
    for (const auto& [id, job] : jobs_) {
      if (!IsRunning(job)) continue;
      for (std::size_t i = 0; i < job.placement.nodes.size(); ++i) {
        ASSERT_EQ(used[job.placement.nodes[i]] & job.placement.node_devices[i], 0u)
            << "a device in two allocations";
        used[job.placement.nodes[i]] |= job.placement.node_devices[i];
      }
    }
    for (const auto& [name, node] : Free()) ASSERT_GE(node.slots, 0);
  }

  void CheckCeilings() const {
    std::vector<Amounts> used(tree_.queues.size());
    for (const auto& [id, job] : jobs_) {
      if (!IsRunning(job)) continue;
      for (int queue = job.request.queue; queue >= 0;
           queue = tree_.queues[static_cast<std::size_t>(queue)].parent) {
        used[static_cast<std::size_t>(queue)].gpus += AmountsOf(job).gpus;
        used[static_cast<std::size_t>(queue)].slots += AmountsOf(job).slots;
        ++used[static_cast<std::size_t>(queue)].jobs;
      }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      ASSERT_LE(used[i].gpus, tree_.queues[i].ceiling.gpus) << tree_.queues[i].name;
      ASSERT_LE(used[i].slots, tree_.queues[i].ceiling.slots) << tree_.queues[i].name;
      const int most_jobs = tree_.queues[i].ceiling.jobs;
      ASSERT_TRUE(most_jobs == 0 || used[i].jobs <= most_jobs) << tree_.queues[i].name;
    }
  }

  // What will have nodes of a queue from `from` until `to`.
  struct Span {
    int queue = 0;
    Amounts amounts;
    TimePoint from, to;
  };
  // By the plan; without gangs that end later than they should, and those that give way.
  std::vector<Span> PlannedSpans(const SchedulerSnapshot& snapshot) const {
    std::vector<Span> spans;
    const auto add = [&](const GangRequest& request, int nodes, TimePoint from) {
      Amounts amounts = request.AmountsOf(nodes);
      amounts.jobs = 1;
      spans.push_back({request.queue, amounts, from, EndOf(from, request.length)});
    };
    for (const RunningGang& gang : snapshot.running)
      if (gang.ends > now_ && std::ranges::count(plan_.reclaims, gang.job, &Reclaim::victim) == 0)
        spans.push_back({gang.queue, gang.amounts, now_, gang.ends});
    for (const GangPlacement& placement : plan_.placements) {
      const GangRequest& request =
          *std::ranges::find(snapshot.requests, placement.job, &GangRequest::job);
      add(request, static_cast<int>(placement.nodes.size()), now_);
    }
    for (const WaitingJob& waiting : plan_.waiting) {
      const GangRequest& request =
          *std::ranges::find(snapshot.requests, waiting.job, &GangRequest::job);
      if (request.recovering) add(request, HeldNodes(request), now_);
      if (waiting.promise && !request.recovering)
        add(request, request.least(), waiting.promise->start);
    }
    return spans;
  }

  // No promise leads a queue, or a user, over a ceiling.
  void CheckPromisedCeilings(const SchedulerSnapshot& snapshot) const {
    const std::vector<Span> spans = PlannedSpans(snapshot);
    for (const Span& start : spans) {
      if (start.from <= now_) continue;
      for (int queue = start.queue; queue >= 0; queue = Queue(queue).parent) {
        Amounts used;
        for (const Span& span : spans)
          if (span.from <= start.from && start.from < span.to && IsAbove(queue, span.queue))
            used += span.amounts;
        const Amounts& ceiling = Queue(queue).ceiling;
        ASSERT_LE(used.gpus, ceiling.gpus) << Queue(queue).name;
        ASSERT_LE(used.slots, ceiling.slots) << Queue(queue).name;
        ASSERT_TRUE(ceiling.jobs == 0 || used.jobs <= ceiling.jobs) << Queue(queue).name;
      }
    }
  }

  static constexpr double kHalfLife = 7 * 86400;
  static constexpr Duration kVictimAfter = minutes(10), kVictimEvery = hours(1);
  static constexpr Duration kLeavesIn = minutes(3);

  NodeInventory inventory_;
  int gpus_;
  QueueTree tree_;
  TimePoint now_;
  TimePoint booked_at_;  // the newest start or end of a gang
  std::set<NodeName> up_;
  std::map<std::string, Job> jobs_;
  std::vector<double> usage_;
  std::map<int, double> had_;
  std::map<DelayCause, int> delays_;
  SchedulePlan plan_;
  int next_ = 0;
  int lost_ = 0;
  bool reclaims_ = false;
  std::uint64_t longest_save_ = 170;  // seconds
  int shrunk_ = 0, preempted_ = 0;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool OneIn(int n) { return Pick(1, n) == 1; }
  // Not whole ones.
  Duration Minutes(int low, int high) { return seconds(Pick(60 * low, 60 * high)); }

 private:
  std::mt19937 engine_;
};

int FromEnvironment(const char* name, int otherwise) {
  const char* wanted = std::getenv(name);
  return wanted == nullptr ? otherwise : std::atoi(wanted);
}

// A test's part of the random schedules: MUSTER_SCHEDULES of them, from the one numbered
// MUSTER_FIRST_SCHEDULE; as many as a change is tested with otherwise.
auto Seeds(int part) {
  const int first = FromEnvironment("MUSTER_FIRST_SCHEDULE", 0);
  const int count = FromEnvironment("MUSTER_SCHEDULES", 10'000);
  return std::views::iota(first / part, (first + count) / part + 1);
}

QueueTree RandomTree(Random& random, int gpus) {
  QueueTree tree = DefaultTree();
  for (int i = random.Pick(0, 3); i > 0; --i) {
    QueueSpec spec{.name = "q" + std::to_string(i)};
    if (!tree.queues.back().leaf || (tree.queues.size() > 1 && random.OneIn(3))) {
      spec.parent = static_cast<int>(tree.queues.size()) - 1;
      tree.queues.back().leaf = false;
    }
    if (random.OneIn(2)) spec.guarantee.gpus = random.Pick(1, gpus);
    if (random.OneIn(2)) spec.ceiling.gpus = std::max(spec.guarantee.gpus, random.Pick(1, gpus));
    spec.weight = random.Pick(1, 4);
    tree.queues.push_back(spec);
  }
  return tree;
}

struct Mix {
  bool limits = true, faults = false, classes = false, queues = false;
  bool late = false;  // some gangs end some minutes after their limit
  bool reclaims = false;
  bool users = false;
};

// With users of each queue, some of whom may have less than their queue.
QueueTree WithUsers(QueueTree queues, Random& random, int gpus) {
  for (QueueSpec& queue : queues.queues) {
    Amounts& most = queue.per_user.ceiling;
    if (random.OneIn(2)) most.gpus = random.Pick(1, gpus);
    if (random.OneIn(4)) most.slots = random.Pick(1, 2 * gpus);
    if (random.OneIn(2)) most.jobs = random.Pick(1, 3);
  }
  ShareTree shares(queues, /*by_user=*/true);
  for (const QueueSpec& queue : queues.queues)
    for (int user = queue.leaf ? random.Pick(1, 3) : 0; user > 0; --user)
      shares.Add(queue.name, std::to_string(user));
  return shares.tree();
}

// Submits for some hours, and runs until nothing changes any more.
void RunRandom(World& world, Random& random, const Mix& mix, const std::vector<int>& queues,
               int nodes, int gpus) {
  const auto leaf = [&] {
    return queues[static_cast<std::size_t>(random.Pick(0, static_cast<int>(queues.size()) - 1))];
  };
  TimePoint next_submit;
  int left = random.Pick(5, 25);
  while (left > 0 || world.NextEvent() != kNever) {
    const TimePoint end = world.NextEvent();
    if (left > 0 && next_submit <= end) {
      world.EndUntil(std::max(next_submit, world.now()));
      for (int n = random.Pick(1, 3); n > 0 && left > 0; --n, --left) {
        const Duration limit = mix.limits || random.OneIn(2) ? random.Minutes(5, 120) : kForever;
        World::Job& job = world.Submit(random.Pick(1, nodes), random.Pick(1, gpus), limit,
                                       random.Minutes(1, 120), leaf());
        if (mix.classes && random.OneIn(4)) job.request.class_value = random.Pick(-1, 1);
        job.request.priority = random.Pick(0, 2);
        if (mix.reclaims && random.OneIn(3))
          job.request.min_nodes = random.Pick(1, job.request.nodes);
        if (mix.late && limit != kForever && random.OneIn(3))
          job.runs = limit + random.Minutes(0, 15);
      }
      next_submit = world.now() + random.Minutes(0, 20);
    } else {
      world.EndUntil(end);
    }
    if (mix.faults && random.OneIn(4)) {
      const NodeName node{"n" + std::to_string(random.Pick(0, nodes - 1))};
      random.OneIn(2) ? world.LoseNode(node) : world.BringBack(node);
    }
    ASSERT_NO_FATAL_FAILURE(world.RunPass());
  }
}

constexpr int kMixes = 128;
class RandomSchedules : public testing::TestWithParam<int> {};

TEST_P(RandomSchedules, NeverBreakAPromiseWithoutACauseNorACeilingNorGiveADeviceTwice) {
  const Mix mix{.limits = (GetParam() & 1) == 0,
                .faults = (GetParam() & 2) != 0,
                .classes = (GetParam() & 4) != 0,
                .queues = (GetParam() & 8) != 0,
                .late = (GetParam() & 16) != 0,
                .reclaims = (GetParam() & 32) != 0,
                .users = (GetParam() & 64) != 0};
  std::map<DelayCause, int> delays;
  for (const int seed : Seeds(kMixes)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed * kMixes + GetParam()));
    const int nodes = random.Pick(1, 5);
    const int gpus = random.Pick(1, 4);
    QueueTree tree = mix.queues ? RandomTree(random, nodes * gpus) : DefaultTree();
    if (mix.users) tree = WithUsers(std::move(tree), random, nodes * gpus);
    std::vector<int> queues;  // that take jobs
    for (std::size_t i = 0; i < tree.queues.size(); ++i)
      if (!mix.users || tree.queues[i].leaf) queues.push_back(static_cast<int>(i));
    World world(nodes, gpus, tree);
    world.set_reclaims(mix.reclaims, mix.late);
    ASSERT_NO_FATAL_FAILURE(RunRandom(world, random, mix, queues, nodes, gpus));
    for (const auto& [cause, count] : world.delays()) delays[cause] += count;
  }
  if (!mix.late) {
    EXPECT_EQ(delays[DelayCause::kLimits], 0) << "nothing of that kind was changed";
  }
  if (!mix.faults) {
    EXPECT_EQ(delays[DelayCause::kNodes], 0);
  }
  if (!mix.faults && !mix.reclaims) {
    EXPECT_EQ(delays[DelayCause::kRecovery], 0);
  }
  if (!mix.classes) {
    EXPECT_EQ(delays[DelayCause::kClass], 0);
  }
  if (!mix.queues) {
    EXPECT_EQ(delays[DelayCause::kGuarantee], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, RandomSchedules, testing::Range(0, kMixes));

// Small jobs arrive for ever, and each of them fits at once.
TEST(ScheduleProperties, AGangThatFitsStartsWithinTwiceTheLongestLimitWhateverSmallerJobsArrive) {
  for (const int seed : Seeds(30)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    const int nodes = random.Pick(2, 6);
    const int gpus = random.Pick(2, 8);
    World world(nodes, gpus, DefaultTree());
    constexpr Duration kLongest = minutes(60);
    std::string wide;
    TimePoint submitted;
    for (int minute = 0; minute < 400; ++minute) {
      world.EndUntil(TimePoint() + minutes(minute));
      if (minute == 90) {
        wide =
            world.Submit(nodes, gpus, minutes(random.Pick(1, 60)), minutes(60)).request.job.value;
        submitted = world.now();
      }
      // Until it comes, no queue builds up: what waits before it is none of the smaller that
      // arrive.
      const bool waits = std::ranges::any_of(
          world.jobs(), [](const auto& job) { return !job.second.started.has_value(); });
      if (random.OneIn(2) && (!waits || minute >= 90))
        world.Submit(1, random.Pick(1, gpus), minutes(random.Pick(1, 60)), minutes(60));
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
      if (wide.empty() || !world.job(wide).started) continue;
      EXPECT_LE(*world.job(wide).started, submitted + 2 * kLongest);
      break;
    }
    ASSERT_TRUE(world.job(wide).started);
  }
}

// Whether `a` goes before `b` by the rules, where no two jobs need different things.
bool GoesBefore(const World& world, const QueueTree& tree, const World::Job& a,
                const World::Job& b) {
  const auto guaranteed = [&](const World::Job& job) {
    return tree.queues[static_cast<std::size_t>(job.request.queue)].guarantee.gpus;
  };
  if (a.request.recovering != b.request.recovering) return a.request.recovering;
  if (a.request.class_value != b.request.class_value)
    return a.request.class_value > b.request.class_value;
  if (a.request.queue != b.request.queue)
    return guaranteed(b) == 0 && world.Has(a.request.queue).gpus < guaranteed(a);
  return std::tuple(-a.request.priority, a.request.submit_order) <
         std::tuple(-b.request.priority, b.request.submit_order);
}

TEST(ScheduleProperties, AmongEqualJobsNoneStartsBeforeOneThatGoesFirst) {
  QueueTree tree = DefaultTree();
  tree.queues.push_back({.name = "b", .guarantee = {.gpus = 3}});
  tree.queues.push_back({.name = "c", .guarantee = {.gpus = 2}, .weight = 3});
  int waited = 0;
  for (const int seed : Seeds(30)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    World world(2, 4, tree);
    for (int i = 0; i < 60; ++i) {
      for (int n = random.Pick(0, 3); n > 0; --n) {
        World::Job& job = world.Submit(1, 1, kForever, random.Minutes(1, 60), random.Pick(0, 2));
        job.request.class_value = random.OneIn(5) ? 1 : 0;
        job.request.priority = random.Pick(0, 2);
      }
      if (random.OneIn(5) && !world.plan().placements.empty()) {
        World::Job& job = world.job(world.plan().placements[0].job.value);
        if (job.started && !job.ended) world.Fault(job);
      }
      const std::map<std::string, World::Job> before = world.jobs();
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
      for (const WaitingJob& waiting : world.plan().waiting) {
        ++waited;
        for (const GangPlacement& placed : world.plan().placements)
          ASSERT_FALSE(
              GoesBefore(world, tree, before.at(waiting.job.value), before.at(placed.job.value)))
              << placed.job.value << " before " << waiting.job.value;
      }
      world.EndUntil(std::min(world.NextEvent(), world.now() + minutes(10)));
    }
  }
  EXPECT_GT(waited, 100);
}

// Without limits no end is known: the first job that waits gets what becomes free.
TEST(ScheduleProperties, WithoutLimitsTheFirstJobThatWaitsStartsWhenWhatRanBeforeItHasEnded) {
  int beside = 0;
  for (const int seed : Seeds(30)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    const int nodes = random.Pick(2, 6);
    World world(nodes, 4, DefaultTree());
    for (int i = 0; i < 8 * nodes; ++i) {
      world.Submit(1, random.Pick(1, 3), kForever, random.Minutes(1, 60));
      world.RunPass();
    }
    const auto waits = [](const auto& job) { return !job.second.started; };
    ASSERT_TRUE(std::ranges::any_of(world.jobs(), waits));
    World::Job& wide = world.Submit(random.Pick(1, nodes), 4, kForever, minutes(10));
    wide.request.priority = 90;
    TimePoint all_ended;
    for (const auto& [id, job] : world.jobs())
      if (job.started) all_ended = std::max(all_ended, *job.started + job.runs);
    while (!wide.started) {
      world.Submit(1, random.Pick(1, 4), kForever, random.Minutes(1, 60));
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
      if (wide.started) break;
      EXPECT_FALSE(wide.request.collecting.empty());
      world.EndUntil(world.NextEvent());
      ASSERT_LE(world.now(), all_ended);
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
    }
    for (const auto& [id, job] : world.jobs())
      beside += job.started && *job.started > wide.submitted && *job.started < *wide.started;
  }
  EXPECT_GT(beside, 0) << "what it does not need is given to others meanwhile";
}

TEST(ScheduleProperties, SharesOfSaturatedQueuesConvergeToTheirWeights) {
  for (unsigned seed = 0; seed < 1; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    QueueTree tree = DefaultTree();
    tree.queues[0].weight = 1;
    tree.queues.push_back({.name = "b", .weight = static_cast<double>(random.Pick(1, 5))});
    tree.queues.push_back({.name = "c", .leaf = false, .weight = 3});
    tree.queues.push_back({.name = "d", .parent = 2, .weight = 2});
    tree.queues.push_back({.name = "e", .parent = 2, .weight = 1});
    const double sum = 4 + tree.queues[1].weight;
    const std::map<int, double> wanted = {
        {0, 1 / sum}, {1, tree.queues[1].weight / sum}, {3, 2 / sum}, {4, 1 / sum}};
    World world(8, 4, tree);  // 32 GPUs
    while (world.now() < TimePoint() + hours(24)) {
      std::map<int, int> waiting;
      for (const auto& [id, job] : world.jobs()) waiting[job.request.queue] += !job.started;
      for (const auto& [queue, share] : wanted) {
        while (waiting[queue]++ < 300)  // more than have a promise
          world.Submit(1, random.Pick(1, 4), hours(1), random.Minutes(5, 60), queue);
      }
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
      world.EndUntil(world.NextEvent());
    }
    double total = 0;
    for (const auto& [queue, share] : wanted) total += world.Used(queue);
    for (const auto& [queue, share] : wanted)
      EXPECT_NEAR(world.Used(queue) / total, share, 0.05)
          << tree.queues[static_cast<std::size_t>(queue)].name;
    EXPECT_GT(total, 0.85 * 32 * 24 * 3600) << "and the cluster is full";
  }
}

// Nodes of one GPU each, so that all that counts is how many a queue gets.
TEST(ScheduleProperties, AQueueWithinItsGuaranteeGetsItsNodesWithinTheStopAllowance) {
  int shrunk = 0, preempted = 0;
  for (const int seed : Seeds(30)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<unsigned>(seed));
    const int nodes = random.Pick(4, 16);
    QueueTree tree = DefaultTree();
    tree.queues.push_back({.name = "a", .guarantee = {.gpus = random.Pick(1, nodes)}});
    tree.queues.push_back({.name = "b"});
    World world(nodes, 1, tree);
    world.set_reclaims(true);
    for (int i = 0; i < nodes; ++i) {
      World::Job& job =
          world.Submit(random.Pick(1, 3), 1, kForever, hours(100), random.OneIn(2) ? 2 : 0);
      if (random.OneIn(2)) job.request.min_nodes = 1;
    }
    ASSERT_NO_FATAL_FAILURE(world.RunPass());
    world.EndUntil(world.now() + minutes(20));
    const std::map<std::string, World::Job> before = world.jobs();
    const std::string own =
        world.Submit(random.Pick(1, tree.queues[1].guarantee.gpus), 1, kForever, hours(1), 1)
            .request.job.value;
    const TimePoint submitted = world.now();
    ASSERT_NO_FATAL_FAILURE(world.RunPass());
    if (world.preempted() > 0) {
      int enough = nodes;
      for (const auto& [id, job] : before)
        if (job.started) enough -= job.request.least();
      EXPECT_LT(enough, world.job(own).request.nodes) << "it would be enough to shrink";
    }
    while (!world.job(own).started && world.NextEvent() <= submitted + minutes(3)) {
      world.EndUntil(world.NextEvent());
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
    }
    EXPECT_TRUE(world.job(own).started);
    shrunk += world.shrunk();
    preempted += world.preempted();
  }
  EXPECT_GT(shrunk, 5);
  EXPECT_GT(preempted, 5);
}

// Behind the jobs with a plan, what one finds is known to the others of its kind.
TEST(ScheduleProperties, AShorterJobFitsWhereALongerOneOfItsKindDoesNot) {
  World world(2, 1, DefaultTree());
  const std::string ahead = world.Submit(1, 1, hours(1), hours(1)).request.job.value;
  world.RunPass();
  world.Submit(2, 1, hours(1), hours(1));
  for (int i = 0; i < kPlannedJobs; ++i) world.Submit(1, 1, hours(2), hours(2));
  const std::string shorter = world.Submit(1, 1, minutes(30), minutes(30)).request.job.value;
  world.RunPass();
  EXPECT_TRUE(world.job(ahead).started);
  EXPECT_TRUE(world.job(shorter).started);
  EXPECT_EQ(world.plan().placements.size(), 1u);
}

std::string Text(const SchedulePlan& plan) {
  std::string text;
  for (const GangPlacement& placement : plan.placements) {
    text += placement.job.value + ":";
    for (std::size_t i = 0; i < placement.nodes.size(); ++i)
      text += " " + placement.nodes[i].value + "=" + std::to_string(placement.node_devices[i]);
    text += "\n";
  }
  for (const WaitingJob& waiting : plan.waiting) {
    text += waiting.job.value + " waits: " + WaitText(waiting.reason) + ";";
    if (waiting.promise) text += std::to_string(waiting.promise->start.time_since_epoch().count());
    text += "\n";
  }
  for (const Reclaim& reclaim : plan.reclaims) {
    text += reclaim.victim.value + " for " + reclaim.claimant.value + ", gives up";
    for (const NodeName& node : reclaim.gives_up) text += " " + node.value;
    text += "\n";
  }
  return text;
}

TEST(ScheduleProperties, ASnapshotGivesTheSamePlanInWhateverOrderItIs) {
  for (int seed = 0; seed < 100; ++seed) {
    Random random(static_cast<unsigned>(seed));
    const QueueTree tree = RandomTree(random, 12);
    World world(4, 3, tree);
    world.set_reclaims(true);
    std::mt19937 engine(static_cast<unsigned>(seed));
    for (int i = 0; i < 20; ++i) {
      world.Submit(random.Pick(1, 4), random.Pick(1, 3), random.Minutes(5, 60), minutes(50),
                   random.Pick(0, static_cast<int>(tree.queues.size()) - 1));
      SchedulerSnapshot snapshot = world.Snapshot();
      const std::string plan = Text(Plan(snapshot));
      std::ranges::shuffle(snapshot.requests, engine);
      std::ranges::shuffle(snapshot.nodes, engine);
      std::ranges::shuffle(snapshot.running, engine);
      ASSERT_EQ(Text(Plan(snapshot)), plan);
      ASSERT_NO_FATAL_FAILURE(world.RunPass());
      if (random.OneIn(2)) world.EndUntil(std::min(world.NextEvent(), world.now() + hours(1)));
    }
  }
}

TEST(ScheduleProperties, TimeAloneReordersNothing) {
  QueueTree tree = DefaultTree();
  tree.queues.push_back({.name = "b", .weight = 2});
  tree.queues.push_back({.name = "c"});
  World world(4, 4, tree);
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    world.Submit(1, random.Pick(1, 4), hours(1), random.Minutes(5, 60), i % 3);
    world.RunPass();
    if (i % 4 == 0) world.EndUntil(world.NextEvent());
  }
  const auto order = [&] {
    SchedulerSnapshot snapshot = world.Snapshot();
    snapshot.running.clear();
    snapshot.nodes.clear();
    std::string jobs;
    for (GangRequest& request : snapshot.requests) {
      request.promise.reset();
      request.turn = kNever;
    }
    for (const WaitingJob& waiting : Plan(snapshot).waiting) jobs += waiting.job.value + " ";
    return jobs;
  };
  world.EndUntil(world.now() + hours(2));  // nothing runs: what it has had is booked
  const std::string before = order();
  EXPECT_THAT(before, testing::Not(testing::IsEmpty()));
  for (const int later : {1, 10, 100}) {
    SchedulerSnapshot snapshot = world.Snapshot();
    world.set_now(world.now() + hours(later));
    EXPECT_EQ(order(), before);
  }
}

}  // namespace
}  // namespace muster
