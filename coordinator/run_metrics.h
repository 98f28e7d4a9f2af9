// The families of runs on the coordinator's /metrics, from the controller's views. Private to
// metrics.cc. Pure; the loop's thread.
#pragma once

#include <cstdint>

#include "common/telemetry/metrics.h"
#include "coordinator/control/controller.h"

namespace muster {

// Whether a run is shown: it goes on, or ended less than `keep` ago.
bool IsShown(const JobView& view, std::int64_t now_unix_ms, Duration keep);

// `elapsed`: seconds that were shown as such before, 0 at first; raised to what is shown now. A
// clock of the day that was set back must not let a counter fall.
void AddRunMetrics(const JobView& view, const Now& now, double* elapsed, MetricFamilies* out);
// Of all runs and slots together.
void AddClusterGoodput(const Goodput& goodput, MetricFamilies* out);

}  // namespace muster
