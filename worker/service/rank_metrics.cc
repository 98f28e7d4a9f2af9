#include "worker/service/rank_metrics.h"

#include <string_view>
#include <tuple>
#include <utility>

namespace muster::worker {
namespace {

void AddSteps(const MetricLabels& labels, const RankTotals& totals, MetricFamilies* out) {
  out->Histogram("muster_train_step_duration_seconds", "Wall time of a step, 1 ms to 600 s.")
      .AddHistogram(labels, kStepSecondsBounds, totals.step_seconds_buckets,
                    totals.step_seconds_sum);
  out->Counter("muster_train_steps_total", "Steps that this rank has finished.")
      .Add(labels, static_cast<double>(totals.steps));
  out->Counter("muster_train_tokens_total",
               "Tokens with a label that the whole job has trained on; each rank reports them, so "
               "take the largest.")
      .Add(labels, static_cast<double>(totals.tokens));
  out->Counter(
         "muster_train_samples_total",
         "Rows that the whole job has trained on; each rank reports them, so take the largest.")
      .Add(labels, static_cast<double>(totals.samples));
  // Only rank 0 computes them.
  if (totals.flops > 0)
    out->Counter("muster_train_flops_total",
                 "Operations of the model that the whole job has done; of rank 0 alone.")
        .Add(labels, totals.flops);
  out->Counter("muster_train_nonfinite_total", "Steps whose loss or gradient is not finite.")
      .Add(labels, static_cast<double>(totals.nonfinite));
  out->Counter("muster_train_wait_seconds_total", "Time in finished steps that waited for peers.")
      .Add(labels, totals.wait_seconds);
}

void AddTimes(const MetricLabels& labels, const RankTotals& totals, MetricFamilies* out) {
  auto& parts = out->Counter("muster_train_step_phase_seconds_total",
                             "Time of this rank in training, by what it was doing; comm_wait is "
                             "taken off the phase that waited.");
  for (std::size_t i = 0; i < kStepPartCount; ++i)
    parts.Add(labels.With("phase", StepPartName(static_cast<StepPart>(i))), totals.part_seconds[i]);
  auto& times = out->Counter("muster_train_time_seconds_total",
                             "Time of this rank, by what the job got for it: recompute is steps "
                             "that had been finished before, wait is waiting in the others.");
  for (std::size_t i = 0; i < kRankTimeCount; ++i)
    times.Add(labels.With("category", RankTimeName(static_cast<RankTime>(i))),
              totals.time_seconds[i]);
}

void AddCheckpoints(const MetricLabels& labels, const RankTotals& totals, MetricFamilies* out) {
  auto& duration = out->Histogram("muster_checkpoint_duration_seconds",
                                  "Time of a checkpoint's phases. stage: the copy, for which "
                                  "training waits; write: until the shard is durable.");
  const std::pair<const char*, const SaveSeconds&> phases[] = {{"stage", totals.stage},
                                                               {"write", totals.write}};
  for (const auto& [phase, seconds] : phases)
    duration.AddHistogram(labels.With("phase", phase), kSaveSecondsBounds, seconds.buckets,
                          seconds.sum);
  out->Counter("muster_checkpoint_bytes_total", "Bytes of shards that this rank has made durable.")
      .Add(labels, static_cast<double>(totals.checkpoint_bytes));
}

// Before its first finished step a process has none of these, and 0 would look like a value.
void AddModel(const MetricLabels& labels, const ProgressSampler::Series& rank,
              MetricFamilies* out) {
  if (rank.values.steps_done == 0) return;
  out->Gauge("muster_train_loss", "Loss of the newest finished step, over the whole job.")
      .Add(labels, rank.values.loss);
  out->Gauge("muster_train_grad_norm",
             "Gradient norm of the newest finished step before clipping, over the whole job.")
      .Add(labels, rank.values.grad_norm);
  out->Gauge("muster_train_learning_rate", "Learning rate of the newest finished step.")
      .Add(labels, rank.values.learning_rate);
  if (rank.figures.mfu > 0)
    out->Gauge("muster_train_mfu_ratio",
               "Share of the devices' peak that the newest step used; of rank 0 alone, where the "
               "peak is known.")
        .Add(labels, rank.figures.mfu);
  if (rank.figures.last_step_unix_ms > 0)
    out->Gauge("muster_train_last_step_timestamp_seconds",
               "When the newest step was finished, in Unix time.")
        .Add(labels, static_cast<double>(rank.figures.last_step_unix_ms) / 1000);
}

// Only models with experts have them.
void AddRouters(const MetricLabels& labels, const RouterFigures& routers, MetricFamilies* out) {
  if (routers.experts == 0) return;
  auto& shares = out->Gauge("muster_train_expert_share_ratio",
                            "Share of a layer's choices that fell on one expert in the newest "
                            "step: the largest and the smallest of all layers.");
  shares.Add(labels.With("bound", "largest"), routers.largest_share);
  shares.Add(labels.With("bound", "smallest"), routers.smallest_share);
  out->Gauge(
         "muster_train_router_entropy_ratio",
         "Entropy of the experts' shares in the most uneven layer of the newest step, over that "
         "of even shares: 1 is even, 0 is one expert.")
      .Add(labels, routers.entropy);
  out->Gauge("muster_train_idle_experts",
             "Experts that no token was given in the newest step, counted in each layer.")
      .Add(labels, static_cast<double>(routers.idle));
}

// The parts of a step change faster than any scrape, and have counters.
std::string_view SettledPhase(TrainPhase phase) {
  switch (phase) {
    case TrainPhase::kData:
    case TrainPhase::kForward:
    case TrainPhase::kBackward:
    case TrainPhase::kOptimizer: return "step";
    default: return TrainPhaseName(phase);
  }
}

void AddState(const MetricLabels& labels, const ProgressSampler::Series& rank,
              MetricFamilies* out) {
  out->Gauge("muster_train_phase",
             "Always 1; the label says what the rank is doing. The parts of a step are one.")
      .Add(labels.With("phase", SettledPhase(rank.values.phase)), 1);
  out->Gauge("muster_train_last_step", "Newest finished step.")
      .Add(labels, static_cast<double>(rank.values.step));
  out->Gauge("muster_train_snapshot_step", "Newest sealed snapshot; -1: none.")
      .Add(labels, static_cast<double>(rank.values.snapshot_step));
  out->Gauge("muster_host_rss_bytes", "Resident memory of this rank's process.")
      .Add(labels, static_cast<double>(rank.values.rss_bytes));
  out->Gauge("muster_nccl_inflight_seconds",
             "For how long no collective has ended while one was under way; 0: none is.")
      .Add(labels, rank.inflight_seconds);
}

void AddCollectives(const MetricLabels& counters, const MetricLabels& gauges,
                    const ProgressSampler::Series& rank, MetricFamilies* out) {
  auto& issued =
      out->Counter("muster_nccl_collectives_total",
                   "Collectives that this rank has issued, by operation, in all its groups.");
  for (std::size_t i = 0; i < kCollectiveOpCount; ++i)
    issued.Add(counters.With("op", CollectiveOpName(static_cast<CollectiveOp>(i))),
               static_cast<double>(rank.totals.collectives[i]));
  auto& errors = out->Counter("muster_nccl_async_errors_total",
                              "Attempts that a failed collective ended, as this rank met it.");
  for (std::size_t i = 0; i < kCollectiveErrorCount; ++i)
    errors.Add(counters.With("kind", CollectiveErrorName(static_cast<CollectiveError>(i))),
               static_cast<double>(rank.totals.collective_errors[i]));
  out->Counter(
         "muster_train_socket_fallbacks_total",
         "Groups of ranks that use sockets although they are on one host or, with NCCL, the node "
         "has RDMA; counted by their first rank. The event of the attempt has the reason.")
      .Add(counters, static_cast<double>(rank.totals.socket_fallbacks));
  for (const CollectiveCounts& counts : rank.collectives) {
    const MetricLabels labels = gauges.With("comm", counts.group);
    out->Gauge("muster_nccl_seq",
               "Number of the newest collective that this group was given; from zero when the "
               "group forms, so that ranks compare.")
        .Add(labels, static_cast<double>(counts.enqueued));
    out->Gauge("muster_nccl_completed_seq", "Number of the newest of them that has ended.")
        .Add(labels, static_cast<double>(counts.completed));
    out->Gauge("muster_nccl_bytes",
               "Bytes sent to peers or read from their memory since the group formed.")
        .Add(labels, static_cast<double>(counts.bytes));
  }
}

void AddCuda(const MetricLabels& counters, const MetricLabels& gauges,
             const ProgressSampler::Series& rank, MetricFamilies* out) {
  const DeviceMemory& device = rank.figures.device;
  if (device.capacity == 0) return;
  auto& now = out->Gauge("muster_cuda_memory_bytes",
                         "Memory of LibTorch's allocator on the rank's GPU; reserved is all that "
                         "is in use on the device where that is more.");
  auto& peak =
      out->Gauge("muster_cuda_memory_peak_bytes", "The most of it since the process started.");
  const std::tuple<const char*, std::uint64_t, std::uint64_t> states[] = {
      {"active", device.active, device.peak_active},
      {"allocated", device.allocated, device.peak_allocated},
      {"reserved", device.reserved, device.peak_reserved}};
  for (const auto& [state, bytes, most] : states) {
    now.Add(gauges.With("state", state), static_cast<double>(bytes));
    peak.Add(gauges.With("state", state), static_cast<double>(most));
  }
  out->Gauge("muster_cuda_memory_capacity_bytes", "Memory of the rank's GPU.")
      .Add(gauges, static_cast<double>(device.capacity));
  out->Counter("muster_cuda_alloc_retries_total",
               "Allocations that needed cached memory to be given back.")
      .Add(counters, static_cast<double>(rank.totals.alloc_retries));
  out->Counter("muster_cuda_ooms_total", "Allocations that failed.")
      .Add(counters, static_cast<double>(rank.totals.ooms));
}

}  // namespace

void AddRankMetrics(const std::string& node, const ProgressSampler::Series& rank,
                    MetricFamilies* out) {
  const MetricLabels counters = {{"job_id", rank.job.value},
                                 {"name", rank.job_name},
                                 {"node", node},
                                 {"rank", std::to_string(rank.rank)}};
  const MetricLabels gauges = counters.With("attempt", std::to_string(rank.generation));
  AddSteps(counters, rank.totals, out);
  AddTimes(counters, rank.totals, out);
  AddCheckpoints(counters, rank.totals, out);
  AddModel(gauges, rank, out);
  AddRouters(gauges, rank.figures.routers, out);
  AddState(gauges, rank, out);
  AddCollectives(counters, gauges, rank, out);
  AddCuda(counters, gauges, rank, out);
}

}  // namespace muster::worker
