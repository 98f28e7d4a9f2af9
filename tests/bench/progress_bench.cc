// What the progress page costs a rank, accounted, as JSON: the processor time of all that a step
// stores into it and of the look at its own memory, measured alone, as a share of a step's own
// processor time.
//
//   progress_bench [MICRO_BATCHES [OPERATIONS]]      default 4 and 200
//
// A step enters its phases and counts its collectives as the trainer does: MICRO_BATCHES
// micro-batches of three phases, the optimizer, and OPERATIONS collectives. The share is that of a
// step of 50 ms on one core; `nanoseconds` is the least of many repetitions.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>

#include "common/base/json.h"
#include "trainer/comm/transport.h"
#include "trainer/report/progress_reporter.h"

namespace muster {
namespace {

constexpr double kStepSeconds = 0.05;
constexpr double kTarget = 0.001;
constexpr int kRepetitions = 2000;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Nanoseconds(const std::function<void()>& work) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kRepetitions; ++i) {
    const double begin = ThreadSeconds();
    work();
    least = std::min(least, ThreadSeconds() - begin);
  }
  return least * 1e9;
}

void StorePhases(ProgressReporter& reporter, int micro_batches) {
  reporter.EnterPhase(TrainPhase::kData);
  for (int m = 0; m < micro_batches; ++m) {
    reporter.StartMicroBatch(m);
    reporter.EnterPhase(TrainPhase::kForward);
    reporter.EnterPhase(TrainPhase::kBackward);
  }
  reporter.EnterPhase(TrainPhase::kOptimizer);
  reporter.FinishStep(
      {.step = 1, .loss = 2, .step_seconds = kStepSeconds, .rss_bytes = ResidentBytes()},
      {.tokens = 4096});
  reporter.SetSnapshotStep(1);
}

void CountOperations(CollectiveCell& cell, int operations) {
  for (int i = 0; i < operations; ++i) {
    for (auto* count : {&cell.enqueued, &cell.started, &cell.completed, &cell.bytes}) {
      count->fetch_add(1, std::memory_order_relaxed);
    }
    const WaitTimer timer(cell);
  }
}

int Run(int micro_batches, int operations) {
  auto fd = CreateProgressPage();
  if (!fd.ok()) return 1;
  auto mapped = ProgressWriter::Map(fd->get());
  auto reader = ProgressReader::Map(fd->get());
  auto figures = FiguresWriter::Map(fd->get());
  if (!mapped.ok() || !reader.ok() || !figures.ok()) return 1;
  const std::shared_ptr<ProgressWriter> page = *std::move(mapped);
  ProgressReporter reporter(page, SystemClock(), *std::move(figures));
  const auto cell = ClaimCell(page, "world");
  const std::uint64_t before = (*reader)->stores();
  StorePhases(reporter, micro_batches);
  const std::uint64_t stores = ((*reader)->stores() - before) / 2;
  const double phases = Nanoseconds([&] { StorePhases(reporter, micro_batches); });
  const double counts = Nanoseconds([&] { CountOperations(*cell, operations); });
  const double share = (phases + counts) * 1e-9 / kStepSeconds;
  const nlohmann::json report = {{"benchmark", "progress_page"},
                                 {"micro_batches", micro_batches},
                                 {"values", {{"stores", stores}, {"nanoseconds", phases}}},
                                 {"counts", {{"operations", operations}, {"nanoseconds", counts}}},
                                 {"step_seconds", kStepSeconds},
                                 {"share", share},
                                 {"target", kTarget},
                                 {"met", share < kTarget}};
  std::printf("%s\n", report.dump(2).c_str());
  return share < kTarget ? 0 : 1;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int micro_batches = argc > 1 ? std::atoi(argv[1]) : 4;
  const int operations = argc > 2 ? std::atoi(argv[2]) : 200;
  return muster::Run(micro_batches, operations);
}
