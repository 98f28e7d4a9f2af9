#include "worker/service/metrics.h"

#include "common/base/version.h"
#include "common/telemetry/metrics.h"

namespace muster::worker {
namespace {

void AddModel(const MetricLabels& labels, const ProgressValues& values, MetricFamilies* out) {
  out->Gauge("muster_train_loss", "Loss of the last finished step, mean over the job.")
      .Add(labels, values.loss);
  out->Gauge("muster_train_grad_norm", "Gradient norm of the last step before clipping.")
      .Add(labels, values.grad_norm);
  out->Gauge("muster_train_learning_rate", "Learning rate of the last step.")
      .Add(labels, values.learning_rate);
}

void AddTraining(const MetricLabels& labels, const ProgressValues& values, MetricFamilies* out) {
  out->Histogram("muster_train_step_duration_seconds", "Wall time of a training step.")
      .AddHistogram(labels, kStepSecondsBounds, values.step_seconds_buckets,
                    values.step_seconds_sum);
  out->Counter("muster_train_steps_total", "Steps finished by this rank's process.")
      .Add(labels, static_cast<double>(values.steps_done));
  out->Counter("muster_train_tokens_total",
               "Tokens trained on by the whole job during this rank's process.")
      .Add(labels, static_cast<double>(values.tokens_done));
  out->Gauge("muster_train_last_step", "Newest finished step.")
      .Add(labels, static_cast<double>(values.step));
  // Before its first finished step a process has none of these, and 0 would look like a value.
  if (values.steps_done > 0) AddModel(labels, values, out);
  out->Counter("muster_train_nonfinite_total", "Steps whose loss or gradient was NaN or infinite.")
      .Add(labels, static_cast<double>(values.nonfinite));
  out->Gauge("muster_host_rss_bytes", "Resident memory of this rank's process.")
      .Add(labels, static_cast<double>(values.rss_bytes));
  auto& phases = out->Counter("muster_train_step_phase_seconds_total",
                              "Time that this rank's process has spent by phase.");
  for (int phase = 0; phase < kTrainPhaseCount; ++phase) {
    MetricLabels with_phase = labels;
    with_phase.emplace_back("phase", TrainPhaseName(static_cast<TrainPhase>(phase)));
    phases.Add(with_phase, values.phase_seconds[static_cast<std::size_t>(phase)]);
  }
}

void AddWaits(const MetricLabels& labels, const ProgressSampler::Series& one, MetricFamilies* out) {
  out->Gauge("muster_train_snapshot_step", "Newest sealed snapshot; -1: none.")
      .Add(labels, static_cast<double>(one.values.snapshot_step));
  out->Counter("muster_train_wait_seconds_total", "Time in finished steps that waited for peers.")
      .Add(labels, one.values.wait_seconds);
  for (const CollectiveCounts& counts : one.collectives) {
    MetricLabels with_group = labels;
    with_group.emplace_back("group", counts.group);
    out->Gauge("muster_train_collectives_enqueued", "Collectives that this group has been given.")
        .Add(with_group, static_cast<double>(counts.enqueued));
    out->Gauge("muster_train_collectives_completed", "Those of them that have ended.")
        .Add(with_group, static_cast<double>(counts.completed));
    out->Gauge("muster_train_collective_bytes", "Bytes sent to peers or read from their memory.")
        .Add(with_group, static_cast<double>(counts.bytes));
  }
}

void AddCertificate(const WorkerStatus& status, MetricFamilies* out) {
  if (status.certificate_not_after_ms == 0) return;
  out->Gauge("muster_certificate_expiry_timestamp_seconds",
             "When the certificate in use expires, in Unix time.")
      .Add({{"node", status.node}}, static_cast<double>(status.certificate_not_after_ms) / 1000);
  auto& renewals =
      out->Counter("muster_certificate_renewals_total", "Renewals of this node's certificate.");
  renewals.Add({{"node", status.node}, {"result", "done"}},
               static_cast<double>(status.certificate_renewals));
  renewals.Add({{"node", status.node}, {"result", "failed"}},
               static_cast<double>(status.certificate_failures));
}

void AddHealth(const WorkerStatus& status, MetricFamilies* out) {
  const auto with = [&](const std::string& label, std::string_view value) {
    return MetricLabels{{"node", status.node}, {label, std::string(value)}};
  };
  const MetricLabels node = {{"node", status.node}};
  out->Counter("muster_worker_sampled_pages_total", "Progress pages read.")
      .Add(node, static_cast<double>(status.sampling.pages));
  out->Counter("muster_worker_sampling_cpu_seconds_total", "CPU time that sampling has taken.")
      .Add(node, status.sampling.cpu_seconds);
  auto& probes = out->Counter("muster_worker_probes_total",
                              "Probes of other workers by what they met; unknown: no evidence.");
  probes.Add(with("outcome", "answered"), static_cast<double>(status.probes.answered));
  probes.Add(with("outcome", "refused"), static_cast<double>(status.probes.refused));
  probes.Add(with("outcome", "unreachable"), static_cast<double>(status.probes.unreachable));
  probes.Add(with("outcome", "silent"), static_cast<double>(status.probes.silent));
  probes.Add(with("outcome", "unknown"), static_cast<double>(status.probes.unknown));
  auto& notices = out->Counter("muster_worker_notices_total",
                               "Matters of the node told to the coordinator, by kind.");
  for (const auto& [kind, count] : status.notices)
    notices.Add(with("kind", NoticeKindName(kind)), static_cast<double>(count));
  out->Counter("muster_worker_xid_events_total", "Errors that the GPUs' driver has told.")
      .Add(node, static_cast<double>(status.xids));
  out->Counter("muster_worker_oom_kills_total",
               "Processes that the kernel has ended on this host for want of memory.")
      .Add(node, static_cast<double>(status.oom_kills));
}

}  // namespace

std::string RenderWorkerMetrics(const WorkerStatus& status,
                                const std::vector<ProgressSampler::Series>& series) {
  MetricFamilies out;
  const MetricLabels node = {{"node", status.node}};
  out.Gauge("muster_build_info", "Always 1; the labels say which build this is.")
      .Add({{"version", kVersion}, {"component", "worker"}, {"node", status.node}}, 1);
  out.Gauge("muster_worker_slots", "Slots of this node.").Add(node, status.slots);
  out.Gauge("muster_worker_jobs", "Jobs with a guardian or records on this node.")
      .Add(node, static_cast<double>(status.jobs));
  out.Gauge("muster_worker_connected", "1 while the coordinator's stream is up.")
      .Add(node, status.connected ? 1 : 0);
  out.Counter("muster_worker_connects_total", "Streams to the coordinator that were welcomed.")
      .Add(node, static_cast<double>(status.connects));
  out.Counter("muster_worker_messages_dropped_total",
              "Messages given up because the queue to the coordinator was full.")
      .Add(node, static_cast<double>(status.dropped));
  out.Counter("muster_worker_pool_refused_total", "Work that found its pool's queue full.")
      .Add(node, static_cast<double>(status.refused));
  AddHealth(status, &out);
  AddCertificate(status, &out);
  for (const ProgressSampler::Series& one : series) {
    const MetricLabels labels = {{"run", one.job.value},
                                 {"name", one.job_name},
                                 {"attempt", std::to_string(one.generation)},
                                 {"node", status.node},
                                 {"rank", std::to_string(one.rank)}};
    AddTraining(labels, one.values, &out);
    AddWaits(labels, one, &out);
  }
  return out.Render();
}

}  // namespace muster::worker
