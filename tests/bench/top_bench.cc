// What one picture of `muster top` takes, as JSON: a job's page from an answer of the coordinator
// to the bytes for the terminal, at 200 columns and 60 rows.
//
//   top_bench [RANKS]      default 1000
//
// Every picture differs from the one before: each rank has finished a step more. Median and worst
// of many.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cli/top/terminal_screen.h"
#include "cli/top/top_view.h"
#include "common/base/json.h"

namespace muster {
namespace {

constexpr int kPictures = 200;
constexpr double kTargetMilliseconds = 20;
constexpr std::int64_t kBegin = 1'700'000'000'000;

v1::Job JobOf(int ranks, int step) {
  v1::Job job;
  job.set_id("7f3a9c1e2b");
  job.set_name("bench");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_step(step);
  job.set_max_steps(10 * kPictures);
  job.set_loss(10.0 / step);
  for (int r = 0; r < ranks; ++r) {
    auto* rank = job.add_ranks();
    rank->set_rank(r);
    rank->set_node("node-" + std::to_string(r / 8));
    rank->set_state(v1::RANK_STATE_RUNNING);
    auto* progress = job.add_progress();
    progress->set_rank(r);
    progress->set_step(step);
    progress->set_phase(v1::TRAIN_PHASE_BACKWARD);
    progress->set_step_seconds(1 + 0.001 * (step % 7));
    progress->set_busy_seconds(step + 0.001 * r);
    progress->set_steps_done(step);
    progress->set_rss_bytes(1'000'000'000u + static_cast<unsigned>(r * step));
  }
  return job;
}

int Run(int ranks) {
  TopModel model;
  model.cluster = "bench";
  std::vector<std::string> shown;
  std::vector<double> milliseconds;
  std::size_t bytes = 0;
  for (int step = 1; step <= kPictures; ++step) {
    v1::Job job = JobOf(ranks, step);
    v1::ListJobsResponse jobs;
    *jobs.add_jobs() = job;
    const auto begin = std::chrono::steady_clock::now();
    model.SetJobs(std::move(jobs), kBegin + 1000 * step);
    model.SetOpen(std::move(job), kBegin + 1000 * step);
    auto lines = JobLines(model, {.columns = 200, .rows = 60, .color = true});
    bytes += RedrawText(shown, lines).size();
    shown = std::move(lines);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    milliseconds.push_back(took.count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = milliseconds[milliseconds.size() / 2];
  const nlohmann::ordered_json result = {{"benchmark", "top"},
                                         {"ranks", ranks},
                                         {"median_ms", median},
                                         {"worst_ms", milliseconds.back()},
                                         {"bytes_per_picture", bytes / kPictures},
                                         {"target_ms", kTargetMilliseconds},
                                         {"reached", median <= kTargetMilliseconds}};
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Run(argc > 1 ? std::atoi(argv[1]) : 1000); }
