// Rates of the Gloo communicator's collectives between processes of this machine, as JSON.
//
//   collectives_bench [RANKS]      default 2
//
// mb_per_s is the size of the whole (gathered) buffer over the time of one operation, the median
// of the repetitions on rank 0.
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "trainer/distributed/gang_testing.h"
#include "trainer/distributed/host_communicator.h"

namespace muster {
namespace {

using nlohmann::json;
using testing::Child;

constexpr std::size_t kSmallest = 64 << 10;
constexpr std::size_t kLargest = 64 << 20;

double MedianSeconds(Communicator& c, int repetitions, const std::function<Status()>& operation) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    if (!c.Barrier().ok()) return 0;
    const auto start = std::chrono::steady_clock::now();
    if (!operation().ok()) return 0;
    seconds.push_back(ToSeconds(std::chrono::steady_clock::now() - start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repetitions / 2)];
}

json Measure(Communicator& c) {
  const std::size_t size = static_cast<std::size_t>(c.size());
  json results = json::array();
  const auto add = [&](const char* name, std::size_t bytes, double seconds) {
    results.push_back({{"operation", name},
                       {"bytes", bytes},
                       {"microseconds", seconds * 1e6},
                       {"mb_per_s", static_cast<double>(bytes) / seconds / 1e6}});
  };
  std::vector<float> full(kLargest / sizeof(float), 1.0F);
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    const std::size_t count = bytes / sizeof(float) / size;
    float* own = full.data() + count * static_cast<std::size_t>(c.rank());
    const int repetitions = bytes > (4 << 20) ? 9 : 51;
    add("all_gather", bytes, MedianSeconds(c, repetitions, [&] {
          return c.AllGather(own, full.data(), count, ElementType::kFloat32)->Wait();
        }));
    add("reduce_scatter", bytes, MedianSeconds(c, repetitions, [&] {
          return c.ReduceScatter({.full = full.data(), .shard = own, .count = count})->Wait();
        }));
  }
  double value = 1;
  add("all_reduce", sizeof(value), MedianSeconds(c, 201, [&] {
        return c.AllReduce(&value, 1, ElementType::kFloat64, ReduceOp::kMax)->Wait();
      }));
  return results;
}

int Run(int ranks) {
  testing::Listener listener = testing::Listen();
  std::vector<Child> children;
  for (int r = 0; r < ranks; ++r) {
    children.emplace_back([&, r]() -> std::string {
      const auto c = MakeHostCommunicator();
      const auto start = std::chrono::steady_clock::now();
      const Status formed =
          c->Form(testing::MeetAt(listener, r, ranks), Deadline::After(std::chrono::seconds(30)));
      if (!formed.ok()) return json(formed.ToString()).dump();
      const double form_seconds = ToSeconds(std::chrono::steady_clock::now() - start);
      return json{{"form_seconds", form_seconds}, {"results", Measure(*c)}}.dump();
    });
  }
  utsname machine{};
  uname(&machine);
  json report = {{"benchmark", "collectives"},
                 {"ranks", ranks},
                 {"machine",
                  {{"kernel", machine.release},
                   {"arch", machine.machine},
                   {"cores", std::thread::hardware_concurrency()}}}};
  for (int r = 0; r < ranks; ++r) {
    const std::string said = children[static_cast<std::size_t>(r)].Said();
    if (r == 0) report["rank_0"] = json::parse(said, nullptr, false);
  }
  std::printf("%s\n", report.dump(1).c_str());
  return report["rank_0"].is_object() ? 0 : 1;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ranks < 1 || ranks > 64) {
    std::fprintf(stderr, "usage: collectives_bench [RANKS], 1 to 64\n");
    return 2;
  }
  return muster::Run(ranks);
}
