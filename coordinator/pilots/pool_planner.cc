#include "coordinator/pilots/pool_planner.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace muster {
namespace {

constexpr double kCheckpointMargin = 60;  // Slurm counts in minutes
constexpr double kBeforeTheEnd = 5;       // a drain is over before Slurm's SIGTERM

enum class Verdict { kGood, kExpiring, kLeaving, kBad, kEnding };

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool ContainsAll(const std::vector<std::string>& names, const std::vector<std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const std::string& name) { return Contains(names, name); });
}

std::vector<std::string> Union(const std::vector<std::string>& a,
                               const std::vector<std::string>& b) {
  std::set<std::string> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  return {all.begin(), all.end()};
}

std::string NodesText(int nodes) {
  return std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
}

}  // namespace

// One call of Plan.
class PoolPlanner::Round {
 public:
  Round(PoolPlanner& planner, const PoolFacts& facts, TimePoint now)
      : planner_(planner), config_(planner.config_), facts_(facts), now_(now) {
    for (const PoolNodeFact& node : facts.nodes) nodes_[node.name] = &node;
    lead_ = config_.stop_lead_seconds > 0 ? static_cast<double>(config_.stop_lead_seconds)
                                          : 2 * facts.checkpoint_seconds + kCheckpointMargin;
  }

  PoolPlan Run() {
    for (const PilotFact& pilot : facts_.pilots) Judge(pilot);
    avoid_ = facts_.avoid;
    for (const Judged& judged : judged_) avoid_ = Union(avoid_, judged.bad);
    CollectFree();
    ServeDepartures();
    for (const PoolNeed& need : facts_.needs) Serve({need});
    if (config_.spares > 0)
      Serve({{NodesText(config_.spares) + " spare", config_.spares, true, {}}});
    KeepMinimum();
    for (const Judged& judged : judged_) Dismiss(judged);
    Shrink();
    return std::move(plan_);
  }

 private:
  struct Judged {
    const PilotFact* pilot;
    Verdict verdict;
    std::vector<std::string> bad;   // nodes of it
    std::vector<std::string> busy;  // without the bad ones
    std::vector<std::string> usable;
  };
  // A place where a node's worth of a job could go.
  struct Free {
    const PilotFact* pilot;  // nullptr: of none, or of one that is being submitted now
    std::string node;        // empty: Slurm has not assigned one yet
    bool connected;
    std::vector<std::string> exclude;  // nodes that it will not be, if it has no name
    bool taken = false;
  };

  struct Need : PoolNeed {
    bool replaces = false;
  };

  const PoolNodeFact* NodeOf(const PilotFact& pilot, const std::string& name) const {
    const auto found = nodes_.find(name);
    if (found == nodes_.end() || found->second->pilot != pilot.key) return nullptr;
    return found->second;
  }

  // A pilot leaves in the second half of its life at the earliest, whatever the lead.
  double LeadOf(const PilotFact& pilot) const {
    return std::min(lead_, (pilot.seconds_running + *pilot.seconds_left) / 4);
  }

  void Judge(const PilotFact& pilot) {
    Judged judged{&pilot, Verdict::kGood, {}, {}, {}};
    bool leaving = false;
    for (const std::string& name : pilot.nodes) {
      const PoolNodeFact* node = NodeOf(pilot, name);
      const auto timeout = static_cast<double>(config_.start_timeout_seconds);
      if (node == nullptr) {
        if (pilot.seconds_running > timeout) judged.bad.push_back(name);
        continue;
      }
      if (node->state == PoolNodeState::kBad) {
        judged.bad.push_back(name);
        continue;
      }
      if (node->busy) judged.busy.push_back(name);
      if (node->state == PoolNodeState::kUsable) judged.usable.push_back(name);
      leaving = leaving || node->state == PoolNodeState::kLeaving;
    }
    if (pilot.phase == PilotPhase::kEnding) {
      judged.verdict = Verdict::kEnding;
    } else if (!judged.bad.empty()) {
      judged.verdict = Verdict::kBad;
    } else if (leaving) {
      judged.verdict = Verdict::kLeaving;
    } else if (pilot.phase == PilotPhase::kRunning && pilot.seconds_left &&
               *pilot.seconds_left <= 2 * LeadOf(pilot)) {
      judged.verdict = Verdict::kExpiring;
    }
    if (judged.verdict == Verdict::kGood) nodes_there_ += SizeOf(pilot);
    judged_.push_back(std::move(judged));
  }

  int SizeOf(const PilotFact& pilot) const {
    return pilot.nodes.empty() ? config_.nodes_per_pilot : static_cast<int>(pilot.nodes.size());
  }

  void CollectFree() {
    for (const PoolNodeFact& node : facts_.nodes)
      if (node.pilot.empty() && node.state == PoolNodeState::kUsable && !node.busy)
        free_.push_back({nullptr, node.name, true, {}});
    for (const Judged& judged : judged_) {
      if (judged.verdict != Verdict::kGood) continue;
      const PilotFact& pilot = *judged.pilot;
      if (pilot.phase == PilotPhase::kPending || pilot.phase == PilotPhase::kSubmitting) {
        ++pending_;
        for (int n = 0; n < SizeOf(pilot); ++n) free_.push_back({&pilot, "", false, pilot.exclude});
        continue;
      }
      for (const std::string& name : pilot.nodes)
        if (!Contains(judged.busy, name))
          free_.push_back({&pilot, name, NodeOf(pilot, name) != nullptr, {}});
    }
  }

  // Jobs whose nodes are about to leave.
  void ServeDepartures() {
    for (const Judged& judged : judged_) {
      const bool goes = judged.verdict == Verdict::kExpiring || judged.verdict == Verdict::kLeaving;
      if (!goes || judged.busy.empty()) continue;
      const int busy = static_cast<int>(judged.busy.size());
      Serve({{"replaces pilot " + judged.pilot->key, busy, true, {}}, true});
    }
  }

  bool Fits(const Free& place, const PoolNeed& need) const {
    if (place.taken) return false;
    if (!place.node.empty()) return !Contains(need.exclude, place.node);
    return ContainsAll(place.exclude, need.exclude);
  }

  // How many of `wanted` places there are.
  int Take(const PoolNeed& need, int wanted, bool connected) {
    int taken = 0;
    for (Free& place : free_) {
      if (taken == wanted) break;
      if (place.connected != connected || !Fits(place, need)) continue;
      place.taken = true;
      ++taken;
    }
    return taken;
  }

  void Serve(const Need& need) {
    int lacking = need.nodes;
    const int there = Take(need, lacking, /*connected=*/true);
    lacking -= there;
    if (need.replaces && lacking > 0) all_replaced_ = false;
    lacking -= Take(need, lacking, /*connected=*/false);
    if (lacking == 0) return;
    const int size = config_.nodes_per_pilot;
    int pilots = (lacking + size - 1) / size;
    const int room = (config_.max_nodes - nodes_there_) / size;
    if (pilots > room) {
      Note(need.why + ", and " + NodesText(lacking) + " more would be above max_nodes");
      // A gang that cannot be whole has no use for a part of its nodes.
      pilots = need.partly ? std::max(0, room) : 0;
    }
    int surplus = pilots * size - lacking;
    for (int n = 0; n < pilots; ++n)
      if (!Submit(need.exclude, need.why)) return;
    for (; surplus > 0; --surplus) free_.push_back({nullptr, "", false, need.exclude});
  }

  void KeepMinimum() {
    while (nodes_there_ < config_.min_nodes &&
           nodes_there_ + config_.nodes_per_pilot <= config_.max_nodes)
      if (!Submit({}, "min_nodes is " + std::to_string(config_.min_nodes))) return;
  }

  bool Submit(const std::vector<std::string>& exclude, const std::string& why) {
    auto& submits = planner_.submits_;
    while (!submits.empty() && submits.front() <= now_ - std::chrono::minutes(1))
      submits.pop_front();
    if (planner_.not_before_ && now_ < *planner_.not_before_) {
      Note("pilots have failed " + std::to_string(planner_.failures_) +
           " times in a row; the next one is submitted in " +
           std::to_string(static_cast<int>(ToSeconds(*planner_.not_before_ - now_)) + 1) + " s");
      return false;
    }
    if (pending_ >= config_.max_pending) {
      Note(std::to_string(pending_) + " pilots wait already (max_pending)");
      return false;
    }
    if (static_cast<int>(submits.size()) >= config_.submits_per_minute) {
      Note("the limit of submissions within a minute is reached (submits_per_minute)");
      return false;
    }
    submits.push_back(now_);
    ++pending_;
    nodes_there_ += config_.nodes_per_pilot;
    plan_.actions.push_back(SubmitPilot{Union(exclude, avoid_), why});
    return true;
  }

  void Note(const std::string& condition) {
    if (plan_.condition.empty()) plan_.condition = condition;
  }

  void Drain(const std::string& node, double by_seconds, const std::string& why) {
    plan_.actions.push_back(DrainPoolNode{node, by_seconds, "its pilot job " + why});
  }

  // What must go, smallest loss first: drained if something may run there, then cancelled.
  void Dismiss(const Judged& judged) {
    const PilotFact& pilot = *judged.pilot;
    if (judged.verdict == Verdict::kGood || judged.verdict == Verdict::kEnding) return;
    if (judged.verdict == Verdict::kExpiring) return Replace(judged);
    for (const std::string& name : judged.usable) Drain(name, 0, pilot.key + " loses another node");
    if (!judged.busy.empty() || !judged.usable.empty()) return;
    std::string why = "its nodes are drained";
    if (!judged.bad.empty()) {
      const PoolNodeFact* node = NodeOf(pilot, judged.bad.front());
      why = "node " + judged.bad.front() +
            (node == nullptr ? " did not come in time" : " is lost or has failed");
    }
    plan_.actions.push_back(CancelPilot{pilot.key, why, judged.bad});
  }

  void Replace(const Judged& judged) {
    const double left = *judged.pilot->seconds_left;
    if (!judged.busy.empty() && !all_replaced_ && left > LeadOf(*judged.pilot)) return;
    for (const std::string& name : judged.usable)
      Drain(name, std::max(1.0, left - kBeforeTheEnd), judged.pilot->key + " ends soon");
    if (judged.usable.empty() && judged.busy.empty())
      plan_.actions.push_back(CancelPilot{judged.pilot->key, "its time is nearly over", {}});
  }

  // All of its nodes are unused.
  bool IsIdle(const PilotFact& pilot) const {
    int free = 0;
    for (const Free& place : free_)
      if (place.pilot == &pilot && !place.taken) ++free;
    return free == SizeOf(pilot);
  }

  void Shrink() {
    std::map<std::string, TimePoint> idle;
    const Judged* least = nullptr;
    for (const Judged& judged : judged_) {
      if (judged.verdict != Verdict::kGood || !IsIdle(*judged.pilot)) continue;
      const auto before = planner_.idle_since_.find(judged.pilot->key);
      const TimePoint since = before == planner_.idle_since_.end() ? now_ : before->second;
      idle[judged.pilot->key] = since;
      if (now_ - since < std::chrono::seconds(config_.idle_timeout_seconds)) continue;
      if (nodes_there_ - SizeOf(*judged.pilot) < config_.min_nodes) continue;
      if (least == nullptr || Worth(judged) < Worth(*least)) least = &judged;
    }
    planner_.idle_since_ = std::move(idle);
    if (least == nullptr) return;
    const std::string why = "is no longer needed";
    if (least->usable.empty())
      plan_.actions.push_back(CancelPilot{least->pilot->key, "it " + why, {}});
    for (const std::string& name : least->usable) Drain(name, 0, least->pilot->key + " " + why);
  }

  // A pilot that still waits is worth nothing, others the time that they have left.
  static double Worth(const Judged& judged) {
    if (judged.pilot->phase != PilotPhase::kRunning) return -1;
    return judged.pilot->seconds_left.value_or(HUGE_VAL);
  }

  PoolPlanner& planner_;
  const PoolConfig& config_;
  const PoolFacts& facts_;
  const TimePoint now_;
  double lead_ = 0;
  std::map<std::string, const PoolNodeFact*> nodes_;
  std::vector<Judged> judged_;
  std::vector<std::string> avoid_;
  std::vector<Free> free_;
  int nodes_there_ = 0;  // of good pilots, including those being submitted now
  int pending_ = 0;
  bool all_replaced_ = true;
  PoolPlan plan_;
};

PoolPlan PoolPlanner::Plan(const PoolFacts& facts, TimePoint now) {
  return Round(*this, facts, now).Run();
}

void PoolPlanner::OnFailure(TimePoint now) {
  const Duration pause = kFirstPause * (1 << std::min(failures_, 10));
  not_before_ = now + std::min<Duration>(pause, kLongestPause);
  ++failures_;
}

}  // namespace muster
