#include "coordinator/queue_metrics.h"

#include <string>

namespace muster {
namespace {

void AddAmounts(const MetricLabels& queue, const char* kind, const Amounts& amounts,
                MetricFamilies* out) {
  const MetricLabels labels = queue.With("kind", kind);
  if (amounts.gpus != kNoCeiling)
    out->Gauge(
           "muster_queue_gpus",
           "GPUs of a queue and all below it: in use, at least, at most; no ceiling has no sample.")
        .Add(labels, amounts.gpus);
  if (amounts.slots != kNoCeiling)
    out->Gauge("muster_queue_slots",
               "Slots of a queue and all below it: in use, at least, at most; no ceiling has no "
               "sample.")
        .Add(labels, amounts.slots);
}

}  // namespace

void AddQueueMetrics(const QueuesView& queues, MetricFamilies* out) {
  auto& jobs = out->Gauge("muster_queue_jobs",
                          "Jobs of a queue and all below it that have a gang, or wait for one.");
  auto& share =
      out->Gauge("muster_queue_share", "Part of the cluster that is a queue's by weights.");
  auto& had = out->Gauge("muster_queue_usage_share",
                         "Part of what the cluster's jobs have had, decayed, that a queue's had.");
  for (std::size_t i = 0; i < queues.queues.size(); ++i) {
    const QueueSpec& spec = queues.tree->queues[i];
    const QueueView& has = queues.queues[i];
    const MetricLabels queue = {{"queue", spec.name}};
    AddAmounts(queue, "used", has.used, out);
    AddAmounts(queue, "guarantee", spec.guarantee, out);
    AddAmounts(queue, "ceiling", spec.ceiling, out);
    jobs.Add(queue.With("state", "running"), has.running);
    jobs.Add(queue.With("state", "waiting"), has.waiting);
    share.Add(queue, has.share);
    had.Add(queue, has.usage_share);
  }
}

void AddQueueUsage(const QueueTotals& totals, MetricFamilies* out) {
  auto& gpus = out->Counter("muster_queue_gpu_seconds_total",
                            "Seconds of GPUs that the ranks of a queue's own jobs had, and for "
                            "what; also of queues that are gone, as long as their days are kept.");
  auto& slots = out->Counter("muster_queue_slot_seconds_total",
                             "Seconds of slots that the ranks of a queue's own jobs had, and for "
                             "what; also of queues that are gone, as long as their days are kept.");
  const auto add = [](auto& family, const MetricLabels& queue, const UsedMicros& used) {
    const double productive = static_cast<double>(used.productive) / 1e6;
    const double lost = static_cast<double>(used.lost) / 1e6;
    family.Add(queue.With("kind", "allocated"), productive + lost);
    family.Add(queue.With("kind", "productive"), productive);
    family.Add(queue.With("kind", "lost"), lost);
  };
  for (const auto& [queue, sum] : totals) {
    const MetricLabels labels = {{"queue", queue}};
    add(gpus, labels, sum.gpus);
    add(slots, labels, sum.slots);
  }
}

}  // namespace muster
