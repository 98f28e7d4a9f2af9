// What /metrics of a worker with many ranks costs, as JSON: processor time to make the text, its
// size, and the series in it.
//
//   metrics_bench [RANKS]      default 1000
//
// Each rank has what a rank on a GPU has: histograms, phases, two groups of collectives, which are
// more series than the target speaks of: 100 ms for 1,000 ranks of 60 series. So the median of
// several times is given as it is, and for as many series as the target's.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/base/json.h"
#include "worker/service/metrics.h"

namespace muster::worker {
namespace {

constexpr int kRepetitions = 15;
constexpr double kTargetSeconds = 0.1;
constexpr double kTargetSeries = 60'000;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Values with all their digits, as they are in life.
ProgressSampler::Series OneRank(int rank) {
  const double noise = 0.123456789 * (rank + 1);
  ProgressSampler::Series series{
      .job = {"00c0ffee00"}, .job_name = "llama-8b", .generation = 3, .rank = rank};
  series.values.step = 12345;
  series.values.steps_done = 2345;
  series.values.loss = 1 + noise;
  series.values.grad_norm = noise;
  series.values.learning_rate = 1e-5 * noise;
  series.values.rss_bytes = 12'345'678'901;
  series.figures.mfu = 0.4123456;
  series.figures.last_step_unix_ms = 1'700'000'000'123;
  series.figures.device = {.capacity = 85'000'000'000, .reserved = 70'123'456'789};
  series.totals.steps = 12345;
  series.totals.tokens = 123'456'789'012;
  series.totals.samples = 12'345'678;
  series.totals.flops = 1.23456789e21;
  series.totals.step_seconds_sum = 1e4 * noise;
  series.totals.step_seconds_buckets[8] = 12000;
  series.totals.step_seconds_buckets[9] = 345;
  series.totals.part_seconds.fill(1e3 * noise);
  series.totals.time_seconds.fill(1e3 * noise);
  series.totals.write.Observe(12.5);
  series.totals.collectives.fill(1'234'567);
  for (const char* group : {"world", "shard"}) {
    series.collectives.push_back({group, 123'456, 123'456, 123'455, 1'234'567'890, 0});
  }
  return series;
}

int Run(int ranks) {
  std::vector<ProgressSampler::Series> series;
  for (int rank = 0; rank < ranks; ++rank) series.push_back(OneRank(rank));
  const WorkerStatus status{.node = "node-1"};
  std::vector<double> seconds;
  std::string text;
  for (int i = 0; i < kRepetitions; ++i) {
    const double begin = ThreadSeconds();
    text = RenderWorkerMetrics(status, series);
    seconds.push_back(ThreadSeconds() - begin);
  }
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find("\nmuster_", at)) != std::string::npos; ++at) ++lines;
  const double of_target = median * kTargetSeries / static_cast<double>(lines);
  const bool met = of_target <= kTargetSeconds;
  const nlohmann::json report = {{"benchmark", "metrics"},
                                 {"ranks", ranks},
                                 {"series", lines},
                                 {"bytes", text.size()},
                                 {"seconds", median},
                                 {"seconds_60000_series", of_target},
                                 {"target_seconds", kTargetSeconds},
                                 {"met", met}};
  std::printf("%s\n", report.dump(2).c_str());
  return met ? 0 : 1;
}

}  // namespace
}  // namespace muster::worker

int main(int argc, char** argv) {
  return muster::worker::Run(argc > 1 ? std::atoi(argv[1]) : 1000);
}
