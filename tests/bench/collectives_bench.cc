// Rates of the host communicator's collectives between processes of this machine, as JSON: over
// shared memory, with buffers in regions and of the ranks' own, and over sockets.
//
//   collectives_bench [RANKS]      default 2
//
// mb_per_s is the size of the whole (gathered) buffer over the time of one operation, the median
// of the repetitions on rank 0; `least` is the fastest of them.
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/json.h"
#include "trainer/comm/group/host_communicator.h"
#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/comm/rank_env.h"
#include "trainer/comm/transport/shared/unix_mesh.h"

namespace muster {
namespace {

using nlohmann::json;
using testing::Child;

constexpr std::size_t kSmallest = 64 << 10;
constexpr std::size_t kLargest = 64 << 20;

struct Seconds {
  double median = 0;
  double least = 0;
};

Seconds Time(Communicator& c, int repetitions, const std::function<Status()>& operation) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    if (!c.Barrier().ok()) return {};
    const auto start = std::chrono::steady_clock::now();
    if (!operation().ok()) return {};
    seconds.push_back(ToSeconds(std::chrono::steady_clock::now() - start));
  }
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 2], seconds.front()};
}

json Row(const char* operation, const char* buffers, std::size_t bytes, Seconds seconds) {
  return {{"operation", operation},
          {"buffers", buffers},
          {"bytes", bytes},
          {"microseconds", seconds.median * 1e6},
          {"least", seconds.least * 1e6},
          {"mb_per_s", static_cast<double>(bytes) / seconds.median / 1e6}};
}

// `gathered` and `reduced` have room for kLargest bytes each.
void MeasureBuffers(Communicator& c, const char* buffers, void* gathered, void* reduced,
                    json* results) {
  const auto size = static_cast<std::size_t>(c.size());
  const auto rank = static_cast<std::size_t>(c.rank());
  std::vector<float> sums(kLargest / sizeof(float) / size);
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    const std::size_t count = bytes / sizeof(float) / size;
    const int repetitions = bytes > (4 << 20) ? 15 : 51;
    auto* full = static_cast<float*>(gathered);
    results->push_back(
        Row("all_gather", buffers, bytes, Time(c, repetitions, [&] {
              return c.AllGather(full + count * rank, full, count, ElementType::kFloat32)->Wait();
            })));
    auto* source = static_cast<float*>(reduced);
    results->push_back(Row(
        "reduce_scatter", buffers, bytes, Time(c, repetitions, [&] {
          return c.ReduceScatter({.full = source, .shard = source + count * rank, .count = count})
              ->Wait();
        })));
    results->push_back(
        Row("reduce_scatter_bf16_to_fp32_sums", buffers, bytes / 2, Time(c, repetitions, [&] {
              return c
                  .ReduceScatter({.full = reduced,
                                  .shard = sums.data(),
                                  .count = count,
                                  .full_type = ElementType::kBFloat16,
                                  .accumulate = true})
                  ->Wait();
            })));
  }
}

json Measure(Communicator& c) {
  json results = json::array();
  {
    std::vector<std::byte> gathered(kLargest);
    std::vector<std::byte> reduced(kLargest);
    MeasureBuffers(c, "own", gathered.data(), reduced.data(), &results);
    const auto size = static_cast<std::size_t>(c.size());
    for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
      const AllToAllArgs args{reduced.data(), gathered.data(), BlockBytes(size, bytes / size),
                              BlockBytes(size, bytes / size)};
      results.push_back(Row("all_to_all", "own", bytes, Time(c, bytes > (4 << 20) ? 15 : 51, [&] {
                              return c.AllToAll(args)->Wait();
                            })));
    }
  }
  const auto gathered = c.Share(RegionKind::kCommon, kLargest, -1);
  if (gathered.ok()) {
    const auto reduced = c.Share(RegionKind::kPerRank, kLargest, -1);
    if (!reduced.ok()) return json(reduced.status().ToString());
    // Pages of the ranks' own, as gradients have touched them before they are reduced.
    std::fill_n(static_cast<float*>((*reduced)->data()), kLargest / sizeof(float), 1.0F);
    MeasureBuffers(c, "region", (*gathered)->data(), (*reduced)->data(), &results);
  }
  double value = 1;
  results.push_back(
      Row("all_reduce", "own", sizeof(value), Time(c, 201, [&] {
            return c.AllReduce(&value, 1, ElementType::kFloat64, ReduceOp::kMax)->Wait();
          })));
  results.push_back(Row("barrier", "own", 0, Time(c, 201, [&] { return c.Barrier(); })));
  return results;
}

// What rank 0 of a gang of its own says.
json RunGang(int ranks, bool shared) {
  testing::Listener listener = testing::Listen();
  std::vector<Child> children;
  for (int r = 0; r < ranks; ++r) {
    children.emplace_back([&, r]() -> std::string {
      setenv(kShmDisableVariable, shared ? "0" : "1", 1);
      const auto c = MakeHostCommunicator();
      const auto start = std::chrono::steady_clock::now();
      const Status formed =
          c->Form(testing::MeetAt(listener, r, ranks), Deadline::After(std::chrono::seconds(30)));
      if (!formed.ok()) return json(formed.ToString()).dump();
      const double form_seconds = ToSeconds(std::chrono::steady_clock::now() - start);
      return json{
          {"transport", c->Describe()}, {"form_seconds", form_seconds}, {"results", Measure(*c)}}
          .dump();
    });
  }
  json said;
  for (std::size_t r = 0; r < children.size(); ++r) {
    const std::string text = children[r].Said();
    if (r == 0) said = json::parse(text, nullptr, false);
  }
  return said;
}

int Run(int ranks) {
  utsname machine{};
  uname(&machine);
  const json report = {{"benchmark", "collectives"},
                       {"ranks", ranks},
                       {"machine",
                        {{"kernel", machine.release},
                         {"arch", machine.machine},
                         {"cores", std::thread::hardware_concurrency()}}},
                       {"shared_memory", RunGang(ranks, true)},
                       {"sockets", RunGang(ranks, false)}};
  std::printf("%s\n", report.dump(1).c_str());
  return report["shared_memory"].is_object() && report["sockets"].is_object() ? 0 : 1;
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
