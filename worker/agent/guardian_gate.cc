#include "worker/agent/guardian_gate.h"

#include <algorithm>
#include <optional>
#include <variant>

namespace muster::worker {
namespace {

// What may come at once: a replay repeats the newest 32 reports of each of a rank's nine kinds
// (worker/guardian/report_log.h), its start, its end and its segments. A spare may be the node of
// an older generation that had ranks.
constexpr double kBurst = 1024;
constexpr double kBurstPerRank = 320;
// And for ever: a rank reports a few times for each step that saves, and a guardian answers each
// ping.
constexpr double kPerSecond = 16;
constexpr double kPerSecondAndRank = 8;

struct About {
  Generation generation = 0;
  int rank = 0;
};

// What an event is about that is about a rank.
struct RankOf {
  template <typename Event>
  std::optional<About> operator()(const Event&) const {
    return std::nullopt;
  }
  std::optional<About> operator()(const GuardianRankStarted& e) const { return Of(e); }
  std::optional<About> operator()(const GuardianRankExited& e) const { return Of(e); }
  std::optional<About> operator()(const GuardianReport& e) const { return Of(e); }

 private:
  template <typename Event>
  static About Of(const Event& event) {
    return {event.generation, event.rank};
  }
};

}  // namespace

GuardianGate::Verdict GuardianGate::Admit(const GuardianEvent& event, const Prepare& prepare,
                                          TimePoint now) {
  ranks_ = std::max(ranks_, prepare.ranks.size());
  if (!Take(now)) return Verdict::kTooMany;
  const std::optional<About> about = std::visit(RankOf{}, event);
  if (!about || about->rank == kStoreRank ||
      std::ranges::find(prepare.ranks, about->rank, &RankPlacement::rank) != prepare.ranks.end())
    return Verdict::kTake;
  // An older generation may have had other ranks here. Their ends are of use to what shows them.
  const bool is_old = about->generation < prepare.generation;
  if (is_old && !std::holds_alternative<GuardianRankStarted>(event)) return Verdict::kTake;
  if (!is_old) ++ignored_;
  return Verdict::kIgnore;
}

bool GuardianGate::Take(TimePoint now) {
  const auto count = static_cast<double>(ranks_);
  const double earned = ToSeconds(now - at_) * (kPerSecond + kPerSecondAndRank * count);
  taken_ = std::max(0.0, taken_ - earned);
  at_ = now;
  if (taken_ + 1 > kBurst + kBurstPerRank * count) return false;
  ++taken_;
  return true;
}

}  // namespace muster::worker
