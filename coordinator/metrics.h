// Metrics: what /metrics and /sd of the coordinator say.
//
// Owned by the server, loop's thread. Gauges are read from the controller's views when they are
// asked for; counters and histograms add up what Observe is told. Names follow one scheme:
// muster_<what>_<unit>, label `run` for a job's id.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/controller.h"
#include "coordinator/control/effects.h"
#include "coordinator/on_event/on_event_runner.h"

namespace muster {

class MetricFamilies;

// Figures of the edges that the controller does not know.
struct EdgeFigures {
  std::size_t worker_streams = 0;
  std::size_t watchers = 0;
  std::size_t pending_requests = 0;
  std::uint64_t refused_requests = 0;
  OnEventRunner::Totals on_event;
  std::int64_t certificate_not_after_ms = 0;  // 0: no TLS
  std::map<std::string, int> pilots;          // by state
};

class Metrics {
 public:
  void Observe(const Observation& observation);

  // The text of /metrics.
  std::string Render(const Controller& controller, const EdgeFigures& edges) const;

  // The JSON of /sd: Prometheus' HTTP service discovery, the coordinator's own /metrics first. Who
  // asks by TLS is on another machine and comes to the others by TLS as well.
  static std::string ServiceDiscovery(const Controller& controller, const std::string& own_http,
                                      bool by_tls = false);

 private:
  // Not cumulative; the last count is of what lies above every bound.
  struct Histogram {
    explicit Histogram(std::vector<double> upper_bounds)
        : bounds(std::move(upper_bounds)), counts(bounds.size() + 1) {}
    void Observe(double value);
    std::vector<double> bounds;
    std::vector<std::uint64_t> counts;
    double sum = 0;
  };

  void AddJobs(const Controller& controller, MetricFamilies& out) const;
  void AddNodes(const Controller& controller, MetricFamilies& out) const;
  void AddFaults(MetricFamilies& out) const;

  std::map<CauseKind, std::uint64_t> restarts_;
  std::map<std::pair<Rung, std::string>, Histogram> recovery_;  // by what brought it up, by stage
  Histogram queue_wait_{{0.01, 0.1, 1, 10, 60, 600, 3600, 36000}};
  std::uint64_t lost_steps_ = 0;
  std::uint64_t stale_messages_ = 0;
  std::uint64_t hangs_ = 0;
  std::uint64_t stragglers_ = 0;
  std::uint64_t faults_ = 0;
  std::uint64_t checkpoint_failures_ = 0;
  std::map<ScrubOutcome, std::uint64_t> scrubs_;
};

}  // namespace muster
