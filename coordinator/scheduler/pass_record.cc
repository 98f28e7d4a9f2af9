#include "coordinator/scheduler/pass_record.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace muster {
namespace {

auto PlaceInClass(const GangRequest* r) {
  return std::tuple(r->queue, -r->priority, r->submit_order);
}

// The first one that does not go before the request.
auto FirstBehind(const std::vector<const GangRequest*>& order, const GangRequest& request) {
  return std::ranges::lower_bound(order, PlaceInClass(&request), {}, PlaceInClass);
}

}  // namespace

// The places are beside each other: requests of a long queue are not in the processor's caches.
void SortForTurns(std::vector<const GangRequest*>& requests) {
  std::vector<std::pair<decltype(PlaceInClass(nullptr)), const GangRequest*>> places;
  places.reserve(requests.size());
  for (const GangRequest* request : requests) places.emplace_back(PlaceInClass(request), request);
  std::ranges::sort(places, {}, [](const auto& place) { return place.first; });
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i] = places[i].second;
}

void PassRecord::BeginPhase(int class_value, bool entitled, bool endangers_promises, int queues,
                            const std::vector<const GangRequest*>& order) {
  phases_.push_back({.class_value = class_value,
                     .entitled = entitled,
                     .endangers_promises = endangers_promises,
                     .order = order,
                     .turns = std::vector<Number>(order.size(), kNoTurn),
                     .last = std::vector<Number>(static_cast<std::size_t>(queues), kNoTurn),
                     .first = next_,
                     .changed_until = next_});
}

void PassRecord::Keep(const PassState& state) {
  phases_.back().changed_until = next_;
  if (kept_.size() < kKeptStates)
    kept_.push_back({next_, state});
  else
    kept_until_ = std::min(kept_until_, next_);
}

// That of the first one behind it: its queue has its turn as if it was not there.
PassRecord::Number PassRecord::TurnIn(const Phase& phase, const GangRequest& request) const {
  const auto behind = FirstBehind(phase.order, request);
  const bool is_last = behind == phase.order.end() || (*behind)->queue != request.queue;
  return is_last ? phase.last[static_cast<std::size_t>(request.queue)]
                 : phase.turns[static_cast<std::size_t>(behind - phase.order.begin())];
}

// Nothing: it was considered before the queues took turns, or counted before its own.
std::optional<PassRecord::Place> PassRecord::PlaceOf(const GangRequest& own) const {
  if (own.turn != kNever || own.promise) return std::nullopt;
  for (std::size_t i = phases_.size(); i > 0; --i) {
    const Phase& phase = phases_[i - 1];
    if (phase.class_value != own.class_value) continue;
    const auto it = FirstBehind(phase.order, own);
    if (it == phase.order.end() || *it != &own) continue;
    const Number turn = phase.turns[static_cast<std::size_t>(it - phase.order.begin())];
    if (turn >= kept_until_ || At(turn).claimants.contains(own.job)) break;
    return Place{i - 1, turn};
  }
  return std::nullopt;
}

// Up to the job's turn all is as if it was not there. Behind it the order may be another one, which
// does not matter where no job takes anything, nor the job itself.
bool PassRecord::Has(std::size_t phase, Number turn, const std::optional<Place>& own) const {
  if (turn >= kept_until_) return false;
  if (!own || phase < own->phase) return true;
  const bool is_settled = phases_[phase].changed_until <= own->turn && victims_until_ == kNoTurn;
  return phase == own->phase && (turn <= own->turn || is_settled);
}

const PassState& PassRecord::At(Number turn) const {
  const auto next = std::ranges::upper_bound(kept_, turn, {}, &Kept::from);
  return std::prev(next)->state;
}

std::span<const RunningGang* const> PassRecord::GangsAt(Number turn, const PassState& state) const {
  if (turn >= victims_until_) return {};
  return state.gangs;
}

void PassRecord::Ask(const GangRequest* own, const std::vector<GangRequest>& probes,
                     const AtTurn& at_turn, std::set<const GangRequest*>& answered) const {
  const std::optional<Place> place = own == nullptr ? std::nullopt : PlaceOf(*own);
  if (kept_.empty() || (own != nullptr && !place)) return;
  MatchTable matches(kept_.front().state.nodes);
  std::set<const GangRequest*> left;
  for (const GangRequest& probe : probes) left.insert(&probe);
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const Phase& phase = phases_[i];
    std::vector<std::pair<Number, const GangRequest*>> turns;
    for (const GangRequest* probe : left)
      if (probe->class_value == phase.class_value) turns.emplace_back(TurnIn(phase, *probe), probe);
    std::ranges::sort(turns);
    for (const auto& [turn, probe] : turns) {
      if (!Has(i, turn, place)) {
        left.erase(probe);
        continue;
      }
      const PassState& state = At(turn);
      if (!at_turn({.probe = *probe,
                    .entitled = phase.entitled,
                    .guaranteed = state.loads,
                    .loads = state.loads,
                    .nodes = state.nodes,
                    .matches = matches,
                    .endangers_promises = phase.endangers_promises,
                    .gangs = GangsAt(turn, state),
                    .planned = state.planned}))
        continue;
      answered.insert(probe);
      left.erase(probe);
    }
  }
}

std::optional<PassRecord::Considered> PassRecord::WhenAdded(const GangRequest& job) const {
  const Amounts amounts = job.AmountsOf(job.least());
  for (auto phase = phases_.begin(); phase != phases_.end(); ++phase) {
    if (phase->class_value != job.class_value) continue;
    const Number turn = TurnIn(*phase, job);
    if (turn >= kept_until_) break;
    const PassState& left = At(turn);
    if (phase->entitled && !left.loads.IsEntitled(job.queue, amounts)) continue;
    const bool is_settled = victims_until_ == kNoTurn && phase->changed_until <= turn &&
                            std::all_of(std::next(phase), phases_.end(), [](const Phase& later) {
                              return later.changed_until == later.first;
                            });
    return Considered{.left = left,
                      .entitled = phase->entitled,
                      .has_victims = turn < victims_until_,
                      .endangers_promises = phase->endangers_promises,
                      .is_settled = is_settled};
  }
  return std::nullopt;
}

}  // namespace muster
