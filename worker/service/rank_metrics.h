// A rank's families on the worker's /metrics. Private to metrics.cc. Loop thread only.
#pragma once

#include <string>

#include "common/telemetry/metrics.h"
#include "worker/agent/progress_sampler.h"

namespace muster::worker {

// Counters have no attempt among their labels: they continue over attempts.
void AddRankMetrics(const std::string& node, const ProgressSampler::Series& rank,
                    MetricFamilies* out);

}  // namespace muster::worker
