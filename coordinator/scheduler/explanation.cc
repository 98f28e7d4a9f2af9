#include "coordinator/scheduler/explanation.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/gang_choice.h"
#include "coordinator/scheduler/queue_loads.h"

namespace muster {
namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

TopologyLevel RequiredPlace(const GangRequest& request) {
  const TopologyDemand& topology = request.demand.topology;
  return topology.required ? topology.within : TopologyLevel::kNone;
}

// The largest value that as many nodes of one place allow as the gang has at least; 0: none.
std::int64_t LargestFor(const GangRequest& request, TopologyLevel within,
                        const std::vector<std::pair<const PlannedNode*, std::int64_t>>& values) {
  std::map<std::string_view, std::vector<std::int64_t>> places;
  for (const auto& [node, value] : values)
    places[PlaceOf(node->inventory(), within)].push_back(value);
  std::int64_t largest = 0;
  const auto least = static_cast<std::size_t>(request.least());
  for (auto& [place, all] : places) {
    if (all.size() < least) continue;
    const auto last = all.begin() + static_cast<std::ptrdiff_t>(least) - 1;
    std::ranges::nth_element(all, last, std::greater<>());
    largest = std::max(largest, *last);
  }
  return largest;
}

// One job at its turns: which variants of it would start, or make gangs give way if `may_reclaim`.
class Variants {
 public:
  Variants(const GangRequest& job, const ExplainQuestion& question, TimePoint now, bool may_reclaim)
      : job_(job), question_(question), now_(now), may_reclaim_(may_reclaim) {}

  // Whether it needs no other turn. Takes the job's own turn.
  bool AtOwnTurn(const Turn& turn);
  // The same for the turn of a variant in another class or queue.
  bool AtTurnOf(ChangeKey key, const Turn& turn);

  struct Found {
    GangRequest request;
    bool endangers_promises = false;
    Reclaiming by_reclaim = {};  // unless it starts at once

    bool starts() const { return by_reclaim.reclaims.empty(); }
  };
  std::map<ChangeKey, Found>& found() { return found_; }

 private:
  using Resize = void (*)(GangRequest&, std::int64_t);
  // What there is at a turn, to search for victims in.
  struct Scratch {
    PlannedNodes nodes;
    QueueLoads loads;
  };

  bool Belongs(const Turn& turn, const GangRequest& request) const {
    return !turn.entitled ||
           turn.guaranteed.IsEntitled(request.queue, request.AmountsOf(request.least()));
  }
  bool Starts(const Turn& turn, const GangRequest& request) const {
    return !IsOver(turn, request) && NodesWithRoom(turn, request) >= request.least();
  }
  bool IsOver(const Turn& turn, const GangRequest& request) const {
    return turn.loads.OverCeiling(request.queue, request.LoadOf(request.least()), now_,
                                  EndOf(now_, request.length)) >= 0;
  }
  int NodesWithRoom(const Turn& turn, const GangRequest& request) const;
  template <typename ValueOf>
  std::int64_t Largest(const Turn& turn, const GangRequest& loosest, ValueOf value_of) const;

  void TryAmounts(const Turn& turn);
  void TryAmount(const Turn& turn, ChangeKey key, std::int64_t now, Resize resize,
                 std::int64_t most);
  void TrySizes(const Turn& turn);
  void TryTimeLimit(const Turn& turn);
  void TryWithout(const Turn& turn);
  bool Try(const Turn& turn, ChangeKey key, GangRequest request);
  bool TryReclaiming(const Turn& turn, ChangeKey key, const GangRequest& request);
  void TryReclaiming(const Turn& turn, ChangeKey key, Resize resize, std::int64_t least,
                     std::int64_t most);
  void Add(const Turn& turn, ChangeKey key, GangRequest request, Reclaiming by_reclaim = {});

  const GangRequest& job_;
  const ExplainQuestion& question_;
  const TimePoint now_;
  const bool may_reclaim_;
  std::map<ChangeKey, Found> found_;
  std::map<ChangeKey, std::int64_t> decided_;  // up to this value, in an earlier phase
  std::optional<Scratch> scratch_;             // as the present turn has it
};

int Variants::NodesWithRoom(const Turn& turn, const GangRequest& request) const {
  const Fit fit(request, turn.matches.Of(request.demand), turn.nodes, now_, SpareReach::kEmpty);
  const TopologyLevel within = RequiredPlace(request);
  std::map<std::string_view, int> places;
  int most = 0;
  for (const PlannedNode& node : turn.nodes)
    if (fit.Fits(node)) most = std::max(most, ++places[PlaceOf(node.inventory(), within)]);
  return most;
}

// `value_of(node, room, suitable devices)`: the most that the node allows where the job with the
// least value has room; `loosest` is that job.
template <typename ValueOf>
std::int64_t Variants::Largest(const Turn& turn, const GangRequest& loosest,
                               ValueOf value_of) const {
  const std::vector<NodeMatch>& matches = turn.matches.Of(loosest.demand);
  const Fit fit(loosest, matches, turn.nodes, now_);
  std::vector<std::pair<const PlannedNode*, std::int64_t>> values;
  for (std::size_t i = 0; i < turn.nodes.size(); ++i) {
    const PlannedNode& node = turn.nodes[i];
    if (!fit.Fits(node)) continue;
    const NodeParts room = fit.Room(node);
    values.emplace_back(&node,
                        value_of(node, room, std::popcount(room.devices & matches[i].suitable)));
  }
  return LargestFor(loosest, RequiredPlace(loosest), values);
}

// A variant that starts at once replaces one that does not, never the other way round. Otherwise
// the later turn's variant counts, except that the first queue and the first labels are kept.
void Variants::Add(const Turn& turn, ChangeKey key, GangRequest request, Reclaiming by_reclaim) {
  Found found{std::move(request), turn.endangers_promises, std::move(by_reclaim)};
  const auto old = found_.find(key);
  if (old != found_.end() && old->second.starts() == found.starts()) {
    if (key == ChangeKey::kLabels) return;
    if (key == ChangeKey::kQueue && found.request.queue > old->second.request.queue) return;
  } else if (old != found_.end() && old->second.starts()) {
    return;
  }
  found_.insert_or_assign(key, std::move(found));
}

// Whether it starts at once with the key anyway, or gangs give way to it with this change.
bool Variants::TryReclaiming(const Turn& turn, ChangeKey key, const GangRequest& request) {
  const auto old = found_.find(key);
  if (!may_reclaim_ || (old != found_.end() && old->second.starts())) return false;
  if (!scratch_) scratch_.emplace(Scratch{turn.nodes, turn.loads});
  std::optional<Reclaiming> found =
      ReclaimAt(turn, request, now_, scratch_->nodes, scratch_->loads);
  if (!found) return false;
  scratch_.reset();
  Add(turn, key, request, std::move(*found));
  return true;
}

// The largest value of a few; of many the one that a bisection finds. A smaller job that starts
// soon anyway makes no gang give way.
void Variants::TryReclaiming(const Turn& turn, ChangeKey key, Resize resize, std::int64_t least,
                             std::int64_t most) {
  GangRequest request = job_;
  const auto reclaims = [&](std::int64_t value) {
    resize(request, value);
    return TryReclaiming(turn, key, request);
  };
  constexpr std::int64_t kFew = 64;
  if (turn.gangs.empty()) return;
  if (most - least < kFew) {
    while (most >= least && !reclaims(most)) --most;
    return;
  }
  if (!reclaims(least)) return;
  while (least < most) {
    const std::int64_t middle = least + (most - least + 1) / 2;
    reclaims(middle) ? least = middle : most = middle - 1;
  }
}

bool Variants::AtOwnTurn(const Turn& turn) {
  scratch_.reset();
  TryAmounts(turn);
  if (!Belongs(turn, job_)) return false;
  TrySizes(turn);
  TryTimeLimit(turn);
  TryWithout(turn);
  return true;
}

bool Variants::AtTurnOf(ChangeKey key, const Turn& turn) {
  if (!Belongs(turn, turn.probe)) return false;
  scratch_.reset();
  Try(turn, key, turn.probe);
  return true;
}

// Whether it starts at once.
bool Variants::Try(const Turn& turn, ChangeKey key, GangRequest request) {
  if (!Starts(turn, request)) {
    TryReclaiming(turn, key, request);
    return false;
  }
  Add(turn, key, std::move(request));
  return true;
}

// Tries values from `most` down, as far as they are smaller than the job's. Those within a
// guarantee were decided in the phase of that.
void Variants::TryAmount(const Turn& turn, ChangeKey key, std::int64_t now, Resize resize,
                         std::int64_t most) {
  GangRequest request = job_;
  const std::int64_t decided = decided_[key];
  std::int64_t belongs = decided;
  for (std::int64_t value = now - 1; value > decided; --value) {
    resize(request, value);
    if (!Belongs(turn, request)) continue;
    belongs = std::max(belongs, value);
    decided_[key] = belongs;
    if (value > most || IsOver(turn, request)) continue;
    Add(turn, key, request);
    return;
  }
  TryReclaiming(turn, key, resize, decided + 1, belongs);
}

// Keys on which it depends how much of its queue's the gang has.
void Variants::TryAmounts(const Turn& turn) {
  TryAmount(
      turn, ChangeKey::kNodes, job_.least(),
      [](GangRequest& request, std::int64_t value) {
        request.nodes = static_cast<int>(value);
        request.min_nodes = 0;
      },
      NodesWithRoom(turn, job_));
  const NodeDemand& demand = job_.demand;
  GangRequest one_rank = job_;
  one_rank.demand.ranks = 1;
  TryAmount(
      turn, ChangeKey::kRanksPerNode, demand.ranks,
      [](GangRequest& request, std::int64_t value) {
        request.demand.ranks = static_cast<int>(value);
      },
      Largest(turn, one_rank, [&](const PlannedNode& node, const NodeParts& room, int devices) {
        const NodeInventory& inventory = node.inventory();
        std::int64_t ranks = room.slots;
        if (demand.devices.per_rank > 0)
          ranks = std::min<std::int64_t>(ranks, devices / demand.devices.per_rank);
        if (inventory.cpus > 0 && demand.cpus_per_rank > 0)
          ranks = std::min<std::int64_t>(ranks, room.cpus / demand.cpus_per_rank);
        if (inventory.memory_bytes > 0 && demand.memory_per_rank > 0)
          ranks = std::min(ranks,
                           static_cast<std::int64_t>(room.memory_bytes / demand.memory_per_rank));
        return ranks;
      }));
  // A single GPU may be a share of one, several may not.
  GangRequest fewer = job_;
  std::int64_t most = demand.devices.per_rank - 1;
  for (; most > 0; --most) {
    fewer.demand.devices.per_rank = static_cast<int>(most);
    if (NodesWithRoom(turn, fewer) >= fewer.least()) break;
  }
  TryAmount(
      turn, ChangeKey::kGpusPerRank, demand.devices.per_rank,
      [](GangRequest& request, std::int64_t value) {
        request.demand.devices.per_rank = static_cast<int>(value);
      },
      most);
}

void Variants::TrySizes(const Turn& turn) {
  const bool is_over = IsOver(turn, job_);
  if (is_over && turn.gangs.empty()) return;
  const NodeDemand& demand = job_.demand;
  GangRequest request = job_;
  request.demand.cpus_per_rank = 1;
  const std::int64_t cpus =
      Largest(turn, request, [&](const PlannedNode& node, const NodeParts& room, int) {
        return node.inventory().cpus > 0 ? std::int64_t{room.cpus / demand.ranks} : kNoLimit;
      });
  if (!is_over && cpus > 0 && cpus < demand.cpus_per_rank) {
    request.demand.cpus_per_rank = static_cast<int>(cpus);
    Add(turn, ChangeKey::kCpusPerRank, request);
  }
  TryReclaiming(
      turn, ChangeKey::kCpusPerRank,
      [](GangRequest& smaller, std::int64_t value) {
        smaller.demand.cpus_per_rank = static_cast<int>(value);
      },
      1, demand.cpus_per_rank - 1);
  request = job_;
  request.demand.memory_per_rank = kMebibyte;
  const std::int64_t mebibytes =
      Largest(turn, request, [&](const PlannedNode& node, const NodeParts& room, int) {
        const auto ranks = static_cast<std::uint64_t>(demand.ranks);
        return node.inventory().memory_bytes > 0
                   ? static_cast<std::int64_t>(room.memory_bytes / ranks / kMebibyte)
                   : kNoLimit;
      });
  const auto needs = static_cast<std::int64_t>((demand.memory_per_rank - 1) / kMebibyte);
  const bool may_need_less = demand.memory_per_rank > kMebibyte;
  if (!is_over && may_need_less && mebibytes > 0 && mebibytes <= needs) {
    request.demand.memory_per_rank = static_cast<std::uint64_t>(mebibytes) * kMebibyte;
    Add(turn, ChangeKey::kMemoryPerRank, request);
  }
  TryReclaiming(
      turn, ChangeKey::kMemoryPerRank,
      [](GangRequest& smaller, std::int64_t value) {
        smaller.demand.memory_per_rank = static_cast<std::uint64_t>(value) * kMebibyte;
      },
      1, may_need_less ? needs : 0);
}

void Variants::TryTimeLimit(const Turn& turn) {
  GangRequest request = job_;
  request.length = question_.least_length;
  const Fit fit(request, turn.matches.Of(request.demand), turn.nodes, now_);
  std::vector<std::pair<const PlannedNode*, std::int64_t>> values;
  for (const PlannedNode& node : turn.nodes) {
    const TimePoint until = fit.FitsUntil(node);
    if (until > now_)
      values.emplace_back(&node, until == kNever ? kNoLimit : (until - now_).count());
  }
  std::int64_t most = LargestFor(request, RequiredPlace(request), values);
  const TimePoint over = turn.loads.OverFrom(job_.queue, job_.LoadOf(job_.least()));
  if (over != kNever) most = std::min<std::int64_t>(most, (over - now_).count());
  if (most == kNoLimit) return;
  request.length = std::chrono::floor<std::chrono::seconds>(Duration(most));
  const Duration least = std::max<Duration>(question_.least_length, std::chrono::seconds(1));
  if (request.length >= least && request.length < job_.length)
    Add(turn, ChangeKey::kTimeLimit, request);
}

void Variants::TryWithout(const Turn& turn) {
  if (IsOver(turn, job_) && turn.gangs.empty()) return;
  const NodeDemand& demand = job_.demand;
  GangRequest request = job_;
  if (!demand.devices.kinds.empty()) {
    request.demand.devices.kinds.clear();
    Try(turn, ChangeKey::kGpuKind, request);
    request = job_;
  }
  if (demand.devices.min_memory_bytes > 0) {
    request.demand.devices.min_memory_bytes = 0;
    Try(turn, ChangeKey::kGpuMemory, request);
    request = job_;
  }
  bool starts = false;
  for (std::size_t i = 0; i < demand.labels.size() && !starts; ++i) {
    std::vector<LabelRule>& labels = request.demand.labels;
    labels = demand.labels;
    labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(i));
    starts = Try(turn, ChangeKey::kLabels, request);
  }
  if (!starts && demand.labels.size() > 1) {
    request.demand.labels.clear();
    Try(turn, ChangeKey::kLabels, request);
  }
  request = job_;
  if (RequiredPlace(job_) != TopologyLevel::kNone) {
    request.demand.topology.required = false;
    Try(turn, ChangeKey::kTopology, request);
    request = job_;
  }
  if (job_.exclude.size() > question_.kept_away.size()) {
    request.exclude = question_.kept_away;
    Try(turn, ChangeKey::kExclude, request);
  }
}

// --- what keeps it from starting ---

class Causes {
 public:
  Causes(const KnownPlan& known, const GangRequest& job)
      : known_(known), snapshot_(known.snapshot()), job_(job) {}

  // At the turn that decides about the job as it is.
  void AtOwnTurn(const Turn& turn);
  void AddTo(Explanation& explanation) const;

 private:
  struct Kept {
    int reserved = 0, too_long = 0;
  };
  void AddQuota(const Turn& turn);
  bool IsInFullQueue(int queue) const;
  std::vector<Blocker> Blockers() const;
  TimePoint StartOf(const JobId& job) const;

  const KnownPlan& known_;
  const SchedulerSnapshot& snapshot_;
  const GangRequest& job_;
  std::vector<WaitCause> causes_;
  int full_queue_ = -1;  // that would exceed its ceiling; -1: none
  WaitReason reason_;
  std::map<JobId, Kept> kept_;  // by the job that nodes are kept for
  std::vector<bool> lacking_;   // nodes that it could have if jobs there ended, by their place
};

void Causes::AddQuota(const Turn& turn) {
  const Amounts wanted = job_.LoadOf(job_.least());
  const TimePoint end = EndOf(snapshot_.now, job_.length);
  const int queue = turn.loads.OverCeiling(job_.queue, wanted, snapshot_.now, end);
  if (queue < 0 || snapshot_.queues == nullptr) return;
  full_queue_ = queue;
  const QueueSpec& spec = snapshot_.queues->queues[static_cast<std::size_t>(queue)];
  causes_.push_back({.code = WaitCode::kQuota,
                     .queue = std::string(QueueOfShare(spec.name)),
                     .of_user = IsOfUser(spec.name),
                     .user = std::string(UserOfShare(spec.name)),
                     .used = turn.loads.Peak(queue, snapshot_.now, end),
                     .wanted = wanted,
                     .ceiling = spec.ceiling});
}

// Or in one below it.
bool Causes::IsInFullQueue(int queue) const {
  if (full_queue_ < 0) return false;
  while (queue > full_queue_)
    queue = snapshot_.queues->queues[static_cast<std::size_t>(queue)].parent;
  return queue == full_queue_;
}

void Causes::AtOwnTurn(const Turn& turn) {
  AddQuota(turn);
  const Fit fit(job_, turn.matches.Of(job_.demand), turn.nodes, snapshot_.now);
  lacking_.assign(turn.nodes.size(), false);
  reason_ = ReasonOf(job_, fit, turn.nodes, snapshot_.now, [&](const PlannedNode& node, Lack now) {
    if (now == Lack::kNothing) {
      ++kept_[node.ReservedFor()].too_long;
      return;
    }
    lacking_[turn.nodes.IndexOf(node)] = true;
    if (node.reserved_for != nullptr) ++kept_[*node.reserved_for].reserved;
  });
}

// A job that is ahead of it has the same start in each pass.
TimePoint Causes::StartOf(const JobId& job) const {
  const KnownPlan::Entry* entry = known_.Find(job);
  const bool starts = entry != nullptr && entry->waiting != nullptr && entry->waiting->promise;
  return starts ? entry->waiting->promise->start : kNever;
}

std::vector<Blocker> Causes::Blockers() const {
  std::vector<Blocker> blockers;
  for (std::size_t i = 0; i < known_.gangs().size(); ++i) {
    const GangWithNodes& gang = known_.gangs()[i];
    const auto nodes = std::ranges::count_if(known_.PlacesOf(i), [&](std::size_t node) {
      return node < lacking_.size() && lacking_[node];
    });
    const bool in_queue = IsInFullQueue(gang.queue);
    if ((nodes == 0 && !in_queue) || gang.job == job_.job) continue;
    blockers.push_back({.job = gang.job,
                        .nodes = static_cast<int>(nodes),
                        .in_queue = in_queue,
                        .at = gang.ends,
                        .predicted = gang.predicted});
  }
  for (const auto& [job, kept] : kept_) {
    if (job.empty()) continue;
    blockers.push_back(
        {.job = job, .nodes = kept.reserved + kept.too_long, .waits = true, .at = StartOf(job)});
  }
  std::ranges::stable_sort(blockers, {}, [](const Blocker& blocker) {
    return std::tuple(blocker.at, -blocker.nodes, std::string_view(blocker.job.value));
  });
  return blockers;
}

void Causes::AddTo(Explanation& explanation) const {
  std::vector<WaitCause>& causes = explanation.causes;
  causes = causes_;
  // A pass gives jobs that are alike the numbers of one of them.
  explanation.waiting.reason.ready = reason_.ready;
  explanation.waiting.reason.with_room = reason_.with_room;
  if (reason_.ready == 0) causes.push_back({.code = WaitCode::kNoNodes});
  const int least = job_.least();
  if (reason_.with_room >= least && reason_.in_one_place < least &&
      RequiredPlace(job_) != TopologyLevel::kNone)
    causes.push_back({.code = WaitCode::kTopology, .nodes = reason_.in_one_place});
  for (const auto& [job, kept] : kept_) {
    const TimePoint at = StartOf(job);
    if (kept.too_long > 0)
      causes.push_back(
          {.code = WaitCode::kTimeLimit, .nodes = kept.too_long, .job = job, .at = at});
    if (kept.reserved > 0)
      causes.push_back({.code = WaitCode::kReserved, .nodes = kept.reserved, .job = job, .at = at});
  }
  for (int i = 0; i < kLackCount; ++i) {
    const auto lack = static_cast<Lack>(i);
    if (const int nodes = Count(reason_.occupied, lack); nodes > 0)
      causes.push_back({.code = WaitCode::kOccupied, .nodes = nodes, .lack = lack});
  }
  for (int i = 0; i < kLackCount; ++i) {
    const auto lack = static_cast<Lack>(i);
    if (const int nodes = Count(reason_.unsuited, lack); nodes > 0)
      causes.push_back({.code = WaitCode::kUnsuited, .nodes = nodes, .lack = lack});
  }
  if (reason_.excluded > 0)
    causes.push_back({.code = WaitCode::kExcluded, .nodes = reason_.excluded});
  explanation.blockers = Blockers();
}

// --- what it displaces ---

// Promises that do not hold in the second plan, and would in the first or sooner.
std::vector<Delay> DelaysOf(const std::vector<const GangRequest*>& promised,
                            const PlannedStarts& before, const PlannedStarts& after,
                            const JobId& but) {
  const auto start = [](const PlannedStarts& starts, const JobId& job) {
    const auto found = starts.find(job);
    return found == starts.end() ? PlannedStart() : found->second;
  };
  std::vector<Delay> delays;
  for (const GangRequest* request : promised) {
    if (request->job == but) continue;
    const TimePoint at = request->promise->start;
    const PlannedStart later = start(after, request->job);
    if (later.at > std::max(at, start(before, request->job).at))
      delays.push_back({request->job, at, later.at, later.delayed});
  }
  std::ranges::sort(delays, {},
                    [](const Delay& delay) { return std::tuple(delay.promised, delay.job); });
  return delays;
}

std::vector<const GangRequest*> PromisedOf(const SchedulerSnapshot& snapshot) {
  std::vector<const GangRequest*> promised;
  for (const GangRequest& request : snapshot.requests)
    if (request.promise) promised.push_back(&request);
  return promised;
}

PlannedStarts StartsOf(const SchedulerSnapshot& snapshot, const SchedulePlan& plan) {
  PlannedStarts starts;
  for (const GangPlacement& placement : plan.placements)
    starts[placement.job] = {snapshot.now, DelayCause::kNone};
  for (const WaitingJob& waiting : plan.waiting)
    if (waiting.promise || waiting.delayed != DelayCause::kNone)
      starts[waiting.job] = {waiting.promise ? waiting.promise->start : kNever, waiting.delayed};
  return starts;
}

class Explainer {
 public:
  Explainer(const KnownPlan& known, const GangRequest& job, const ExplainQuestion& question)
      : known_(known), snapshot_(known.snapshot()), job_(job), question_(question) {}

  Explanation Run();

 private:
  // Those of the job and its variants, each with its key; the job's own has none.
  using Probe = std::pair<std::optional<ChangeKey>, GangRequest>;
  std::vector<Probe> Probes() const;
  SchedulePlan PlanOfAdded();
  void FindChanges(const SchedulePlan& plan, Explanation& explanation);
  void AddLentSpares(Explanation& explanation) const;

  const KnownPlan& known_;
  const SchedulerSnapshot& snapshot_;
  const GangRequest& job_;
  const ExplainQuestion& question_;
  std::optional<PlannedStarts> starts_;  // with a job that is added, if it changes some
};

std::vector<Explainer::Probe> Explainer::Probes() const {
  GangRequest probe = job_;
  probe.promise.reset();
  std::vector<Probe> probes = {{std::nullopt, probe}};
  if (snapshot_.queues == nullptr) return probes;
  for (const PriorityClass& each : snapshot_.queues->classes) {
    if (each.value <= job_.class_value) continue;
    probe.class_value = each.value;
    probes.emplace_back(ChangeKey::kClass, probe);
  }
  probe.class_value = job_.class_value;
  for (const int queue : question_.queues) {
    probe.queue = queue;
    probes.emplace_back(ChangeKey::kQueue, probe);
  }
  return probes;
}

// What concerns the job itself.
SchedulePlan Explainer::PlanOfAdded() {
  std::optional<AddedJob> added = PlanAdded(known_.record(), job_);
  if (added && !added->endangers_promises) return std::move(added->plan);
  SchedulePlan plan = PlanPromises(snapshot_, &job_);
  starts_ = StartsOf(snapshot_, plan);
  return added ? std::move(added->plan) : std::move(plan);
}

Explanation Explainer::Run() {
  Explanation explanation;
  const auto take = [&](const GangPlacement* placement, const WaitingJob* waiting) {
    if (placement != nullptr) explanation.placement = *placement;
    if (waiting != nullptr) explanation.waiting = *waiting;
  };
  std::optional<SchedulePlan> with;
  if (question_.added) {
    with = PlanOfAdded();
    const auto placed = std::ranges::find(with->placements, job_.job, &GangPlacement::job);
    const auto waits = std::ranges::find(with->waiting, job_.job, &WaitingJob::job);
    take(placed == with->placements.end() ? nullptr : &*placed,
         waits == with->waiting.end() ? nullptr : &*waits);
    if (starts_)
      explanation.delays = DelaysOf(known_.promised(), known_.starts(), *starts_, job_.job);
  } else {
    const KnownPlan::Entry& entry = *known_.Find(job_.job);
    take(entry.placement, entry.waiting);
  }
  const SchedulePlan& plan = with ? *with : known_.plan();
  if (!explanation.placement && !job_.recovering && job_.nodes > 0) FindChanges(plan, explanation);
  AddLentSpares(explanation);
  for (const Reclaim& reclaim : plan.reclaims)
    if (reclaim.claimant == job_.job)
      explanation.causes.push_back({.code = WaitCode::kReclaim,
                                    .nodes = static_cast<int>(reclaim.gives_up.size()),
                                    .job = reclaim.victim,
                                    .text = CostText(reclaim.cost)});
  return explanation;
}

void Explainer::AddLentSpares(Explanation& explanation) const {
  for (const NodeName& node : explanation.waiting.clears) {
    const auto has = [&node](const GangWithNodes& gang) {
      return std::ranges::find(gang.lent, node) != gang.lent.end();
    };
    const auto borrower = std::ranges::find_if(known_.gangs(), has);
    explanation.causes.push_back(
        {.code = WaitCode::kLent,
         .nodes = 1,
         .names = {node},
         .job = borrower == known_.gangs().end() ? JobId() : borrower->job});
  }
}

void Explainer::FindChanges(const SchedulePlan& plan, Explanation& explanation) {
  const std::vector<Probe> all = Probes();
  std::vector<GangRequest> probes;
  for (const auto& [key, probe] : all) probes.push_back(probe);
  const GangRequest& own = probes.front();
  const bool has_victims =
      std::ranges::count(plan.reclaims, job_.job, &Reclaim::claimant) > 0 ||
      std::ranges::count(snapshot_.running, job_.job, &RunningGang::gives_way_to) > 0;
  Variants variants(own, question_, snapshot_.now, /*may_reclaim=*/!has_victims);
  Causes causes(known_, own);
  const GangRequest* submitted = question_.added ? nullptr : &job_;
  AskAtTurns(known_.record(), submitted, probes, [&](const Turn& turn) {
    if (&turn.probe == &own) {
      if (!variants.AtOwnTurn(turn)) return false;
      causes.AtOwnTurn(turn);
      return true;
    }
    return variants.AtTurnOf(*all[static_cast<std::size_t>(&turn.probe - probes.data())].first,
                             turn);
  });
  causes.AddTo(explanation);
  for (auto& [key, each] : variants.found()) {
    Change change{.key = key,
                  .request = std::move(each.request),
                  .reclaims = std::move(each.by_reclaim.reclaims),
                  .start = each.by_reclaim.start};
    if (each.endangers_promises)
      change.delays =
          DelaysOf(known_.promised(), starts_ ? *starts_ : known_.starts(),
                   StartsOf(snapshot_, PlanPromises(snapshot_, &change.request)), job_.job);
    explanation.changes.push_back(std::move(change));
  }
}

}  // namespace

std::string_view Name(WaitCode code) {
  switch (code) {
    case WaitCode::kQuota: return "quota";
    case WaitCode::kUnsuited: return "unsuited";
    case WaitCode::kExcluded: return "excluded";
    case WaitCode::kOccupied: return "occupied";
    case WaitCode::kReserved: return "reserved";
    case WaitCode::kTimeLimit: return "time_limit";
    case WaitCode::kTopology: return "topology";
    case WaitCode::kNoNodes: return "no_nodes";
    case WaitCode::kHealth: return "health";
    case WaitCode::kHeld: return "held";
    case WaitCode::kBegin: return "begin";
    case WaitCode::kSuspended: return "suspended";
    case WaitCode::kBackoff: return "backoff";
    case WaitCode::kReclaim: return "reclaim";
    case WaitCode::kLent: return "lent";
    case WaitCode::kElsewhere: return "elsewhere";
  }
  return "occupied";
}

std::string_view Name(ChangeKey key) {
  switch (key) {
    case ChangeKey::kNodes: return "nodes";
    case ChangeKey::kRanksPerNode: return "ranks_per_node";
    case ChangeKey::kGpusPerRank: return "gpus_per_rank";
    case ChangeKey::kCpusPerRank: return "cpus_per_rank";
    case ChangeKey::kMemoryPerRank: return "memory_per_rank";
    case ChangeKey::kTimeLimit: return "time_limit";
    case ChangeKey::kGpuKind: return "gpu_kind";
    case ChangeKey::kGpuMemory: return "gpu_memory";
    case ChangeKey::kLabels: return "labels";
    case ChangeKey::kTopology: return "topology";
    case ChangeKey::kExclude: return "exclude";
    case ChangeKey::kClass: return "class";
    case ChangeKey::kQueue: return "queue";
  }
  return "nodes";
}

KnownPlan::KnownPlan(const SchedulerSnapshot& snapshot, const std::vector<GangWithNodes>& gangs)
    : gangs_(gangs),
      record_(snapshot),
      plan_(Plan(record_)),
      promised_(PromisedOf(snapshot)),
      starts_(StartsOf(snapshot, plan_)) {
  entries_.reserve(snapshot.requests.size());
  for (const GangRequest& request : snapshot.requests)
    entries_.emplace(request.job, Entry{.request = &request});
  for (const GangPlacement& placement : plan_.placements)
    entries_.at(placement.job).placement = &placement;
  for (const WaitingJob& waiting : plan_.waiting) entries_.at(waiting.job).waiting = &waiting;
  const PlannedNodes nodes(snapshot.nodes, snapshot.now);
  for (const GangWithNodes& gang : gangs) {
    std::vector<std::size_t>& places = places_.emplace_back();
    for (const NodeName& name : gang.nodes)
      if (const PlannedNode* node = nodes.Find(name)) places.push_back(nodes.IndexOf(*node));
  }
}

const KnownPlan::Entry* KnownPlan::Find(const JobId& job) const {
  const auto found = entries_.find(job);
  return found == entries_.end() ? nullptr : &found->second;
}

const GangRequest* RequestOf(const KnownPlan& known, const ExplainQuestion& question) {
  if (question.added) return &*question.added;
  const KnownPlan::Entry* entry = known.Find(question.job);
  return entry == nullptr ? nullptr : entry->request;
}

Explanation Explain(const KnownPlan& known, const ExplainQuestion& question) {
  const GangRequest* job = RequestOf(known, question);
  return job == nullptr ? Explanation() : Explainer(known, *job, question).Run();
}

std::vector<Delay> DelaysBetween(const SchedulerSnapshot& before, const SchedulerSnapshot& after,
                                 const JobId& job) {
  return DelaysOf(PromisedOf(before), StartsOf(before, PlanPromises(before, nullptr)),
                  StartsOf(after, PlanPromises(after, nullptr)), job);
}

}  // namespace muster
