// Metrics: the content of the coordinator's /metrics.
//
// Owned by the server, loop's thread. Gauges are read from the controller's views at each scrape.
// Counters and histograms of the registry add up what Observe receives, and exist with zero from
// the beginning, so that Prometheus sees their first rise as one. Names follow one scheme:
// muster_<what>_<unit>, label `run` for a job's id. docs/metrics.md lists them all.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "common/telemetry/metrics.h"
#include "coordinator/control/controller.h"
#include "coordinator/control/effects.h"
#include "coordinator/on_event/on_event_runner.h"

namespace muster {

// Figures from outside the core that the controller does not know.
struct EdgeFigures {
  std::size_t worker_streams = 0;
  std::size_t watchers = 0;
  std::size_t pending_requests = 0;
  std::uint64_t refused_requests = 0;
  OnEventRunner::Totals on_event;
  std::int64_t certificate_not_after_ms = 0;  // 0: no TLS
  std::map<std::string, int> pilots;          // by state
  std::uint64_t dropped_log_lines = 0;
};

class Metrics {
 public:
  // A run that has ended is shown for `keep` longer: three scrapes.
  explicit Metrics(Duration keep = std::chrono::seconds(45));

  void Observe(const Observation& observation);

  // The text of /metrics.
  std::string Render(const Controller& controller, const EdgeFigures& edges, const Now& now);

 private:
  using CounterFamily = prometheus::Family<prometheus::Counter>;
  using HistogramFamily = prometheus::Family<prometheus::Histogram>;

  void ObserveRecovery(const RecoveryObserved& recovery);
  prometheus::Histogram& Recovery(Tier tier, const char* stage);
  void AddJobs(const Controller& controller, const Now& now, MetricFamilies& out);
  void AddNodes(const Controller& controller, TimePoint now, MetricFamilies& out) const;
  void AddEdges(const EdgeFigures& edges, MetricFamilies& out) const;

  const Duration keep_;
  std::map<JobId, double> elapsed_;  // seconds, as last shown; of current jobs
  prometheus::Registry counted_;     // owns what follows
  CounterFamily& restarts_;
  HistogramFamily& recovery_;
  prometheus::Histogram& queue_wait_;
  prometheus::Histogram& commit_;
  prometheus::Counter& lost_steps_;
  prometheus::Counter& stale_messages_;
  CounterFamily& hangs_;
  prometheus::Counter& stragglers_;
  prometheus::Counter& faults_;
  CounterFamily& checkpoint_failures_;
  CounterFamily& scrubs_;
  CounterFamily& runs_ended_;
};

}  // namespace muster
