// The families of jobs on the coordinator's /metrics, from the controller's views. Private to
// metrics.cc. Pure; the loop's thread.
#pragma once

#include <cstdint>

#include "common/telemetry/metrics.h"
#include "coordinator/control/controller.h"

namespace muster {

// Whether a job is shown: it is active, or ended less than `keep` ago.
bool IsShown(const JobView& view, std::int64_t now_unix_ms, Duration keep);

// `elapsed`: the seconds that were last shown, 0 at first; raised to what is shown now. A wall
// clock that was set back must not let a counter fall.
void AddJobMetrics(const JobView& view, const Now& now, double* elapsed, MetricFamilies* out);
// All jobs and slots together.
void AddClusterGoodput(const Goodput& goodput, MetricFamilies* out);

}  // namespace muster
