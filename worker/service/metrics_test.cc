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
  series.totals.steps = 5;
  series.totals.step_seconds_buckets[3] = 5;
  series.totals.step_seconds_sum = 0.25;
  series.totals.part_seconds[static_cast<int>(StepPart::kForward)] = 0.125;
  return series;
}

constexpr char kCounter[] = R"(job_id="00c0ffee00",name="chat",node="n1",rank="1")";
constexpr char kLabels[] = R"(job_id="00c0ffee00",name="chat",node="n1",rank="1",attempt="2")";

TEST(WorkerMetrics, AWorkerThatIsRefusedForItsVersionReportsIt) {
  const char* name = "muster_worker_version_refused{node=\"n1\"}";
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1", .version_refused = true}, {}),
              HasSubstr(std::string(name) + " 1\n"));
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1"}, {}), HasSubstr(std::string(name) + " 0\n"));
}

TEST(WorkerMetrics, ShowEveryRankUnderItsLabels) {
  const std::string text = RenderWorkerMetrics({.node = "n1", .slots = 4}, {OneRank()});
  const std::string labels = kLabels;
  EXPECT_THAT(text, HasSubstr("muster_train_last_step{" + labels + "} 41\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_loss{" + labels + "} 1.5\n"));
  const std::string counter = kCounter;
  EXPECT_THAT(text, HasSubstr("muster_train_steps_total{" + counter + "} 5\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_duration_seconds_count{" + counter + "} 5\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_duration_seconds_bucket{" + counter +
                              ",le=\"0.005\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_duration_seconds_bucket{" + counter +
                              ",le=\"0.01\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_step_phase_seconds_total{" + counter +
                              ",phase=\"forward\"} 0.125\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_slots{node=\"n1\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("muster_build_info{"));
}

TEST(WorkerMetrics, SayWhatARankIsDoing) {
  const auto shown = [](TrainPhase phase) {
    ProgressSampler::Series rank = OneRank();
    rank.values.phase = phase;
    return RenderWorkerMetrics({.node = "n1"}, {rank});
  };
  const std::string family = "muster_train_phase{" + std::string(kLabels) + ",phase=";
  EXPECT_THAT(shown(TrainPhase::kEvaluating), HasSubstr(family + "\"evaluating\"} 1\n"));
  EXPECT_THAT(shown(TrainPhase::kExporting), HasSubstr(family + "\"exporting\"} 1\n"));
  for (const TrainPhase part :
       {TrainPhase::kData, TrainPhase::kForward, TrainPhase::kBackward, TrainPhase::kOptimizer})
    EXPECT_THAT(shown(part), HasSubstr(family + "\"step\"} 1\n"));
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
  series.totals.wait_seconds = 0.5;
  series.totals.collectives[static_cast<int>(CollectiveOp::kAllGather)] = 106;
  series.totals.socket_fallbacks = 2;
  series.collectives = {{"world", 8, 7, 6, 4096, 0}};
  series.inflight_seconds = 2.5;
  series.totals.collective_errors[static_cast<int>(CollectiveError::kPeerLost)] = 3;
  const std::string text = RenderWorkerMetrics({.node = "n1"}, {series});
  const std::string labels = kLabels, counter = kCounter;
  EXPECT_THAT(text, HasSubstr("muster_train_snapshot_step{" + labels + "} 40\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_wait_seconds_total{" + counter + "} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("muster_nccl_seq{" + labels + ",comm=\"world\"} 8\n"));
  EXPECT_THAT(text, HasSubstr("muster_nccl_completed_seq{" + labels + ",comm=\"world\"} 6\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_nccl_collectives_total{" + counter + ",op=\"all_gather\"} 106\n"));
  EXPECT_THAT(text, HasSubstr("muster_nccl_collectives_total{" + counter + ",op=\"barrier\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_socket_fallbacks_total{" + counter + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("muster_nccl_inflight_seconds{" + labels + "} 2.5\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_nccl_async_errors_total{" + counter + ",kind=\"peer_lost\"} 3\n"));
}

TEST(WorkerMetrics, ShowWhatARankHasDoneAndSaved) {
  ProgressSampler::Series series = OneRank();
  series.totals.samples = 64;
  series.totals.flops = 4e12;
  series.totals.time_seconds[static_cast<int>(RankTime::kRecompute)] = 1.5;
  series.totals.write.Observe(2);
  series.totals.checkpoint_bytes = 4096;
  series.figures.mfu = 0.41;
  series.figures.last_step_unix_ms = 1'700'000'000'500;
  const std::string text = RenderWorkerMetrics({.node = "n1"}, {series});
  const std::string labels = kLabels, counter = kCounter;
  EXPECT_THAT(text, HasSubstr("muster_train_samples_total{" + counter + "} 64\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_flops_total{" + counter + "} 4000000000000\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_time_seconds_total{" + counter +
                              ",category=\"recompute\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("muster_checkpoint_duration_seconds_bucket{" + counter +
                              ",phase=\"write\",le=\"3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_checkpoint_bytes_total{" + counter + "} 4096\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_mfu_ratio{" + labels + "} 0.41\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_train_last_step_timestamp_seconds{" + labels + "} 1700000000.5\n"));
}

TEST(WorkerMetrics, ShowTheLoadsOfExpertsWhereAModelHasSome) {
  ProgressSampler::Series series = OneRank();
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1"}, {series}), Not(HasSubstr("expert")));
  series.figures.routers = {.experts = 8, .largest_share = 0.5, .entropy = 0.75, .idle = 3};
  const std::string text = RenderWorkerMetrics({.node = "n1"}, {series});
  const std::string labels = kLabels, share = "muster_train_expert_share_ratio{" + labels;
  EXPECT_THAT(text, HasSubstr(share + ",bound=\"largest\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr(share + ",bound=\"smallest\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_router_entropy_ratio{" + labels + "} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_idle_experts{" + labels + "} 3\n"));
}

TEST(WorkerMetrics, ShowAGpusMemoryWhereARankHasOne) {
  ProgressSampler::Series series = OneRank();
  EXPECT_THAT(RenderWorkerMetrics({.node = "n1"}, {series}), Not(HasSubstr("muster_cuda")));
  series.figures.device = {.capacity = 100, .reserved = 60, .peak_reserved = 80};
  series.totals.ooms = 2;
  const std::string text = RenderWorkerMetrics({.node = "n1"}, {series});
  const std::string labels = kLabels, counter = kCounter;
  EXPECT_THAT(text, HasSubstr("muster_cuda_memory_bytes{" + labels + ",state=\"reserved\"} 60\n"));
  EXPECT_THAT(text,
              HasSubstr("muster_cuda_memory_peak_bytes{" + labels + ",state=\"reserved\"} 80\n"));
  EXPECT_THAT(text, HasSubstr("muster_cuda_memory_capacity_bytes{" + labels + "} 100\n"));
  EXPECT_THAT(text, HasSubstr("muster_cuda_ooms_total{" + counter + "} 2\n"));
}

TEST(WorkerMetrics, ShowTheNodesGpus) {
  WorkerStatus status{.node = "n1", .slurm_job_id = "4711"};
  status.gpus = {{.index = 0, .uuid = "GPU-1", .utilization = 0.5, .sm_clock_hertz = 1.98e9},
                 {.index = 1, .uuid = "GPU-2"}};
  const std::string text = RenderWorkerMetrics(status, {});
  EXPECT_THAT(
      text, HasSubstr(R"(muster_gpu_info{node="n1",gpu="1",uuid="GPU-2",slurm_job_id="4711"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_gpu_utilization_ratio{node="n1",gpu="0"} 0.5)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_gpu_sm_clock_hertz{node="n1",gpu="0"} 1980000000)"));
  EXPECT_THAT(text, Not(HasSubstr(R"(muster_gpu_utilization_ratio{node="n1",gpu="1"})")));
  status.gpu_basics = false;
  EXPECT_THAT(RenderWorkerMetrics(status, {}), Not(HasSubstr("muster_gpu_utilization_ratio")));
  EXPECT_THAT(RenderWorkerMetrics(status, {}), HasSubstr("muster_gpu_info"));
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
