// The families of queues on the coordinator's /metrics, from the controller's views. Private to
// metrics.cc. Pure; the loop's thread.
#pragma once

#include "common/telemetry/metrics.h"
#include "coordinator/control/views.h"

namespace muster {

// What each queue has, with all below it.
void AddQueueMetrics(const QueuesView& queues, MetricFamilies* out);
// What the jobs of each queue had so far, without those below it.
void AddQueueUsage(const QueueTotals& totals, MetricFamilies* out);

}  // namespace muster
