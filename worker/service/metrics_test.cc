#include "worker/service/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

ProgressSampler::Series OneRank() {
  ProgressSampler::Series series{
      .job = {"00c0ffee00"}, .job_name = "chat", .generation = 2, .rank = 1};
  series.values.step = 41;
  series.values.steps_done = 2;
  series.values.loss = 1.5;
  series.values.step_seconds_buckets[3] = 2;
  series.values.step_seconds_sum = 0.25;
  series.values.phase_seconds[static_cast<int>(TrainPhase::kForward)] = 0.125;
  return series;
}

constexpr char kLabels[] = R"(run="00c0ffee00",name="chat",attempt="2",node="n1",rank="1")";

TEST(WorkerMetrics, ShowEveryRankUnderItsLabels) {
  const std::string text = RenderWorkerMetrics({.node = "n1", .slots = 4}, {OneRank()});
  const std::string labels = kLabels;
  EXPECT_THAT(text, HasSubstr("muster_train_last_step{" + labels + "} 41\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_loss{" + labels + "} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_steps_total{" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_duration_seconds_count{" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_duration_seconds_bucket{" + labels +
                              ",le=\"0.005\"} 0\n"));
  EXPECT_THAT(
      text, HasSubstr("muster_train_step_duration_seconds_bucket{" + labels + ",le=\"0.01\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_phase_seconds_total{" + labels +
                              ",phase=\"forward\"} 0.125\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_slots{node=\"n1\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("muster_build_info{"));
}

TEST(WorkerMetrics, AProcessWithoutAFinishedStepHasNoLoss) {
  ProgressSampler::Series series = OneRank();
  series.values.steps_done = 0;
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1"}, {series}), Not(HasSubstr("muster_train_loss")));
}

}  // namespace
}  // namespace muster::worker
