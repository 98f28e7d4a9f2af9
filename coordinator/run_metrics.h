// The families of runs on the coordinator's /metrics, from the controller's views. Private to
// metrics.cc. Pure; the loop's thread.
#pragma once

#include <cstdint>
#include <map>

#include "common/telemetry/metrics.h"
#include "coordinator/control/controller.h"

namespace muster {

// Seconds that recoveries and repeated steps have cost a run since the coordinator started.
using LostSeconds = std::map<std::uint64_t, double>;  // by submit_order

// Whether a run is shown: it goes on, or ended less than `keep` ago.
bool IsShown(const JobView& view, std::int64_t now_unix_ms, Duration keep);

void AddRunMetrics(const JobView& view, std::int64_t now_unix_ms, double lost_seconds,
                   MetricFamilies* out);

}  // namespace muster
