// Random walks of a pool whose jobs, nodes and Slurm do what they like, by the minute.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "coordinator/pilots/pool_planner.h"

namespace muster {
namespace {

using std::chrono::seconds;

constexpr double kLife = 3600;

// Slurm and the cluster, as far as the planner sees them. A job takes free nodes at once.
class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    config_.max_nodes = 6;
    config_.min_nodes = 1;
    config_.spares = 1;
    config_.idle_timeout_seconds = 120;
    config_.stop_lead_seconds = 60;
    planner_.SetConfig(config_);
  }

  void Step(bool calm) {
    now_ += seconds(5);
    Age();
    if (!calm && Chance(20)) wanted_ = static_cast<int>(random_() % 5);
    if (!calm && Chance(80)) LoseNode();
    Settle();
    const PoolPlan plan = planner_.Plan(Facts(), now_);
    for (const PoolAction& action : plan.actions) Apply(action);
    submits_ +=
        static_cast<int>(std::count_if(plan.actions.begin(), plan.actions.end(), [](auto& a) {
          return std::holds_alternative<SubmitPilot>(a);
        }));
    Check();
  }

  void Want(int nodes) { wanted_ = nodes; }
  int busy() const { return busy_; }
  int submits() const { return submits_; }
  int pilots() const { return static_cast<int>(pilots_.size()); }

 private:
  struct Pilot {
    PilotFact fact;
    PoolNodeState state = PoolNodeState::kUsable;
    bool busy = false;
    double age = 0;
  };

  bool Chance(unsigned one_of) { return random_() % one_of == 0; }

  void Age() {
    for (auto pilot = pilots_.begin(); pilot != pilots_.end();) {
      Pilot& it = pilot->second;
      it.age += 5;
      if (it.fact.phase == PilotPhase::kPending && it.age > 15) {
        it.fact.phase = PilotPhase::kRunning;
        it.fact.nodes = {"n" + std::to_string(++next_node_)};
        it.age = 0;
      }
      if (it.fact.phase == PilotPhase::kRunning) {
        it.fact.seconds_running = it.age;
        it.fact.seconds_left = kLife - it.age;
      }
      const bool ended = it.fact.phase == PilotPhase::kEnding || it.age > kLife;
      EXPECT_FALSE(it.age > kLife && it.busy) << "ran into the end of its time";
      pilot = ended ? pilots_.erase(pilot) : std::next(pilot);
    }
  }

  void LoseNode() {
    for (auto& [key, pilot] : pilots_)
      if (pilot.fact.phase == PilotPhase::kRunning) {
        pilot.state = PoolNodeState::kBad;
        pilot.busy = false;
        return;
      }
  }

  // Work stays where it is as long as it may.
  void Settle() {
    int left = wanted_;
    for (auto& [key, pilot] : pilots_) {
      pilot.busy = pilot.busy && left > 0 && pilot.state == PoolNodeState::kUsable;
      if (pilot.busy) --left;
    }
    for (auto& [key, pilot] : pilots_) {
      if (left == 0 || pilot.busy || pilot.fact.phase != PilotPhase::kRunning ||
          pilot.state != PoolNodeState::kUsable)
        continue;
      pilot.busy = true;
      --left;
    }
    busy_ = wanted_ - left;
  }

  PoolFacts Facts() const {
    PoolFacts facts;
    for (const auto& [key, pilot] : pilots_) {
      facts.pilots.push_back(pilot.fact);
      for (const std::string& node : pilot.fact.nodes)
        facts.nodes.push_back({node, pilot.state, pilot.busy, key});
    }
    if (wanted_ > busy_) facts.needs.push_back({"job j", wanted_ - busy_, true, {}});
    return facts;
  }

  void Apply(const PoolAction& action) {
    if (std::holds_alternative<SubmitPilot>(action)) {
      const std::string key = "p" + std::to_string(++next_key_);
      pilots_[key].fact = {.key = key, .phase = PilotPhase::kPending};
    } else if (const auto* cancel = std::get_if<CancelPilot>(&action)) {
      EXPECT_FALSE(pilots_.at(cancel->key).busy) << "a busy pilot was cancelled";
      pilots_.at(cancel->key).fact.phase = PilotPhase::kEnding;
    } else {
      for (auto& [key, pilot] : pilots_)
        if (!pilot.fact.nodes.empty() &&
            pilot.fact.nodes[0] == std::get<DrainPoolNode>(action).node)
          pilot.state = PoolNodeState::kLeaving;
    }
  }

  void Check() const {
    int good = 0;
    for (const auto& [key, pilot] : pilots_) {
      const bool expiring = pilot.fact.seconds_left && *pilot.fact.seconds_left <= 120;
      if (pilot.state == PoolNodeState::kUsable && !expiring &&
          pilot.fact.phase != PilotPhase::kEnding)
        ++good;
    }
    EXPECT_LE(good, config_.max_nodes);
    EXPECT_GE(good, config_.min_nodes);
  }

  std::mt19937 random_;
  PoolConfig config_;
  PoolPlanner planner_;
  TimePoint now_ = TimePoint(seconds(1000));
  std::map<std::string, Pilot> pilots_;
  int wanted_ = 0;
  int busy_ = 0;
  int submits_ = 0;
  int next_key_ = 0;
  int next_node_ = 0;
};

TEST(PoolWalkTest, IsNeverAboveTheMostNorBelowTheLeastAndEndsNothingThatWorks) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    World world(seed);
    for (int step = 0; step < 1000; ++step) world.Step(/*calm=*/false);
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(PoolWalkTest, ComesToRestAtWhatIsWanted) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    World world(seed);
    for (int step = 0; step < 200; ++step) world.Step(/*calm=*/false);
    world.Want(3);
    for (int step = 0; step < 120; ++step) world.Step(/*calm=*/true);
    EXPECT_EQ(world.busy(), 3) << "seed " << seed;
    // A life is 720 of these steps: within 100 of them each of four is replaced once at most.
    const int before = world.submits();
    for (int step = 0; step < 100; ++step) world.Step(/*calm=*/true);
    EXPECT_LE(world.submits() - before, 4) << "seed " << seed;
    EXPECT_GE(world.pilots(), 4) << "three and a spare; seed " << seed;
    EXPECT_LE(world.pilots(), 8) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster
