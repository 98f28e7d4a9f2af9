#include "coordinator/detect/hang_culprit.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "common/control_pipe/progress_page.h"

namespace muster {
namespace {

constexpr std::size_t kNamedRanks = 4;

// How far a rank is in starting up; the highest value for a rank that trains.
int StartUpOrder(const RankProgress& rank) {
  const TrainPhase order[] = {TrainPhase::kStandby,      TrainPhase::kParked,
                              TrainPhase::kStarting,     TrainPhase::kForming,
                              TrainPhase::kReadingRows,  TrainPhase::kLoading,
                              TrainPhase::kLoadingFrozen};
  const auto found = std::find_if(std::begin(order), std::end(order),
                                  [&](TrainPhase phase) { return rank.phase == phase; });
  return static_cast<int>(found - std::begin(order));
}

const CollectiveCounts* FindGroup(const RankProgress& rank, const std::string& group) {
  for (const CollectiveCounts& counts : rank.collectives) {
    if (counts.group == group) return &counts;
  }
  return nullptr;
}

// The group in which a rank waits, else the one with the most operations; nullptr if there is none.
const CollectiveCounts* LastGroup(const RankProgress& rank) {
  const auto later = [](const CollectiveCounts& a, const CollectiveCounts& b) {
    const bool a_waits = a.enqueued > a.completed;
    const bool b_waits = b.enqueued > b.completed;
    return a_waits != b_waits ? b_waits : a.enqueued < b.enqueued;
  };
  const auto last = std::max_element(rank.collectives.begin(), rank.collectives.end(), later);
  return last == rank.collectives.end() ? nullptr : &*last;
}

bool Waits(const RankProgress& rank) {
  const CollectiveCounts* last = LastGroup(rank);
  return last != nullptr && last->enqueued > last->completed;
}

std::string RankList(const std::vector<int>& ranks, const std::vector<NodeName>& nodes) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kNamedRanks; ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + RankOnNode(ranks[i], nodes);
  }
  if (ranks.size() > kNamedRanks) {
    text += " and " + std::to_string(ranks.size() - kNamedRanks) + " more";
  }
  return text;
}

// What ranks do together in a phase; the page counts operations but does not record their kinds.
std::string OperationOf(const RankProgress& rank) {
  if (rank.phase == TrainPhase::kForming) return "the first collective";
  if (rank.phase == TrainPhase::kReadingRows) {
    return "the meeting after rows are read and tokenized";
  }
  if (rank.phase == TrainPhase::kLoadingFrozen) return "sharing the frozen weights";
  if (rank.phase == TrainPhase::kLoading) return "sharing the state that was loaded";
  if (rank.phase == TrainPhase::kForward) return "an all-gather of weights";
  if (rank.phase == TrainPhase::kBackward) {
    return "an all-gather of weights or a sum of gradients";
  }
  if (rank.phase == TrainPhase::kOptimizer) return "the sum of gradient norms";
  return "a collective";
}

// "; the others wait in an all-gather of weights (world, operation 812)", from a rank that waits.
std::string WhereOthersWait(const std::vector<RankProgress>& ranks,
                            const std::vector<int>& culprits) {
  for (const RankProgress& rank : ranks) {
    if (std::find(culprits.begin(), culprits.end(), rank.rank) != culprits.end()) continue;
    if (!Waits(rank)) continue;
    const CollectiveCounts& group = *LastGroup(rank);
    return "; rank " + std::to_string(rank.rank) + " waits for " +
           (culprits.size() == 1 ? "rank " + std::to_string(culprits.front()) : "them") + " in " +
           OperationOf(rank) + " (group " + group.group + ", operation " +
           std::to_string(group.completed + 1) + ")";
  }
  return "";
}

std::string PhaseOf(const std::vector<RankProgress>& ranks, int rank) {
  for (const RankProgress& candidate : ranks) {
    if (candidate.rank == rank) return std::string(TrainPhaseName(candidate.phase));
  }
  return "";
}

std::vector<int> Those(const std::vector<RankProgress>& ranks,
                       const std::function<bool(const RankProgress&)>& wanted) {
  std::vector<int> found;
  for (const RankProgress& rank : ranks) {
    if (wanted(rank)) found.push_back(rank.rank);
  }
  std::sort(found.begin(), found.end());
  return found;
}

struct Behind {
  std::vector<int> ranks;
  std::string group;
};

// The ranks with the lowest count in a group whose counts differ; with several such groups, those
// of the group that leaves the fewest suspects. Separate groups of one name (a shard group per
// node) advance in step, so the lowest of all is behind in its own.
Behind BehindIn(const std::vector<RankProgress>& ranks,
                std::uint64_t CollectiveCounts::*const count) {
  struct Range {
    std::uint64_t lowest = 0;
    std::uint64_t highest = 0;
  };
  std::map<std::string, Range> groups;
  for (const RankProgress& rank : ranks) {
    for (const CollectiveCounts& counts : rank.collectives) {
      const std::uint64_t n = counts.*count;
      const auto [entry, first] = groups.try_emplace(counts.group, Range{n, n});
      if (!first)
        entry->second = {std::min(entry->second.lowest, n), std::max(entry->second.highest, n)};
    }
  }
  Behind best;
  for (const auto& [group, range] : groups) {
    if (range.lowest == range.highest) continue;
    std::vector<int> lowest =
        Those(ranks, [&, &name = group, low = range.lowest](const auto& rank) {
          const CollectiveCounts* counts = FindGroup(rank, name);
          return counts != nullptr && counts->*count == low;
        });
    if (best.ranks.empty() || lowest.size() < best.ranks.size()) best = {std::move(lowest), group};
  }
  return best;
}

std::string Have(const std::vector<int>& ranks) { return ranks.size() == 1 ? " has" : " have"; }

// Ranks of a gang that is still starting up, if they are not all equally far.
std::vector<int> BehindInStartUp(const std::vector<RankProgress>& ranks) {
  int least = StartUpOrder(ranks.front());
  int most = least;
  for (const RankProgress& rank : ranks) {
    least = std::min(least, StartUpOrder(rank));
    most = std::max(most, StartUpOrder(rank));
  }
  if (least == most) return {};
  return Those(ranks, [least](const RankProgress& rank) { return StartUpOrder(rank) == least; });
}

}  // namespace

std::string RankOnNode(int rank, const std::vector<NodeName>& nodes) {
  std::string text = "rank " + std::to_string(rank);
  if (static_cast<std::size_t>(rank) < nodes.size()) {
    text += " on " + nodes[static_cast<std::size_t>(rank)].value;
  }
  return text;
}

std::string DescribeLastCollective(const RankProgress& rank) {
  const CollectiveCounts* last = LastGroup(rank);
  if (last == nullptr) return "";
  return last->group + ": " + std::to_string(last->enqueued) + " enqueued, " +
         std::to_string(last->completed) + " completed";
}

HangCulprits FindCulprits(const std::vector<RankProgress>& ranks,
                          const std::vector<NodeName>& nodes) {
  const auto in_phase = [&](const std::vector<int>& found) {
    const std::string phase = PhaseOf(ranks, found.front());
    return phase.empty() ? "" : " in phase " + phase;
  };
  if (auto found = Those(ranks, [](const auto& r) { return r.process_state == "T"; });
      !found.empty()) {
    return {found, RankList(found, nodes) + (found.size() == 1 ? " is" : " are") +
                       " stopped by a signal (process state T)" + in_phase(found) +
                       WhereOthersWait(ranks, found)};
  }
  if (auto found = BehindInStartUp(ranks); !found.empty()) {
    return {found, RankList(found, nodes) + Have(found) + " not got beyond phase " +
                       PhaseOf(ranks, found.front()) + ", unlike the others"};
  }
  if (auto [found, group] = BehindIn(ranks, &CollectiveCounts::enqueued); !found.empty()) {
    return {found, RankList(found, nodes) + Have(found) +
                       " not joined the next collective of group " + group + in_phase(found) +
                       WhereOthersWait(ranks, found)};
  }
  if (auto [found, group] = BehindIn(ranks, &CollectiveCounts::completed); !found.empty()) {
    return {found, RankList(found, nodes) + Have(found) + " not completed a collective of group " +
                       group + " that others have: its link or device" + in_phase(found)};
  }
  auto found = Those(ranks, [](const RankProgress& rank) { return !Waits(rank); });
  if (!found.empty() && found.size() < ranks.size()) {
    return {found, RankList(found, nodes) + Have(found) + " not come to a collective" +
                       in_phase(found) + WhereOthersWait(ranks, found)};
  }
  found = Those(ranks, [](const RankProgress&) { return true; });
  return {found, RankList(found, nodes) + (found.size() == 1 ? " stands" : " stand") + " still" +
                     in_phase(found)};
}

}  // namespace muster
