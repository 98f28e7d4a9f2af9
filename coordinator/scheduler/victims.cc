#include "coordinator/scheduler/victims.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace muster {
namespace {

constexpr double kNotAtAll = std::numeric_limits<double>::infinity();

Amounts Difference(Amounts a, const Amounts& b) {
  a -= b;
  return a;
}

Amounts Times(const Amounts& amounts, std::size_t n) {
  return {.gpus = amounts.gpus * static_cast<int>(n), .slots = amounts.slots * static_cast<int>(n)};
}

// What becomes free of the node, or is not free after all.
void SetFree(NodeParts& free, const NodeParts& parts, bool more) {
  if (more) return Add(free, parts);
  free.slots -= parts.slots;
  free.devices &= ~parts.devices;
  free.cpus -= parts.cpus;
  free.memory_bytes -= parts.memory_bytes;
}

}  // namespace

Amounts Offer::amounts() const {
  return whole ? gang->amounts : Times(gang->node_amounts, given.size());
}

// What one gang would do for the job, by shrinking further or as a whole.
struct VictimSearch::Choice {
  Offer* offer = nullptr;
  std::size_t parts = 0;  // more, the first of `gains_`
  bool whole = false;
  double gain = 0;

  // The first one is the best.
  auto Order() const {
    const RunningGang& gang = *offer->gang;
    const double cost = whole || !offer->chosen() ? gang.cost : 0;  // a gang is ended once
    return std::tuple(cost / gain, gang.class_value, !offer->borrowed, cost,
                      -gang.placed.time_since_epoch().count(), std::string_view(gang.job.value));
  }
};

VictimSearch::VictimSearch(const GangRequest& request, bool entitled, TimePoint now,
                           PlannedNodes& nodes, QueueLoads& loads)
    : request_(request),
      entitled_(entitled),
      now_(now),
      nodes_(nodes),
      loads_(loads),
      leave_at_(now) {}

void VictimSearch::Consider(const RunningGang& gang, TimePoint ends) {
  const bool by_class = gang.class_value < request_.class_value;
  const bool by_guarantee =
      entitled_ && gang.class_value <= request_.class_value &&
      loads_.MayClaim(request_.queue, gang.queue, request_.AmountsOf(request_.least()));
  const TimePoint leaves = now_ + gang.leaves_in;
  if ((!by_class && !by_guarantee) || ends <= leaves) return;
  if (gang.victim_from > now_) {
    next_ = std::min(next_, gang.victim_from);
    return;
  }
  Offer offer{.gang = &gang,
              .cause = by_class ? ReclaimCause::kClass : ReclaimCause::kGuarantee,
              .borrowed = loads_.MayGive(gang.queue, request_.queue, gang.amounts),
              .leaves = leaves,
              .ends = ends};
  for (std::size_t i = 0; i < gang.parts.size(); ++i) {
    PlannedNode* node = nodes_.Find(gang.parts[i].node);
    if (node == nullptr) continue;
    if (node->capacity.usable_from > now_)
      return;  // it is silent: its ranks cannot be asked to save
    offer.parts.push_back({.at = i, .node = node});
  }
  leave_at_ = std::max(leave_at_, leaves);
  offers_.push_back(std::move(offer));
}

bool VictimSearch::Run(const std::vector<NodeMatch>& matches) {
  if (offers_.empty()) return false;
  std::ranges::sort(offers_, {}, [](const Offer& offer) { return offer.gang->job; });
  const Fit fit(request_, matches, nodes_, leave_at_);
  FindReachable(fit);
  const TopologyDemand& topology = request_.demand.topology;
  const TopologyLevel level = topology.required ? topology.within : TopologyLevel::kNone;
  std::map<std::string_view, std::vector<std::size_t>> places;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const std::string_view place = PlaceOf(nodes_[n].inventory(), level);
    if (lack_[n] == 0 && (level == TopologyLevel::kNone || !place.empty()))
      places[place].push_back(n);
  }
  using State = std::vector<std::pair<std::vector<std::size_t>, bool>>;
  double least_cost = kNotAtAll;
  State best;
  for (const auto& [place, nodes] : places) {
    if (!RunWithin(fit, nodes)) continue;
    double cost = 0;
    State state;
    for (Offer& offer : offers_) {
      cost += offer.chosen() ? offer.gang->cost : 0;
      state.emplace_back(offer.given, offer.whole);
      if (places.size() > 1) Set(fit, offer, {}, false);
    }
    if (std::exchange(least_cost, std::min(least_cost, cost)) > cost) best = std::move(state);
  }
  for (std::size_t i = 0; i < best.size(); ++i)
    Set(fit, offers_[i], std::move(best[i].first), best[i].second);
  return !best.empty();
}

std::vector<Reclaim> VictimSearch::Chosen() const {
  std::vector<Reclaim> chosen;
  for (const Offer& offer : offers_) {
    if (!offer.chosen()) continue;
    const RunningGang& gang = *offer.gang;
    Reclaim reclaim{
        .victim = gang.job, .claimant = request_.job, .cause = offer.cause, .cost = gang.cost};
    if (!offer.whole) {
      reclaim.to_nodes = gang.nodes - static_cast<int>(offer.given.size());
      for (const std::size_t part : offer.given)
        reclaim.gives_up.push_back(offer.parts[part].node->capacity.name);
    }
    chosen.push_back(std::move(reclaim));
  }
  return chosen;
}

// What each node lacks if all gangs give way.
void VictimSearch::FindReachable(const Fit& fit) {
  const auto free_all = [&](bool free) {
    for (const Offer& offer : offers_)
      for (const Offer::Part& part : offer.parts) Free(offer, part, free);
  };
  free_all(true);
  lack_.clear();
  for (const PlannedNode& node : nodes_) lack_.push_back(fit.Missing(node));
  free_all(false);
}

// Nothing is chosen before, and nothing if it fails.
bool VictimSearch::RunWithin(const Fit& fit, const std::vector<std::size_t>& nodes) {
  within_ = nodes;
  changes_.assign(nodes_.size(), 0);
  counts_.assign(nodes_.size(), false);
  lack_.assign(nodes_.size(), kNotAtAll);
  for (const std::size_t n : within_) {
    counts_[n] = true;
    lack_[n] = fit.Missing(nodes_[n]);
  }
  here_.clear();
  for (Offer& offer : offers_) {
    for (Offer::Part& part : offer.parts) part.seen = -1;
    if (std::ranges::any_of(offer.parts, [&](const Offer::Part& part) {
          return counts_[nodes_.IndexOf(*part.node)];
        }))
      here_.push_back(&offer);
  }
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    if (Search(fit)) return true;
    const bool other_nodes = DropLostNodes();
    for (Offer& offer : offers_) Set(fit, offer, {}, false);
    if (!other_nodes) return false;
  }
  return false;
}

bool VictimSearch::Search(const Fit& fit) {
  Measure();
  if (need_ == kNotAtAll) return false;
  while (!fits() && Choose(fit, /*shrink=*/true)) continue;
  while (!fits() && Choose(fit, /*shrink=*/false)) continue;
  if (!fits()) return false;
  // What is chosen now may free nodes that were dropped.
  for (const std::size_t n : within_) counts_[n] = true;
  Prune(fit);
  return true;
}

// Queues keep their guarantees, so that the rest of a node may stay taken: the job looks at others.
bool VictimSearch::DropLostNodes() {
  bool dropped = false;
  for (const Offer& offer : offers_) {
    if (!offer.chosen()) continue;
    for (const Offer::Part& part : offer.parts) {
      const std::size_t n = nodes_.IndexOf(*part.node);
      if (!counts_[n] || lack_[n] == 0) continue;
      counts_[n] = false;
      dropped = true;
    }
  }
  return dropped;
}

// One more victim, or one that gives more; false: none is of use.
bool VictimSearch::Choose(const Fit& fit, bool shrink) {
  Choice best;
  const auto consider = [&](Offer& offer) {
    const Choice choice = shrink ? ShrinkOf(fit, offer) : WholeOf(fit, offer);
    if (choice.gain <= 0) return;
    if (best.offer == nullptr || choice.Order() < best.Order()) best = choice;
  };
  if (excess_.value() > 0)
    for (Offer& offer : offers_) consider(offer);
  else
    for (Offer* offer : here_) consider(*offer);
  if (best.offer == nullptr) return false;
  std::vector<std::size_t> given = best.offer->given;
  if (!best.whole) {
    Judge(fit, *best.offer, best.parts, /*shrink=*/true);
    for (std::size_t i = best.parts; i > 0; --i) given.insert(given.begin(), gains_[i - 1].second);
  }
  Set(fit, *best.offer, std::move(given), best.whole);
  Measure();
  return true;
}

VictimSearch::Choice VictimSearch::ShrinkOf(const Fit& fit, Offer& offer) {
  const RunningGang& gang = *offer.gang;
  int more = gang.nodes - gang.least_nodes - static_cast<int>(offer.given.size());
  while (more > 0 && !MayGive(offer, Times(gang.node_amounts, static_cast<std::size_t>(more))))
    --more;
  if (more <= 0) return {};
  return Judge(fit, offer, static_cast<std::size_t>(more), /*shrink=*/true);
}

VictimSearch::Choice VictimSearch::WholeOf(const Fit& fit, Offer& offer) {
  if (offer.whole || !MayGive(offer, Difference(offer.gang->amounts, offer.amounts()))) return {};
  Choice choice = Judge(fit, offer, offer.parts.size(), /*shrink=*/false);
  choice.whole = true;
  return choice;
}

// What the gang's parts do for the job, as many as count.
VictimSearch::Choice VictimSearch::Judge(const Fit& fit, Offer& offer, std::size_t most_parts,
                                         bool shrink) {
  gains_.clear();
  for (std::size_t i = 0; i < offer.parts.size(); ++i) {
    Offer::Part& part = offer.parts[i];
    const std::size_t n = nodes_.IndexOf(*part.node);
    const bool is_spare = part.at >= static_cast<std::size_t>(offer.gang->nodes);
    if ((shrink && is_spare) || std::ranges::count(offer.given, i) > 0) continue;
    if (!counts_[n] && excess_.value() == 0) continue;
    if (counts_[n] && std::exchange(part.seen, changes_[n]) != changes_[n]) {
      Free(offer, part, true);
      part.lack_without = fit.Missing(*part.node);
      Free(offer, part, false);
    }
    const double gain = counts_[n] ? std::min(lack_[n], mark_) - part.lack_without : 0;
    if (gain > 0 || excess_.value() > 0) gains_.emplace_back(std::max(gain, 0.0), i);
  }
  std::ranges::sort(gains_, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  Choice choice{.offer = &offer};
  const std::size_t count = std::min(most_parts, gains_.size());
  const auto least = static_cast<std::size_t>(request_.least());
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= least && excess_.value() == 0) break;
    choice.gain += i < least ? gains_[i].first : 0;
    ++choice.parts;
  }
  choice.gain = std::min(choice.gain, need_);
  if (excess_.value() > 0) {
    const Amounts more = shrink ? Times(offer.gang->node_amounts, choice.parts)
                                : Difference(offer.gang->amounts, offer.amounts());
    choice.gain += excess_.value() - excess_.Without(offer.gang->queue, more, offer.ends);
  }
  return choice;
}

// Drops what is needless now that the others are chosen, the most costly first.
void VictimSearch::Prune(const Fit& fit) {
  std::vector<Offer*> chosen;
  for (Offer& offer : offers_)
    if (offer.chosen()) chosen.push_back(&offer);
  std::ranges::sort(chosen, std::greater<>(), [](const Offer* offer) {
    const RunningGang& gang = *offer->gang;
    return std::tuple(offer->whole, gang.cost, gang.class_value, !offer->borrowed,
                      -gang.placed.time_since_epoch().count(), std::string_view(gang.job.value));
  });
  const auto without = [&](Offer& offer, std::vector<std::size_t> given) {
    const std::vector<std::size_t> before = offer.given;
    const bool whole = offer.whole;
    Set(fit, offer, std::move(given), false);
    Measure();
    if (fits()) return true;
    Set(fit, offer, before, whole);
    return false;
  };
  for (Offer* offer : chosen) {
    if (without(*offer, {}) || (offer->whole && !without(*offer, offer->given))) continue;
    const std::vector<std::size_t> given = offer->given;
    for (const std::size_t part : given) {
      std::vector<std::size_t> fewer = offer->given;
      std::erase(fewer, part);
      without(*offer, std::move(fewer));
    }
  }
}

bool VictimSearch::MayGive(const Offer& offer, const Amounts& more) const {
  // Once a guarantee is the cause for one of them, no queue loses what it is guaranteed.
  return (offer.cause == ReclaimCause::kClass && by_guarantee_ == 0) ||
         loads_.MayGive(offer.gang->queue, request_.queue, more);
}

void VictimSearch::Set(const Fit& fit, Offer& offer, std::vector<std::size_t> given, bool whole) {
  if (!offer.chosen() && given.empty() && !whole) return;
  const auto free = [&](bool more) {
    for (std::size_t i = 0; i < offer.parts.size(); ++i)
      if (offer.whole || std::ranges::count(offer.given, i) > 0) Free(offer, offer.parts[i], more);
  };
  const Amounts before = offer.amounts();
  const int counted = offer.cause == ReclaimCause::kGuarantee ? 1 : 0;
  if (offer.chosen()) by_guarantee_ -= counted;
  free(false);
  offer.given = std::move(given);
  offer.whole = whole;
  free(true);
  if (offer.chosen()) by_guarantee_ += counted;
  Yield(offer, Difference(offer.amounts(), before));
  LookAt(fit, offer);
}

void VictimSearch::Free(const Offer& offer, const Offer::Part& part, bool free) {
  NodeParts parts = offer.gang->parts[part.at].parts;
  parts.devices &= part.node->capacity.all.devices;
  part.node->free.Apply(offer.leaves, offer.ends,
                        [&](NodeParts& node) { SetFree(node, parts, free); });
}

void VictimSearch::Yield(const Offer& offer, const Amounts& amounts) {
  loads_.Release(offer.gang->queue, amounts, offer.leaves, offer.ends);
  loads_.Expect(offer.gang->queue, Difference({}, amounts));
}

void VictimSearch::LookAt(const Fit& fit, const Offer& offer) {
  for (const Offer::Part& part : offer.parts) {
    const std::size_t n = nodes_.IndexOf(*part.node);
    ++changes_[n];
    lack_[n] = fit.Missing(*part.node);
  }
}

void VictimSearch::Measure() {
  std::vector<double> lacks;
  for (const std::size_t n : within_)
    if (counts_[n]) lacks.push_back(lack_[n]);
  const auto least = static_cast<std::ptrdiff_t>(request_.least());
  need_ = mark_ = kNotAtAll;
  if (std::ssize(lacks) < least) return;
  std::ranges::nth_element(lacks, lacks.begin() + least - 1);
  mark_ = lacks[static_cast<std::size_t>(least) - 1];
  need_ = 0;
  for (std::ptrdiff_t i = 0; i < least; ++i) need_ += lacks[static_cast<std::size_t>(i)];
  excess_ = CeilingExcess(loads_, request_.queue, request_.LoadOf(request_.least()), leave_at_,
                          EndOf(leave_at_, request_.length));
}

bool VictimSearch::fits() const { return need_ == 0 && excess_.value() == 0; }

}  // namespace muster
