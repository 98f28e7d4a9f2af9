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

TEST(WorkerMetrics, ShowWhatTheWorkerSeesOfItsNode) {
  WorkerStatus status{.node = "n1"};
  status.sampling = {.pages = 7, .cpu_seconds = 0.25};
  status.probes = {.answered = 1, .refused = 2, .unreachable = 3, .silent = 5, .unknown = 4};
  status.notices[NodeNoticeKind::kXid] = 5;
  status.xids = 6;
  status.oom_kills = 8;
  const std::string text = RenderWorkerMetrics(status, {});
  for (const char* line : {"muster_worker_sampled_pages_total{node=\"n1\"} 7\n",
                           "muster_worker_sampling_cpu_seconds_total{node=\"n1\"} 0.25\n",
                           "muster_worker_probes_total{node=\"n1\",outcome=\"answered\"} 1\n",
                           "muster_worker_probes_total{node=\"n1\",outcome=\"silent\"} 5\n",
                           "muster_worker_probes_total{node=\"n1\",outcome=\"unknown\"} 4\n",
                           "muster_worker_notices_total{node=\"n1\",kind=\"xid\"} 5\n",
                           "muster_worker_xid_events_total{node=\"n1\"} 6\n",
                           "muster_worker_oom_kills_total{node=\"n1\"} 8\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(WorkerMetrics, ShowWhereEachGroupOfARankIs) {
  ProgressSampler::Series series = OneRank();
  series.values.snapshot_step = 40;
  series.values.wait_seconds = 0.5;
  series.collectives = {{"world", 8, 7, 6, 4096, 0}};
  const std::string text = RenderWorkerMetrics({.node = "n1"}, {series});
  const std::string labels = kLabels;
  EXPECT_THAT(text, HasSubstr("muster_train_snapshot_step{" + labels + "} 40\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_wait_seconds_total{" + labels + "} 0.5\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_train_collectives_enqueued{" + labels + ",group=\"world\"} 8\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_train_collectives_completed{" + labels + ",group=\"world\"} 6\n"));
}

TEST(WorkerMetrics, AProcessWithoutAFinishedStepHasNoLoss) {
  ProgressSampler::Series series = OneRank();
  series.values.steps_done = 0;
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1"}, {series}), Not(HasSubstr("muster_train_loss")));
}

TEST(WorkerMetrics, TellWhenTheCertificateExpiresWhereThereIsOne) {
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1"}, {}), Not(HasSubstr("muster_certificate")));
  const std::string text = RenderWorkerMetrics({.node = "n1",
                                                .certificate_not_after_ms = 1'800'000'000'500,
                                                .certificate_renewals = 2,
                                                .certificate_failures = 3},
                                               {});
  EXPECT_THAT(text,
              HasSubstr("muster_certificate_expiry_timestamp_seconds{node=\"n1\"} 1800000000.5\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_certificate_renewals_total{node=\"n1\",result=\"done\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_certificate_renewals_total{node=\"n1\",result=\"failed\"} 3\n"));
}

}  // namespace
}  // namespace muster::worker
