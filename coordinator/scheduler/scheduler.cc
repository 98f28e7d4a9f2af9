#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/first_time.h"
#include "coordinator/scheduler/gang_choice.h"
#include "coordinator/scheduler/pass_record.h"
#include "coordinator/scheduler/queue_loads.h"
#include "coordinator/scheduler/queue_turns.h"
#include "coordinator/scheduler/victims.h"

namespace muster {
namespace {

// When a gang ends for which that was planned. One that is late is expected in a minute, then in
// two, in four: each guess may move promises.
TimePoint ExpectedEnd(TimePoint planned, TimePoint now) {
  Duration late = Duration::zero();
  while (planned != kNever && planned + late <= now)
    late = late == Duration::zero() ? std::chrono::minutes(1) : 2 * late;
  return planned == kNever ? kNever : planned + late;
}

// The nodes are to it what they are to every job with its demand.
bool IsPlain(const GangRequest& request) {
  return request.held.empty() && request.exclude.empty() && request.place.empty() &&
         !request.preemptible && !(request.share_spares && request.recovering);
}

// Why jobs of a kind wait, until the nodes change: most jobs of a long queue are like others.
class KnownReasons {
 public:
  // Nothing: it may be placed. What a job of another queue that is over its ceiling found says
  // nothing of the nodes' room, and is enough for one that is over a ceiling too.
  const WaitReason* Find(const GangRequest& request, bool over_ceiling) const {
    if (!IsPlain(request)) return nullptr;
    for (const auto& [reason, length] : reasons_) {
      // What has no room for an hour has none for two, and more nodes have less.
      if (reason.nodes <= request.least() && length <= request.length &&
          (over_ceiling || reason.over_ceiling.empty()) && reason.demand == request.demand)
        return &reason;
    }
    return nullptr;
  }
  void Add(const GangRequest& request, const WaitReason& reason) {
    constexpr std::size_t kKept = 64;
    if (!IsPlain(request)) return;
    std::erase_if(reasons_, [&](const auto& known) {  // what the new one says too
      return reason.nodes <= known.first.nodes && request.length <= known.second &&
             reason.over_ceiling.empty() && reason.demand == known.first.demand;
    });
    if (reasons_.size() < kKept) reasons_.emplace_back(reason, request.length);
  }
  void NodesChange() { reasons_.clear(); }

 private:
  std::vector<std::pair<WaitReason, Duration>> reasons_;
};

// Kinds of jobs for which no set of all victims was enough. What runs gives way less and less
// during a pass, and a longer job fits nowhere that a shorter one does not.
class FruitlessKinds {
 public:
  bool Contains(const GangRequest& request) const {
    return ContainsAll() || std::ranges::any_of(kinds_, [&](const GangRequest* kind) {
             return IsPlain(request) && kind->queue == request.queue &&
                    kind->class_value == request.class_value && kind->least() <= request.least() &&
                    kind->length <= request.length && kind->demand == request.demand;
           });
  }
  void Add(const GangRequest& request) {
    if (IsPlain(request)) kinds_.push_back(&request);
  }
  bool ContainsAll() const { return kinds_.size() >= kKept; }

 private:
  static constexpr std::size_t kKept = 64;
  std::vector<const GangRequest*> kinds_;
};

// How many nodes have room at this moment, whatever they are kept for later. Most jobs of a full
// cluster have none. A count that is too low for one job holds for its demand until what is free
// now changes.
class KnownRoom {
 public:
  // Whether as many have as the gang has nodes at least.
  bool IsEnough(const GangRequest& request, const Fit& fit, const PlannedNodes& nodes) {
    constexpr std::size_t kKept = 64;
    if (request.nodes == 0 || !IsPlain(request)) return true;
    for (const auto& [demand, count] : counts_)
      if (count < request.least() && demand == request.demand) return false;
    int count = 0;
    for (const PlannedNode& node : nodes) {
      count += fit.LacksNow(node) == Lack::kNothing ? 1 : 0;
      if (count == request.least()) return true;
    }
    if (counts_.size() < kKept) counts_.emplace_back(request.demand, count);
    return false;
  }
  void NodesChange() { counts_.clear(); }

 private:
  std::vector<std::pair<NodeDemand, int>> counts_;
};

// The phases of a pass, in order: recoveries, then for each class what is within guarantees and
// what borrows.
struct Phase {
  int number = 0;  // 0: recoveries
  int class_value = 0;
  bool entitled() const { return number % 2 == 1; }
  // Why a job of this phase had to give way to one of an earlier phase.
  DelayCause CauseOf(int earlier) const {
    if (earlier == 0) return DelayCause::kRecovery;
    const bool same_class = (earlier + 1) / 2 == (number + 1) / 2;
    return same_class ? DelayCause::kGuarantee : DelayCause::kClass;
  }
};

const QueueTree& QueuesOf(const SchedulerSnapshot& snapshot) {
  static const QueueTree one = DefaultTree();
  return snapshot.queues == nullptr ? one : *snapshot.queues;
}

PassState StartOf(const SchedulerSnapshot& snapshot) {
  return {.nodes = {snapshot.nodes, snapshot.now},
          .loads = {QueuesOf(snapshot), snapshot.usage, snapshot.now}};
}

// Nodes for which a job that recovers counts in its queue already.
int HeldNodes(const GangRequest& request) {
  if (!request.recovering) return 0;
  return std::clamp(static_cast<int>(request.former_nodes.size()), request.least(), request.nodes);
}

// Jobs that look for an earlier start than they were promised: the next ones.
constexpr int kImprovedJobs = 16;
// A gang that ends later than planned moves the promises behind it by as much; by more, and they
// are planned anew.
constexpr Duration kSlip = std::chrono::minutes(10);

// The latest start that is worth another promise, or victims.
TimePoint WorthMovingTo(TimePoint planned, TimePoint now) {
  constexpr Duration kLeastGain = std::chrono::minutes(1);
  return planned - std::max(kLeastGain, (planned - now) / 10);
}

// Exact up to `latest`. A later start may be missed, or not be the first.
std::optional<TimePoint> EarliestStart(const GangRequest& request, const Fit& fit,
                                       const PlannedNodes& nodes, const QueueLoads& loads,
                                       TimePoint latest) {
  FirstTime first;
  if (!request.recovering) {
    const Amounts load = request.LoadOf(request.least());
    for (const std::vector<TimeSpan>& spans : loads.Starts(request.queue, load, request.length)) {
      if (spans.empty()) return std::nullopt;  // without a look at the nodes
      first.AddLimit(spans);
    }
  }
  const TopologyDemand& topology = request.demand.topology;
  const TopologyLevel within = topology.required ? topology.within : TopologyLevel::kNone;
  std::map<std::string_view, std::size_t> groups;
  for (const PlannedNode& node : nodes) {
    const std::size_t group =
        within == TopologyLevel::kNone
            ? 0
            : groups.emplace(PlaceOf(node.inventory(), within), groups.size()).first->second;
    fit.EachStart(node, [&](const TimeSpan& span) {
      if (span.from <= latest) first.AddNode(span, group);
    });
  }
  return std::move(first).Find(request.least());
}

struct Victims {
  bool are_enough = false;  // else nodes and loads are as before
  std::vector<Reclaim> chosen;
  TimePoint again_at = kNever;  // more gangs may give way from then on
  bool all_asked = true;        // none stops too late to be of use to this job
};
// Gangs that give way to it now, so that it starts sooner than it would otherwise. Nodes and loads
// are then as if they had.
Victims FindVictims(const GangRequest& request, bool entitled, TimePoint now,
                    std::span<const RunningGang* const> gangs, std::optional<TimePoint> otherwise,
                    const std::vector<NodeMatch>& matches, PlannedNodes& nodes, QueueLoads& loads) {
  VictimSearch search(request, entitled, now, nodes, loads);
  const TimePoint latest = otherwise ? WorthMovingTo(*otherwise, now) : kNever;
  Victims victims;
  for (const RunningGang* gang : gangs) {
    const bool in_time = now + gang->leaves_in <= latest;
    if (in_time) search.Consider(*gang, ExpectedEnd(gang->ends, now));
    victims.all_asked &= in_time;
  }
  victims.are_enough = search.Run(matches);
  if (victims.are_enough) victims.chosen = search.Chosen();
  victims.again_at = search.next();
  return victims;
}

bool HasPromise(const GangRequest& request) { return request.promise && !request.recovering; }

// Whether the ceilings leave room for it at some time.
bool LimitsAllow(const GangRequest& request, const QueueLoads& loads) {
  return request.recovering ||
         std::ranges::none_of(
             loads.Starts(request.queue, request.LoadOf(request.least()), request.length),
             [](const std::vector<TimeSpan>& spans) { return spans.empty(); });
}

// Whether nodes and ceilings still have all of it. `fit` is that of its start.
bool IsThere(const GangRequest& request, const Promise& promise, const Fit& fit,
             const PlannedNodes& nodes, const QueueLoads& loads) {
  if (promise.nodes.size() != static_cast<std::size_t>(request.least())) return false;
  const TimePoint end = EndOf(promise.start, request.length);
  const Amounts load = request.LoadOf(request.least());
  if (loads.OverCeiling(request.queue, load, promise.start, end) >= 0) return false;
  for (std::size_t i = 0; i < promise.nodes.size(); ++i) {
    const PlannedNode* node = nodes.Find(promise.nodes[i]);
    if (node == nullptr || !fit.Has(*node, promise.devices[i])) return false;
  }
  return true;
}

// Its start, and when something on its nodes ends until `last`.
std::set<TimePoint> StartsUntil(TimePoint last, const Promise& promise, const PlannedNodes& nodes) {
  std::set<TimePoint> starts = {promise.start};
  for (const NodeName& name : promise.nodes) {
    const PlannedNode* node = nodes.Find(name);
    if (node == nullptr) return {};
    for (std::size_t i = 0; i < node->free.size(); ++i)
      if (const TimePoint from = node->free.at(i).from; from > promise.start && from <= last)
        starts.insert(from);
  }
  return starts;
}

// `over`: the queue whose ceiling the job would exceed now; below 0: none.
void NoteCeiling(const QueueLoads& loads, const GangRequest& request, int over, TimePoint now,
                 WaitReason& reason) {
  reason.over_ceiling.clear();
  reason.used = reason.ceiling = {};
  if (over < 0) return;
  const QueueSpec& queue = loads.Spec(over);
  reason.over_ceiling = queue.name;
  if (!IsOfUser(queue.name)) return;
  reason.used = loads.Peak(over, now, EndOf(now, request.length));
  reason.ceiling = queue.ceiling;
}

class Pass {
 public:
  // Pointers: nullptr is none; what they point to outlives the pass.
  struct Variant {
    // All of the plan; else that of `with` and of jobs that were promised a start.
    bool is_whole = true;
    const GangRequest* with = nullptr;                 // considered instead of the same job's
    const std::vector<GangRequest>* probes = nullptr;  // of one job, which has no other turn
    const AtTurn* at_turn = nullptr;
    std::set<const GangRequest*> answered = {};  // of the probes
    PassRecord* record = nullptr;
  };
  Pass(const SchedulerSnapshot& snapshot, const Variant& variant, PassState start);

  SchedulePlan Run();
  // What a pass decides about `with` that comes to its turn with that start.
  AddedJob Decide(bool entitled);

 private:
  using Requests = std::vector<const GangRequest*>;
  // A promise as the pass begins with it.
  struct HeldPromise {
    std::optional<Promise> reserved;  // at its start or a little later; nothing: it cannot be
    DelayCause why_later = DelayCause::kNone;
  };
  static constexpr int kNotTaken = -1;

  void AddRunning();
  void RunRecoveries(Requests requests);
  void RunClass(Requests requests);
  void RunPhase(Requests& requests);
  void RunPromised(const Requests& requests);
  void RunQueues(Requests& requests);
  void Record(int queue, std::optional<std::size_t> place);

  void Consider(const GangRequest& request);
  void ConsiderPromised(const GangRequest& request, const HeldPromise& held);
  bool Start(const GangRequest& request, const Fit& fit);
  bool WaitForLent(const GangRequest& request, const Fit& fit);
  void Place(const GangRequest& request, const Fit& fit, const GangChoice& choice);
  void Wait(const GangRequest& request, const Fit& fit, WaitingJob waiting);

  int OverCeiling(const GangRequest& request, int nodes) const;
  bool MayReclaim(const GangRequest& request) const;
  bool ReclaimFor(const GangRequest& request, std::optional<TimePoint> otherwise);
  std::optional<TimePoint> EarliestStartOf(const GangRequest& request, const Fit& fit,
                                           TimePoint latest = kNever) const {
    return EarliestStart(request, fit, nodes_, loads_, latest);
  }
  WaitReason ReasonFor(const GangRequest& request, const Fit& fit) const;
  Promise Reserve(const GangRequest& request, TimePoint start);
  std::vector<NodeName> Collect(const GangRequest& request, const Fit& fit);
  HeldPromise Hold(const GangRequest& request);
  bool Take(const GangRequest& request, const Promise& promise);
  void GiveUp(const GangRequest& request, const Promise& promise);
  DelayCause WhyDelayed(const GangRequest& request);
  void BeginPhase(int number);

  bool IsProbe(const GangRequest& request) const {
    return probes_ != nullptr && !std::less<>()(&request, probes_->data()) &&
           std::less<>()(&request, probes_->data() + probes_->size());
  }
  bool HasReader(const GangRequest& request) const { return is_whole_ || &request == with_; }
  // Nothing is read of what is left, but for promised jobs of this phase.
  bool IsOver() const {
    if (probes_ != nullptr) return answered_.size() == probes_->size();
    return !is_whole_ && !with_is_left_ && promises_left_ == 0;
  }
  bool Ask(const GangRequest& probe, const QueueLoads& guaranteed);
  void MarkTaken(const PlannedNode& node) { taken_now_.push_back(nodes_.IndexOf(node)); }
  void NodesChange(TimePoint from) {
    changed_ = true;
    known_.NodesChange();
    if (from <= now_) room_now_.NodesChange();
  }

  const SchedulerSnapshot& snapshot_;
  const TimePoint now_;
  PlannedNodes nodes_;
  // The last of the phases before this one that gave away or reserved parts of each node, or of
  // any.
  std::vector<int> taken_in_;
  int any_taken_in_ = kNotTaken;
  std::vector<std::size_t> taken_now_;  // nodes, in this phase
  // Why the last promise of this phase was moved: what moves those behind it by as much.
  DelayCause delay_ahead_ = DelayCause::kLimits;
  MatchTable matches_;
  const QueueTree& queues_;
  QueueLoads loads_;
  KnownReasons known_;
  KnownRoom room_now_;
  std::vector<const RunningGang*> gangs_;  // that may be victims
  std::map<JobId, Amounts> claimants_;     // that gangs give way to, and what they will have
  FruitlessKinds fruitless_;
  Phase phase_;
  int planned_ = 0;  // jobs that wait with a start, or collect
  bool collecting_ = false;
  SchedulePlan plan_;

  const bool is_whole_;
  const GangRequest* const with_;
  bool with_is_left_;
  const std::vector<GangRequest>* const probes_;
  const AtTurn* const at_turn_;
  std::set<const GangRequest*> answered_;  // of the probes
  PassRecord* const record_;
  bool changed_ = true;    // since what there is was recorded
  int promises_left_ = 0;  // of jobs that are considered in later phases
  bool promise_moved_ = false;
};

Pass::Pass(const SchedulerSnapshot& snapshot, const Variant& variant, PassState start)
    : snapshot_(snapshot),
      now_(snapshot.now),
      nodes_(std::move(start.nodes)),
      taken_in_(nodes_.size(), kNotTaken),
      matches_(nodes_),
      queues_(QueuesOf(snapshot)),
      loads_(std::move(start.loads)),
      gangs_(std::move(start.gangs)),
      claimants_(std::move(start.claimants)),
      planned_(start.planned),
      collecting_(start.collecting),
      is_whole_(variant.is_whole),
      with_(variant.with),
      with_is_left_(variant.with != nullptr),
      probes_(variant.probes),
      at_turn_(variant.at_turn),
      answered_(variant.answered),
      record_(variant.record) {}

SchedulePlan Pass::Run() {
  AddRunning();
  Requests all;  // without probes
  all.reserve(snapshot_.requests.size() + 1);
  const GangRequest* other = probes_ == nullptr ? with_ : probes_->data();
  for (const GangRequest& request : snapshot_.requests)
    if (other == nullptr || request.job != other->job) all.push_back(&request);
  if (with_ != nullptr) all.push_back(with_);
  Requests recovering;
  std::map<int, Requests, std::greater<>> classes;
  if (record_ != nullptr)
    for (const PriorityClass& each : queues_.classes) classes[each.value];
  if (is_whole_) plan_.waiting.reserve(all.size());
  for (const GangRequest* request : all) promises_left_ += HasPromise(*request);
  for (const GangRequest* request : all)
    if (const auto claimant = claimants_.find(request->job); claimant != claimants_.end())
      loads_.Expect(request->queue, claimant->second = request->AmountsOf(request->least()));
  for (const GangRequest* request : all)
    (request->recovering ? recovering : classes[request->class_value]).push_back(request);
  if (probes_ != nullptr)
    for (const GangRequest& probe : *probes_)
      if (!answered_.contains(&probe)) classes[probe.class_value].push_back(&probe);
  RunRecoveries(std::move(recovering));
  for (auto& [value, requests] : classes) {
    if (IsOver()) break;
    phase_.class_value = value;
    RunClass(std::move(requests));
  }
  return std::move(plan_);
}

void Pass::AddRunning() {
  std::vector<RunningLoad> loads;
  loads.reserve(snapshot_.running.size());
  for (const RunningGang& gang : snapshot_.running) {
    const TimePoint ends = ExpectedEnd(gang.ends, now_);
    loads.push_back({gang.queue, gang.amounts, ends});
    if (!gang.gives_way_to.empty()) {
      loads_.Expect(gang.queue, -gang.amounts);
      claimants_[gang.gives_way_to] = {};
    } else if (gang.victim_from != kNever) {
      gangs_.push_back(&gang);
    }
    if (ends == kNever) continue;
    for (const HeldParts& held : gang.parts) {
      PlannedNode* node = nodes_.Find(held.node);
      if (node == nullptr) continue;
      NodeParts parts = held.parts;
      parts.devices &= node->capacity.all.devices;
      node->free.Apply(ends, kNever, [&](NodeParts& free) { Add(free, parts); });
    }
  }
  loads_.HoldRunning(loads);
}

void Pass::RunRecoveries(Requests requests) {
  // They have not given up what they had.
  for (const GangRequest* request : requests) {
    Amounts held = request->AmountsOf(HeldNodes(*request));
    held.jobs = 1;
    loads_.Hold(request->queue, held, now_, EndOf(now_, request->length));
  }
  // A preemptible one would give back at once what the others need.
  std::ranges::sort(requests, {}, [](const GangRequest* r) {
    return std::tuple(r->preemptible, -r->class_value, -r->priority, r->submit_order);
  });
  for (const GangRequest* request : requests) Consider(*request);
  // What they hold of their queues lasts longer than before, even if they have no nodes yet.
  if (!requests.empty()) any_taken_in_ = phase_.number;
}

void Pass::RunClass(Requests requests) {
  SortForTurns(requests);
  for (int n = 0; n < 2; ++n) {
    BeginPhase(phase_.number + 1);
    RunPhase(requests);
  }
}

void Pass::BeginPhase(int number) {
  for (const std::size_t node : taken_now_) taken_in_[node] = phase_.number;
  if (!taken_now_.empty()) any_taken_in_ = phase_.number;
  taken_now_.clear();
  phase_.number = number;
  delay_ahead_ = DelayCause::kLimits;
}

// Removes the requests that it has considered.
void Pass::RunPhase(Requests& requests) {
  const auto belongs = [&](const GangRequest& request) {
    return !phase_.entitled() ||
           loads_.IsEntitled(request.queue, request.AmountsOf(request.least()));
  };
  Requests promised;
  std::erase_if(requests, [&](const GangRequest* request) {
    const bool first =
        request->turn != kNever && request->nodes > 0 && (IsProbe(*request) || belongs(*request));
    if (first) promised.push_back(request);
    return first;
  });
  std::ranges::sort(promised, {},
                    [](const GangRequest* r) { return std::tuple(r->turn, r->submit_order); });
  RunPromised(promised);
  RunQueues(requests);
  for (const GangRequest* request : promised)
    if (IsProbe(*request) && !answered_.contains(request)) requests.push_back(request);
}

// What is reserved for all of them is there before one of them is moved.
void Pass::RunPromised(const Requests& requests) {
  std::vector<HeldPromise> held;
  // By what they belong to this phase.
  const std::optional<QueueLoads> before =
      probes_ == nullptr ? std::nullopt : std::optional(loads_);
  for (const GangRequest* request : requests) {
    held.push_back(request->promise ? Hold(*request) : HeldPromise());
    promises_left_ -= request->promise ? 1 : 0;
    promise_moved_ |= held.back().why_later != DelayCause::kNone;
  }
  for (std::size_t i = 0; i < requests.size() && !(IsOver() && probes_ != nullptr); ++i) {
    const GangRequest& request = *requests[i];
    if (IsProbe(request)) {
      Ask(request, *before);
      continue;
    }
    request.promise ? ConsiderPromised(request, held[i]) : Consider(request);
    loads_.Charge(request.queue, request.AmountsOf(request.least()), request.length);
  }
}

// The queues take turns by their shares; `requests` are in the order of queues.
void Pass::RunQueues(Requests& requests) {
  struct Waiting {
    std::size_t next = 0, end = 0;
  };
  const auto queues = static_cast<int>(queues_.queues.size());
  std::vector<Waiting> waiting(queues_.queues.size());
  QueueTurns turns(queues_, loads_);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Waiting& of_queue = waiting[static_cast<std::size_t>(requests[i]->queue)];
    if (of_queue.end == 0) {
      of_queue.next = i;
      turns.Add(requests[i]->queue);
    }
    of_queue.end = i + 1;
  }
  if (record_ != nullptr) {
    record_->BeginPhase(phase_.class_value, phase_.entitled(), promises_left_ > 0 || promise_moved_,
                        queues, requests);
    for (int queue = 0; queue < queues; ++queue)
      if (queues_.queues[static_cast<std::size_t>(queue)].leaf &&
          waiting[static_cast<std::size_t>(queue)].end == 0)
        turns.Add(queue);
  }
  while (!turns.empty() && !IsOver()) {
    const int queue = turns.Next();
    Waiting& of_queue = waiting[static_cast<std::size_t>(queue)];
    const bool is_empty = of_queue.next == of_queue.end;
    if (record_ != nullptr) Record(queue, is_empty ? std::nullopt : std::optional(of_queue.next));
    if (is_empty) {  // it had a last turn, in which others may come that are not there
      turns.Remove(queue);
      continue;
    }
    const GangRequest*& request = requests[of_queue.next++];
    const Amounts amounts = request->AmountsOf(std::max(request->least(), 1));
    if (IsProbe(*request)) {
      if (Ask(*request, loads_)) request = nullptr;
    } else if (!phase_.entitled() || loads_.IsEntitled(request->queue, amounts)) {
      const Duration length = request->length;
      Consider(*std::exchange(request, nullptr));
      loads_.Charge(queue, amounts, length);
      turns.Update(queue);
    }
  }
  std::erase(requests, nullptr);
}

// A turn of a queue: that of the job at `place`, or of one behind all of its jobs.
void Pass::Record(int queue, std::optional<std::size_t> place) {
  if (std::exchange(changed_, false))
    record_->Keep({.nodes = nodes_,
                   .loads = loads_,
                   .gangs = gangs_,
                   .claimants = claimants_,
                   .planned = planned_,
                   .collecting = collecting_});
  if (fruitless_.ContainsAll()) record_->EndVictims();
  place ? record_->TakeTurn(*place) : record_->TakeLastTurn(queue);
}

// Whether it needs no other turn.
bool Pass::Ask(const GangRequest& probe, const QueueLoads& guaranteed) {
  const std::size_t asked = fruitless_.ContainsAll() ? 0 : gangs_.size();
  const bool answered = (*at_turn_)({.probe = probe,
                                     .entitled = phase_.entitled(),
                                     .guaranteed = guaranteed,
                                     .loads = loads_,
                                     .nodes = nodes_,
                                     .matches = matches_,
                                     .endangers_promises = promises_left_ > 0 || promise_moved_,
                                     .gangs = std::span(gangs_).first(asked),
                                     .planned = planned_});
  if (answered) answered_.insert(&probe);
  return answered;
}

int Pass::OverCeiling(const GangRequest& request, int nodes) const {
  nodes -= HeldNodes(request);
  return nodes <= 0 ? -1
                    : loads_.OverCeiling(request.queue, request.LoadOf(nodes), now_,
                                         EndOf(now_, request.length));
}

AddedJob Pass::Decide(bool entitled) {
  phase_.number = entitled ? 1 : 2;
  changed_ = false;
  Consider(*with_);
  return {.plan = std::move(plan_), .takes = changed_};
}

void Pass::Consider(const GangRequest& request) {
  if (&request == with_) with_is_left_ = false;
  if (request.nodes == 0) {  // spares, as many as there are
    if (std::ranges::find(plan_.reclaims, request.job, &Reclaim::victim) != plan_.reclaims.end())
      return;
    Start(request, Fit(request, matches_.Of(request.demand), nodes_, now_));
    return;
  }
  const int over = OverCeiling(request, request.least());
  const WaitReason* known = known_.Find(request, over >= 0);
  if (known != nullptr && &request != with_ && !MayReclaim(request) &&
      (over < 0 || planned_ >= kPlannedJobs || !LimitsAllow(request, loads_))) {
    if (!is_whole_) return;  // no one reads that it waits
    plan_.waiting.push_back({request.job, *known});
    plan_.waiting.back().reason.nodes = request.least();
    NoteCeiling(loads_, request, over, now_, plan_.waiting.back().reason);
    plan_.waiting.back().is_behind_planned = planned_ >= kPlannedJobs;
    return;
  }
  const Fit fit(request, matches_.Of(request.demand), nodes_, now_, SpareReach::kEmpty);
  if (over < 0 && (WaitForLent(request, fit) || Start(request, fit))) return;
  Wait(request, fit, {request.job, ReasonFor(request, fit)});
}

// Whether more nodes are there for it once preemptible gangs have left some of its spares. It keeps
// all of them until it starts.
bool Pass::WaitForLent(const GangRequest& request, const Fit& fit) {
  if (!request.recovering || !request.share_spares) return false;
  const Fit beyond(request, matches_.Of(request.demand), nodes_, now_, SpareReach::kLent);
  GangRequest gang = request;
  gang.spares = 0;
  const std::optional<GangChoice> cleared = Choose(gang, beyond, nodes_);
  if (!cleared) return false;
  WaitingJob waiting{.job = request.job};
  for (const PlannedNode* node : cleared->nodes)
    if (beyond.SourceOf(*node) == PartsFrom::kLent) waiting.clears.push_back(node->capacity.name);
  if (waiting.clears.empty()) return false;
  const std::optional<GangChoice> now = Choose(gang, fit, nodes_);
  if (now && now->nodes.size() >= cleared->nodes.size()) return false;
  waiting.reason = ReasonFor(request, fit);
  for (PlannedNode* node : cleared->nodes) {
    beyond.Take(*node, beyond.Devices(*node));
    MarkTaken(*node);
  }
  NodesChange(now_);
  plan_.waiting.push_back(std::move(waiting));
  return true;
}

// Plans when it starts, if it is one of the first.
void Pass::Wait(const GangRequest& request, const Fit& fit, WaitingJob waiting) {
  const bool may_run = waiting.reason.over_ceiling.empty();
  bool changes_nodes = false;
  waiting.is_behind_planned = planned_ >= kPlannedJobs;
  if (!waiting.is_behind_planned) {
    std::optional<TimePoint> start = EarliestStartOf(request, fit);
    if (ReclaimFor(request, start)) start = EarliestStartOf(request, fit);
    if (start) {
      waiting.promise = Reserve(request, *start);
      changes_nodes = true;
    } else if (may_run && !collecting_ && LimitsAllow(request, loads_)) {
      waiting.collects = Collect(request, fit);
      waiting.reason.collects = changes_nodes = collecting_ = !waiting.collects.empty();
    }
  }
  if (request.recovering) waiting.promise.reset();
  if (changes_nodes) {
    ++planned_;
    NodesChange(waiting.promise ? waiting.promise->start : now_);
  } else {
    known_.Add(request, waiting.reason);
  }
  plan_.waiting.push_back(std::move(waiting));
}

void Pass::ConsiderPromised(const GangRequest& request, const HeldPromise& held) {
  if (&request == with_) with_is_left_ = false;
  const Promise& promise = *request.promise;
  if (held.reserved) GiveUp(request, *held.reserved);
  const Fit fit(request, matches_.Of(request.demand), nodes_, now_, SpareReach::kEmpty);
  if (OverCeiling(request, request.least()) < 0 && Start(request, fit)) return;
  WaitingJob waiting{request.job, ReasonFor(request, fit)};
  if (held.reserved && held.reserved->start > now_ && !ReclaimFor(request, held.reserved->start)) {
    // What had moved it may have found another place since then.
    const bool returns =
        held.why_later != DelayCause::kNone && promise.start > now_ &&
        IsThere(request, promise, Fit(request, matches_.Of(request.demand), nodes_, promise.start),
                nodes_, loads_);
    const Promise& kept = returns ? promise : *held.reserved;
    const TimePoint latest = WorthMovingTo(kept.start, now_);
    const std::optional<TimePoint> start =
        planned_ < kImprovedJobs ? EarliestStartOf(request, fit, latest) : std::nullopt;
    if (!start || *start > latest) {
      Take(request, kept);
      for (const NodeName& name : kept.nodes) nodes_.Find(name)->reserved_for = &request.job;
      ++planned_;
      waiting.promise = kept;
      if (kept.start > promise.start) waiting.delayed = held.why_later;
      plan_.waiting.push_back(std::move(waiting));
      return;
    }
  }
  Wait(request, fit, std::move(waiting));
  WaitingJob& now = plan_.waiting.back();
  if (!now.promise || now.promise->start > promise.start) now.delayed = held.why_later;
}

bool Pass::Start(const GangRequest& request, const Fit& fit) {
  if (!room_now_.IsEnough(request, fit, nodes_)) return false;
  const auto most = [&](int least, int wanted, int beside) {
    while (wanted > least && OverCeiling(request, beside + wanted) >= 0) --wanted;
    return wanted;
  };
  GangRequest allowed = request;
  allowed.nodes = most(request.least(), request.nodes, 0);
  if (!request.share_spares) allowed.spares = most(0, request.spares, allowed.nodes);
  const std::optional<GangChoice> choice = Choose(allowed, fit, nodes_);
  if (!choice) return false;
  Place(request, fit, *choice);
  return true;
}

void Pass::Place(const GangRequest& request, const Fit& fit, const GangChoice& choice) {
  if (choice.nodes.empty() && choice.spares.empty()) return;
  GangPlacement placement{.job = request.job};
  const auto take = [&](PlannedNode& node, std::vector<NodeName>& names,
                        std::vector<DeviceMask>& devices) {
    names.push_back(node.capacity.name);
    devices.push_back(fit.Devices(node));
    fit.Take(node, devices.back());
    MarkTaken(node);
  };
  for (PlannedNode* node : choice.nodes) {
    if (request.preemptible && fit.SourceOf(*node) == PartsFrom::kShared)
      placement.lent.push_back(node->capacity.name);
    take(*node, placement.nodes, placement.node_devices);
  }
  for (PlannedNode* node : choice.spares) {
    if (!request.share_spares) {
      take(*node, placement.spares, placement.spare_devices);
      continue;
    }
    placement.spares.push_back(node->capacity.name);
    placement.spare_devices.push_back(fit.TakeSpare(*node));
    MarkTaken(*node);
  }
  const std::size_t own_spares = request.share_spares ? 0 : placement.spares.size();
  const auto placed = static_cast<int>(placement.nodes.size() + own_spares);
  loads_.Hold(request.queue, request.LoadOf(placed - HeldNodes(request)), now_,
              EndOf(now_, request.length));
  NodesChange(now_);
  // A gang that grows gives no way meanwhile.
  std::erase_if(gangs_, [&](const RunningGang* gang) { return gang->job == request.job; });
  if (const auto claim = claimants_.extract(request.job))
    loads_.Expect(request.queue, -claim.mapped());
  plan_.placements.push_back(std::move(placement));
}

bool Pass::MayReclaim(const GangRequest& request) const {
  return !gangs_.empty() && planned_ < kPlannedJobs && request.nodes > 0 && !request.recovering &&
         !claimants_.contains(request.job) && !fruitless_.Contains(request);
}

// Whether gangs give way to it now, so that it starts sooner than it would otherwise.
bool Pass::ReclaimFor(const GangRequest& request, std::optional<TimePoint> otherwise) {
  if (!MayReclaim(request)) return false;
  Victims found = FindVictims(request, phase_.entitled(), now_, gangs_, otherwise,
                              matches_.Of(request.demand), nodes_, loads_);
  if (!found.are_enough) {
    if (found.all_asked) fruitless_.Add(request);
    plan_.again_at = std::min(plan_.again_at, found.again_at);
    return false;
  }
  NodesChange(now_);  // victims may leave at once
  const Amounts amounts = request.AmountsOf(request.least());
  claimants_[request.job] = amounts;
  loads_.Expect(request.queue, amounts);
  std::set<JobId> victims;
  for (Reclaim& reclaim : found.chosen) {
    victims.insert(reclaim.victim);
    plan_.reclaims.push_back(std::move(reclaim));
  }
  std::erase_if(gangs_, [&](const RunningGang* gang) { return victims.contains(gang->job); });
  return true;
}

WaitReason Pass::ReasonFor(const GangRequest& request, const Fit& fit) const {
  WaitReason reason = HasReader(request)
                          ? ReasonOf(request, fit, nodes_, now_, [](const auto&...) {})
                          : WaitReason{.nodes = request.least(), .demand = request.demand};
  NoteCeiling(loads_, request, OverCeiling(request, request.least()), now_, reason);
  return reason;
}

Promise Pass::Reserve(const GangRequest& request, TimePoint start) {
  GangRequest least = request;
  least.nodes = request.least();
  least.spares = 0;
  const Fit fit(request, matches_.Of(request.demand), nodes_, start);
  Promise promise{.start = start};
  // As many have room: that is what the start was found by.
  for (PlannedNode* node : Choose(least, fit, nodes_).value_or(GangChoice()).nodes) {
    promise.nodes.push_back(node->capacity.name);
    promise.devices.push_back(fit.Devices(*node));
    fit.Take(*node, promise.devices.back());
    node->reserved_for = &request.job;
    MarkTaken(*node);
  }
  if (!request.recovering) {
    loads_.Hold(request.queue, request.LoadOf(least.nodes), start, EndOf(start, request.length));
  }
  return promise;
}

// Returns where; empty: the nodes could not hold it if they were empty.
std::vector<NodeName> Pass::Collect(const GangRequest& request, const Fit& fit) {
  std::vector<NodeName> names;
  for (PlannedNode* node : NodesToCollect(request, fit, nodes_)) {
    fit.Collect(*node);
    node->reserved_for = &request.job;
    MarkTaken(*node);
    names.push_back(node->capacity.name);
  }
  return names;
}

// Takes what the promise names, at its start if all of it is there, or a little later.
Pass::HeldPromise Pass::Hold(const GangRequest& request) {
  Promise promise = *request.promise;
  if (promise.start >= now_ && Take(request, promise)) return {promise};
  // Later in the pass, others may have what it cannot.
  const DelayCause why_later = WhyDelayed(request);
  promise.start = std::max(promise.start, now_);
  for (const TimePoint start : StartsUntil(EndOf(promise.start, kSlip), promise, nodes_)) {
    promise.start = start;
    if (Take(request, promise)) return {promise, why_later};
  }
  return {std::nullopt, why_later};
}

// Whether all of it is there; else it takes nothing.
bool Pass::Take(const GangRequest& request, const Promise& promise) {
  const Fit fit(request, matches_.Of(request.demand), nodes_, promise.start);
  if (!IsThere(request, promise, fit, nodes_, loads_)) return false;
  for (std::size_t i = 0; i < promise.nodes.size(); ++i) {
    PlannedNode* node = nodes_.Find(promise.nodes[i]);
    fit.Take(*node, promise.devices[i]);
    node->promised_to = &request.job;
    MarkTaken(*node);
  }
  loads_.Hold(request.queue, request.LoadOf(request.least()), promise.start,
              EndOf(promise.start, request.length));
  NodesChange(promise.start);
  return true;
}

void Pass::GiveUp(const GangRequest& request, const Promise& promise) {
  const Fit fit(request, matches_.Of(request.demand), nodes_, promise.start);
  for (std::size_t i = 0; i < promise.nodes.size(); ++i)
    fit.GiveBack(*nodes_.Find(promise.nodes[i]), promise.devices[i]);
  loads_.Release(request.queue, request.LoadOf(request.least()), promise.start,
                 EndOf(promise.start, request.length));
  NodesChange(promise.start);
}

DelayCause Pass::WhyDelayed(const GangRequest& request) {
  const Promise& promise = *request.promise;
  const Fit fit(request, matches_.Of(request.demand), nodes_, now_);
  int taken_in = kNotTaken;
  for (std::size_t i = 0; i < promise.nodes.size(); ++i) {
    const PlannedNode* node = nodes_.Find(promise.nodes[i]);
    // Devices that their node does not report any more are not in the mask.
    if (node == nullptr || node->capacity.usable_from > promise.start || fit.Excludes(*node) ||
        fit.LacksEver(*node) != Lack::kNothing ||
        (promise.devices[i] & ~node->capacity.all.devices) != 0 ||
        std::popcount(promise.devices[i]) != request.demand.device_count())
      return delay_ahead_ = DelayCause::kNodes;
    taken_in = std::max(taken_in, taken_in_[nodes_.IndexOf(*node)]);
  }
  const TimePoint end = EndOf(promise.start, request.length);
  const bool over =
      loads_.OverCeiling(request.queue, request.LoadOf(request.least()), promise.start, end) >= 0;
  if (taken_in == kNotTaken && over) taken_in = any_taken_in_;
  if (taken_in != kNotTaken) delay_ahead_ = phase_.CauseOf(taken_in);
  return delay_ahead_;
}

}  // namespace

std::string_view Name(DelayCause cause) {
  switch (cause) {
    case DelayCause::kNone: return "none";
    case DelayCause::kNodes: return "nodes";
    case DelayCause::kRecovery: return "recovery";
    case DelayCause::kClass: return "class";
    case DelayCause::kGuarantee: return "guarantee";
    case DelayCause::kLimits: return "limits";
  }
  return "none";
}

SchedulePlan Plan(const SchedulerSnapshot& snapshot) {
  return Pass(snapshot, {}, StartOf(snapshot)).Run();
}

SchedulePlan Plan(PassRecord& record) {
  return Pass(record.snapshot(), {.record = &record}, StartOf(record.snapshot())).Run();
}

SchedulePlan PlanPromises(const SchedulerSnapshot& snapshot, const GangRequest* with) {
  return Pass(snapshot, {.is_whole = false, .with = with}, StartOf(snapshot)).Run();
}

std::optional<AddedJob> PlanAdded(const PassRecord& record, const GangRequest& request) {
  const std::optional<PassRecord::Considered> when = record.WhenAdded(request);
  if (!when) return std::nullopt;
  PassState left = when->left;
  if (!when->has_victims) left.gangs.clear();
  Pass pass(record.snapshot(), {.is_whole = false, .with = &request}, std::move(left));
  AddedJob added = pass.Decide(when->entitled);
  added.endangers_promises = when->endangers_promises && (added.takes || !when->is_settled);
  return added;
}

bool AskAtTurns(const PassRecord& record, const GangRequest* own,
                const std::vector<GangRequest>& probes, const AtTurn& at_turn) {
  std::set<const GangRequest*> answered;
  record.Ask(own, probes, at_turn, answered);
  if (answered.size() == probes.size()) return true;
  const SchedulerSnapshot& snapshot = record.snapshot();
  Pass(snapshot,
       {.is_whole = false, .probes = &probes, .at_turn = &at_turn, .answered = std::move(answered)},
       StartOf(snapshot))
      .Run();
  return false;
}

std::optional<Reclaiming> ReclaimAt(const Turn& turn, const GangRequest& request, TimePoint now,
                                    PlannedNodes& nodes, QueueLoads& loads) {
  const auto may_give_way = [&](const RunningGang* gang) {
    return gang->class_value < request.class_value + (turn.entitled ? 1 : 0);
  };
  if (turn.planned >= kPlannedJobs || std::ranges::none_of(turn.gangs, may_give_way))
    return std::nullopt;
  const std::vector<NodeMatch>& matches = turn.matches.Of(request.demand);
  const Fit fit(request, matches, nodes, now, SpareReach::kEmpty);
  const auto start = [&] { return EarliestStart(request, fit, nodes, loads, kNever); };
  Victims victims =
      FindVictims(request, turn.entitled, now, turn.gangs, start(), matches, nodes, loads);
  if (victims.chosen.empty()) return std::nullopt;
  return Reclaiming{std::move(victims.chosen), start().value_or(kNever)};
}

std::optional<NearestMiss> MissOf(const GangRequest& request, const NodeCapacity& node) {
  const NodeMatch match = Match(request.demand, *node.inventory);
  const Lack lack = LackOf(request.demand, *node.inventory, match, node.all);
  const bool excluded = std::ranges::find(request.exclude, node.name) != request.exclude.end();
  if (lack == Lack::kNothing && !excluded) return std::nullopt;
  return NearestMiss{.demand = request.demand,
                     .node = node.name,
                     .lack = lack,
                     .excluded = lack == Lack::kNothing,
                     .parts = node.all,
                     .suitable_devices = std::popcount(node.all.devices & match.suitable)};
}

bool IsNearer(const NearestMiss& a, const NearestMiss& b) {
  // The conditions are examined in their order: the later one fails, the nearer the node is.
  const auto nearness = [](const NearestMiss& miss) {
    return std::tuple(miss.excluded, miss.lack, miss.suitable_devices,
                      std::popcount(miss.parts.devices), miss.parts.slots, miss.parts.cpus,
                      miss.parts.memory_bytes);
  };
  return nearness(a) > nearness(b);
}

}  // namespace muster
