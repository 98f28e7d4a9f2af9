// The families of runs on the coordinator's /metrics, from the controller's views. Private to
// metrics.cc. Pure; the loop's thread.
#pragma once

#include <cstdint>

#include "common/telemetry/metrics.h"
#include "coordinator/control/controller.h"

namespace muster {

// Whether a run is shown: it goes on, or ended less than `keep` ago.
bool IsShown(const JobView& view, std::int64_t now_unix_ms, Duration keep);

void AddRunMetrics(const JobView& view, const Now& now, MetricFamilies* out);
// Of all runs and slots together.
void AddFleetGoodput(const Goodput& goodput, MetricFamilies* out);

}  // namespace muster
