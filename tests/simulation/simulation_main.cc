// Runs seeds of the simulation and prints one JSON object.

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/json.h"
#include "tests/simulation/world.h"

namespace {

using muster::sim::RunResult;
using muster::sim::World;
using muster::sim::WorldOptions;

constexpr char kUsage[] =
    R"(usage: muster-simulation [--first SEED] [--seeds N] [--seed SEED] [--nodes MIN MAX] [--jobs N]
                         [--threads N] [--first-violation] [--trace]

Runs clusters under a simulated clock, network, disk and host, with seeded faults, and looks at the
invariants after every event. A violation is printed with its seed, which runs the same way again.

  --first SEED     the first seed [0]
  --seeds N        how many, one after the other [500]
  --seed SEED      this one alone
  --nodes MIN MAX  nodes of a cluster [64 512]
  --jobs N         jobs of a cluster [24]
  --threads N      seeds at the same time [2]
  --first-violation
                   run no more seeds after one that violates something
  --trace          print all events before a violation, not only the last ones
)";

struct Arguments {
  std::uint64_t first = 0;
  int seeds = 500;
  int threads = 2;
  bool first_violation = false;
  WorldOptions world;
};

std::uint64_t Number(const std::string& name, const char* text) {
  std::uint64_t value = 0;
  const char* end = text == nullptr ? nullptr : text + std::strlen(text);
  if (text == nullptr || std::from_chars(text, end, value).ptr != end || text == end) {
    std::fprintf(stderr, "%s needs a number\n%s", name.c_str(), kUsage);
    std::exit(2);
  }
  return value;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&] { return Number(name, i + 1 < argc ? argv[++i] : nullptr); };
    const auto count = [&] { return static_cast<int>(next()); };
    if (name == "--seeds") {
      arguments.seeds = count();
    } else if (name == "--first") {
      arguments.first = next();
    } else if (name == "--threads") {
      arguments.threads = count();
    } else if (name == "--first-violation") {
      arguments.first_violation = true;
    } else if (name == "--trace") {
      arguments.world.trace = true;
    } else if (name == "--jobs") {
      arguments.world.jobs = count();
    } else if (name == "--nodes") {
      arguments.world.min_nodes = count();
      arguments.world.max_nodes = count();
    } else if (name == "--seed") {
      arguments.first = next();
      arguments.seeds = 1;
    } else {
      const bool help = name == "--help" || name == "-h";
      std::fprintf(help ? stdout : stderr, "%s", kUsage);
      std::exit(help ? 0 : 2);
    }
  }
  return arguments;
}

struct Totals {
  std::mutex mutex;
  std::uint64_t events = 0;
  std::int64_t nodes = 0;
  std::int64_t stalls = 0;
  double virtual_seconds = 0;
  std::map<std::string, int> faults;
  std::map<std::string, int> violations;

  void Add(std::uint64_t seed, const RunResult& result) {
    const std::lock_guard lock(mutex);
    events += result.events;
    nodes += result.nodes;
    stalls += result.stalls;
    virtual_seconds += result.virtual_seconds;
    for (const auto& [kind, count] : result.faults) faults[muster::sim::Name(kind)] += count;
    if (!result.violation) return;
    ++violations[result.violation->invariant];
    std::fprintf(stderr, "seed %llu violates '%s': %s\n%s\n", static_cast<unsigned long long>(seed),
                 result.violation->invariant.c_str(), result.violation->what.c_str(),
                 result.timeline.c_str());
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
        const RunResult result = World(options).Run();
        totals.Add(options.seed, result);
        if (result.violation && arguments.first_violation) next = arguments.seeds;
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
      {"stalls", totals.stalls},
      {"virtual_hours", totals.virtual_seconds / 3600},
      {"faults", totals.faults},
      {"violations", totals.violations}};
  std::printf("%s\n", summary.dump(2).c_str());
  return totals.violations.empty() ? 0 : 1;
}
