#include "worker/service/metrics.h"

#include <optional>

#include "common/base/version.h"
#include "common/telemetry/metrics.h"
#include "worker/service/rank_metrics.h"

namespace muster::worker {
namespace {

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
    return MetricLabels{{"node", status.node}, {label, value}};
  };
  const MetricLabels node = {{"node", status.node}};
  out->Counter("muster_worker_sampled_pages_total", "Progress pages read.")
      .Add(node, static_cast<double>(status.sampling.pages));
  out->Counter("muster_worker_sampling_cpu_seconds_total",
               "CPU time that reading progress pages has taken.")
      .Add(node, status.sampling.cpu_seconds);
  auto& probes = out->Counter("muster_worker_probes_total",
                              "Probes of other workers by what they met; unknown: no evidence.");
  probes.Add(with("outcome", "answered"), static_cast<double>(status.probes.answered));
  probes.Add(with("outcome", "refused"), static_cast<double>(status.probes.refused));
  probes.Add(with("outcome", "unreachable"), static_cast<double>(status.probes.unreachable));
  probes.Add(with("outcome", "silent"), static_cast<double>(status.probes.silent));
  probes.Add(with("outcome", "unknown"), static_cast<double>(status.probes.unknown));
  auto& notices = out->Counter("muster_worker_notices_total",
                               "Notices about the node sent to the coordinator, by kind.");
  for (const auto& [kind, count] : status.notices)
    notices.Add(with("kind", NoticeKindName(kind)), static_cast<double>(count));
  out->Counter("muster_worker_xid_events_total", "Errors that the GPU driver reported.")
      .Add(node, static_cast<double>(status.xids));
  out->Counter("muster_worker_oom_kills_total",
               "Processes that the kernel has ended on this host because memory ran out.")
      .Add(node, static_cast<double>(status.oom_kills));
}

void AddGpuBasics(const MetricLabels& labels, const GpuFigures& gpu, MetricFamilies* out) {
  const auto add = [&](const char* name, const char* help, const std::optional<double>& value) {
    if (value) out->Gauge(name, help).Add(labels, *value);
  };
  add("muster_gpu_utilization_ratio", "Share of the last second in which a kernel ran.",
      gpu.utilization);
  add("muster_gpu_memory_used_bytes", "Memory of the GPU in use by all.", gpu.memory_used_bytes);
  add("muster_gpu_memory_capacity_bytes", "Memory of the GPU.", gpu.memory_bytes);
  add("muster_gpu_power_watts", "Power that the GPU draws.", gpu.power_watts);
  add("muster_gpu_temperature_celsius", "Temperature of the GPU.", gpu.temperature_celsius);
  add("muster_gpu_sm_clock_hertz", "Clock of the multiprocessors.", gpu.sm_clock_hertz);
}

void AddGpus(const WorkerStatus& status, MetricFamilies* out) {
  for (const GpuFigures& gpu : status.gpus) {
    const MetricLabels labels = {{"node", status.node}, {"gpu", std::to_string(gpu.index)}};
    MetricLabels info = labels.With("uuid", gpu.uuid);
    if (!status.slurm_job_id.empty()) info = info.With("slurm_job_id", status.slurm_job_id);
    out->Gauge("muster_gpu_info",
               "Always 1, for each GPU that NVIDIA's management library shows; for joins by UUID.")
        .Add(info, 1);
    if (status.gpu_basics) AddGpuBasics(labels, gpu, out);
  }
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
  out.Gauge("muster_worker_version_refused",
            "1 while the coordinator refuses this worker: they have no protocol version in common.")
      .Add(node, status.version_refused ? 1 : 0);
  out.Counter("muster_worker_connects_total", "Streams to the coordinator that were welcomed.")
      .Add(node, static_cast<double>(status.connects));
  out.Counter("muster_worker_messages_dropped_total",
              "Messages given up because the queue to the coordinator was full.")
      .Add(node, static_cast<double>(status.dropped));
  out.Counter("muster_worker_pool_refused_total",
              "Work given up because its pool's queue was full.")
      .Add(node, static_cast<double>(status.refused));
  out.Counter("muster_log_lines_dropped_total",
              "Lines of the log that standard error did not take; the log says where.")
      .Add(node, static_cast<double>(status.dropped_log_lines));
  AddHealth(status, &out);
  AddCertificate(status, &out);
  AddGpus(status, &out);
  for (const ProgressSampler::Series& rank : series) AddRankMetrics(status.node, rank, &out);
  return out.Render();
}

}  // namespace muster::worker
