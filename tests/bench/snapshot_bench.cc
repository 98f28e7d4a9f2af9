// What sealing every step costs: engines without snapshots, with the state in a segment, and with a
// copy of it every fourth step, which take turns step by step, so that whatever else the machine
// does falls on all alike.
//
//   snapshot_bench [PRESET [TOKENS [RANKS [STEPS [bf16|fp32]]]]]
//
// Ranks are threads. One JSON object on standard output; times are those of rank 0's thread. The
// stall is the median over the steps of what the engine with snapshots takes longer, as a share of
// the median step without them, and where that median lies with 95 %.
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "tests/parity/gang_run.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/formats/init_model.h"
#include "trainer/fsdp/state_plan.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

using nlohmann::json;

struct BenchOptions {
  std::string preset = "tiny";
  std::int64_t tokens = 1024;  // of a rank's micro-batch
  int ranks = 2;
  int steps = 60;
  MixedPrecision precision = MixedPrecision::kBf16;
};

struct Variant {
  std::string name;
  std::int64_t every = 0;  // 0: without a segment
  std::unique_ptr<Segment> segment;
  std::unique_ptr<FsdpEngine> engine;
  std::vector<double> step_ms;
  std::vector<double> cpu_ms;
  std::vector<double> update_ms;  // of the optimizer and the seal
};

double Milliseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The median of the differences between pairs and where it lies with 95 %, as shares of `whole`.
json MedianDifference(const std::vector<double>& more, const std::vector<double>& less,
                      double whole) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < more.size(); ++i) differences.push_back((more[i] - less[i]) / whole);
  std::sort(differences.begin(), differences.end());
  const auto count = static_cast<double>(differences.size());
  const auto last = static_cast<std::int64_t>(differences.size()) - 1;
  const auto lower = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::floor(count / 2 - 0.98 * std::sqrt(count))) - 1, 0, last);
  return {{"median", Median(differences)},
          {"lower", differences[lower]},
          {"upper", differences[last - lower]}};
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

MicroBatch RandomRow(const ModelConfig& config, std::int64_t tokens, int seed) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  MicroBatch batch{.rows = std::max<std::int64_t>(1, tokens / 256),
                   .length = std::min<std::int64_t>(tokens, 256)};
  for (std::int64_t i = 0; i < batch.rows * batch.length; ++i) {
    batch.input_ids.push_back(static_cast<std::int64_t>(random() % config.vocab_size));
    batch.labels.push_back(static_cast<std::int64_t>(random() % config.vocab_size));
  }
  batch.label_count = batch.rows * batch.length;
  return batch;
}

void MakeEngine(const ModelConfig& config, Communicator& communicator, DeviceOps& ops,
                const BenchOptions& bench, Variant* variant) {
  FsdpOptions options;
  options.precision = ResolvePrecision({.mixed_precision = bench.precision}, {});
  options.ranks_per_node = communicator.size();
  if (variant->every > 0) {
    auto plan = PlanSegment("bench", config, options,
                            {.rank = communicator.rank(), .world_size = communicator.size()});
    MUSTER_CHECK(plan.ok(), plan.status().ToString());
    auto segment = Segment::Create(*std::move(plan), 1);
    MUSTER_CHECK(segment.ok(), segment.status().ToString());
    variant->segment = *std::move(segment);
    options.segment = variant->segment.get();
    options.snapshot_every = variant->every;
  }
  auto engine = FsdpEngine::Create(config, communicator, ops, std::move(options));
  MUSTER_CHECK(engine.ok(), engine.status().ToString());
  variant->engine = *std::move(engine);
  parity::LoadRandomWeights(config, *variant->engine);
  variant->engine->WeightsLoaded();
  variant->engine->Seal({});
}

void Step(Variant& variant, const MicroBatch& batch, int ranks, int step) {
  const double wall = Milliseconds(CLOCK_MONOTONIC);
  const double cpu = Milliseconds(CLOCK_THREAD_CPUTIME_ID);
  const double scale = 1.0 / (static_cast<double>(batch.label_count) * ranks);
  MUSTER_CHECK(variant.engine->ForwardBackward(batch, scale, true).ok(), "forward and backward");
  MUSTER_CHECK(variant.engine->FinishGradients().ok(), "the sums of a step");
  const double update = Milliseconds(CLOCK_MONOTONIC);
  variant.engine->OptimizerStep(step, 1e-4);
  variant.engine->Seal({.step = step, .samples = step});
  if (step <= 3) return;  // warm
  variant.update_ms.push_back(Milliseconds(CLOCK_MONOTONIC) - update);
  variant.step_ms.push_back(Milliseconds(CLOCK_MONOTONIC) - wall);
  variant.cpu_ms.push_back(Milliseconds(CLOCK_THREAD_CPUTIME_ID) - cpu);
}

json RunRank(Communicator& communicator, const ModelConfig& config, const BenchOptions& options) {
  at::set_num_threads(1);
  const auto ops = MakeCpuOps();
  std::vector<Variant> variants(3);
  variants[0].name = "without";
  variants[1] = {.name = "every_step", .every = 1};
  variants[2] = {.name = "every_4th_step_copied", .every = 4};
  for (Variant& variant : variants) MakeEngine(config, communicator, *ops, options, &variant);
  for (int step = 1; step <= options.steps + 3; ++step) {
    const MicroBatch batch =
        RandomRow(config, options.tokens, step * communicator.size() + communicator.rank());
    for (Variant& variant : variants) Step(variant, batch, communicator.size(), step);
  }
  (void)communicator.Barrier();
  const auto slot_bytes = static_cast<double>(variants[1].segment->slot_bytes());
  json report = {{"parameters", variants[0].engine->layout().parameter_count()},
                 {"state_bytes", variants[1].segment->slot_bytes()},
                 {"state_at_20_gb_s_ms", slot_bytes / 20e9 * 1e3}};
  for (const Variant& variant : variants) {
    report["variants"].push_back({{"name", variant.name},
                                  {"step_ms_median", Median(variant.step_ms)},
                                  {"update_ms_median", Median(variant.update_ms)},
                                  {"cpu_ms_median", Median(variant.cpu_ms)},
                                  {"cpu_ms_mean", Mean(variant.cpu_ms)}});
  }
  const auto more = [&](std::vector<double> Variant::*times, double whole) {
    return MedianDifference(variants[1].*times, variants[0].*times, whole);
  };
  const double step = Median(variants[0].step_ms);
  report["stall_of_step"] = more(&Variant::step_ms, step);
  report["stall_of_cpu_time"] = more(&Variant::cpu_ms, Median(variants[0].cpu_ms));
  report["stall_of_update"] = more(&Variant::update_ms, step);
  return report;
}

int Run(const BenchOptions& options) {
  const Result<ModelConfig> config = PresetConfig(options.preset);
  if (!config.ok()) {
    std::fprintf(stderr, "snapshot_bench: %s\n", config.status().message().c_str());
    return 2;
  }
  InProcessGroup group(options.ranks);
  std::vector<json> reports(options.ranks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> communicator = group.Join(rank);
      const Status formed =
          communicator->Form({.generation = 1, .rank = rank, .world_size = options.ranks},
                             Deadline::After(std::chrono::seconds(60)));
      MUSTER_CHECK(formed.ok(), formed.ToString());
      reports[rank] = RunRank(*communicator, *config, options);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  json report = {{"benchmark", "snapshots"},
                 {"preset", options.preset},
                 {"tokens", options.tokens},
                 {"ranks", options.ranks},
                 {"steps", options.steps},
                 {"precision", options.precision == MixedPrecision::kFp32 ? "fp32" : "bf16"}};
  report.update(reports[0]);
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::BenchOptions options;
  if (argc > 1) options.preset = argv[1];
  if (argc > 2) options.tokens = std::atoll(argv[2]);
  if (argc > 3) options.ranks = std::atoi(argv[3]);
  if (argc > 4) options.steps = std::atoi(argv[4]);
  const std::string_view precision = argc > 5 ? argv[5] : "bf16";
  if (precision == "fp32") options.precision = muster::MixedPrecision::kFp32;
  if (options.tokens < 1 || options.ranks < 1 || options.steps < 1 ||
      (precision != "bf16" && precision != "fp32")) {
    std::fprintf(stderr, "usage: snapshot_bench [PRESET [TOKENS [RANKS [STEPS [bf16|fp32]]]]]\n");
    return 2;
  }
  return muster::Run(options);
}
