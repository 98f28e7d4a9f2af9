// Runs seeds of the simulation on all cores and prints one JSON object.
//
//   muster-simulation [--seeds N] [--first SEED] [--seed SEED] [--nodes MIN MAX] [--threads N]
//   [--trace]

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/simulation/world.h"

namespace {

using muster::sim::RunResult;
using muster::sim::World;
using muster::sim::WorldOptions;

struct Arguments {
  std::uint64_t first = 0;
  int seeds = 500;
  int threads = 2;
  WorldOptions world;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    if (name == "--seeds") arguments.seeds = std::atoi(next());
    if (name == "--first") arguments.first = std::strtoull(next(), nullptr, 10);
    if (name == "--threads") arguments.threads = std::atoi(next());
    if (name == "--trace") arguments.world.trace = true;
    if (name == "--jobs") arguments.world.jobs = std::atoi(next());
    if (name == "--nodes") {
      arguments.world.min_nodes = std::atoi(next());
      arguments.world.max_nodes = std::atoi(next());
    }
    if (name == "--seed") {
      arguments.first = std::strtoull(next(), nullptr, 10);
      arguments.seeds = 1;
    }
  }
  return arguments;
}

struct Totals {
  std::mutex mutex;
  std::uint64_t events = 0;
  std::int64_t nodes = 0;
  double virtual_seconds = 0;
  std::map<std::string, int> faults;
  std::map<std::string, int> violations;

  void Add(std::uint64_t seed, const RunResult& result) {
    const std::lock_guard lock(mutex);
    events += result.events;
    nodes += result.nodes;
    virtual_seconds += result.virtual_seconds;
    for (const auto& [kind, count] : result.faults) faults[muster::sim::Name(kind)] += count;
    if (!result.violation) return;
    ++violations[result.violation->invariant];
    std::fprintf(stderr, "seed %llu violates '%s': %s\n%s\n", static_cast<unsigned long long>(seed),
                 result.violation->invariant.c_str(), result.violation->what.c_str(),
                 result.story.c_str());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  Totals totals;
  std::atomic<int> next = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < arguments.threads; ++i) {
    threads.emplace_back([&] {
      for (int n = next++; n < arguments.seeds; n = next++) {
        WorldOptions options = arguments.world;
        options.seed = arguments.first + static_cast<std::uint64_t>(n);
        totals.Add(options.seed, World(options).Run());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const nlohmann::json summary = {
      {"seeds", arguments.seeds},
      {"first_seed", arguments.first},
      {"nodes", totals.nodes},
      {"events", totals.events},
      {"seconds", seconds},
      {"events_per_second", static_cast<double>(totals.events) / seconds},
      {"virtual_hours", totals.virtual_seconds / 3600},
      {"faults", totals.faults},
      {"violations", totals.violations}};
  std::printf("%s\n", summary.dump(2).c_str());
  return totals.violations.empty() ? 0 : 1;
}
