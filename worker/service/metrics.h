// The worker's /metrics: the ranks' progress pages as Prometheus families, the GPUs, and the
// worker's own state. docs/metrics.md lists them all. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/agent/progress_sampler.h"
#include "worker/health/gpu_figures.h"
#include "worker/health/notice_board.h"
#include "worker/health/prober.h"

namespace muster::worker {

struct WorkerStatus {
  std::string node;
  std::string slurm_job_id = {};  // the Slurm job that the worker runs in; empty: none
  int slots = 0;
  bool connected = false;
  bool version_refused = false;
  std::uint64_t connects = 0;
  std::uint64_t dropped = 0;
  std::uint64_t refused = 0;  // by the worker pools
  std::uint64_t dropped_log_lines = 0;
  std::size_t jobs = 0;
  ProgressSampler::Totals sampling = {};
  Prober::Totals probes = {};
  std::map<NodeNoticeKind, std::uint64_t> notices = {};
  std::uint64_t xids = 0;
  std::uint64_t oom_kills = 0;
  std::int64_t certificate_not_after_ms = 0;  // 0: this node has none
  std::uint64_t certificate_renewals = 0;
  std::uint64_t certificate_failures = 0;
  std::vector<GpuFigures> gpus = {};
  bool gpu_basics = true;  // state of the GPUs, besides their identity
};

std::string RenderWorkerMetrics(const WorkerStatus& status,
                                const std::vector<ProgressSampler::Series>& series);

}  // namespace muster::worker
