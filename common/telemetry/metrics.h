// Prometheus metric families from plain values, and their text form.
//
// A daemon assembles its families when /metrics is asked, from the state it has anyway, so there is
// no second copy of the truth that could lag behind:
//
//   MetricFamilies out;
//   out.Gauge("muster_nodes", "Nodes by state.").Add({{"state", "ready"}}, 2);
//   response.body = RenderMetrics(out.families());
//
// Value type; any one thread. Names and labels are the program's own: a malformed one is a broken
// invariant and aborts.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// The Prometheus text exposition format, version 0.0.4. Families without a sample are left out.
std::string RenderMetrics(const std::vector<prometheus::MetricFamily>& families);
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// One family under assembly; belongs to MetricFamilies and lives as long.
class MetricFamilyBuilder {
 public:
  MetricFamilyBuilder(std::string name, std::string help, prometheus::MetricType type);

  // Gauges and counters.
  MetricFamilyBuilder& Add(const MetricLabels& labels, double value);

  // Histograms: `counts` holds one more entry than `bounds` (the open bucket) and is not
  // cumulative.
  MetricFamilyBuilder& AddHistogram(const MetricLabels& labels, std::span<const double> bounds,
                                    std::span<const std::uint64_t> counts, double sum);

  const prometheus::MetricFamily& family() const { return family_; }

 private:
  prometheus::MetricFamily family_;
};

class MetricFamilies {
 public:
  // Each returns the family of that name, made by the first call.
  MetricFamilyBuilder& Gauge(const std::string& name, const std::string& help);
  MetricFamilyBuilder& Counter(const std::string& name, const std::string& help);
  MetricFamilyBuilder& Histogram(const std::string& name, const std::string& help);

  std::vector<prometheus::MetricFamily> families() const;
  std::string Render() const { return RenderMetrics(families()); }

 private:
  MetricFamilyBuilder& Get(const std::string& name, const std::string& help,
                           prometheus::MetricType type);
  std::deque<MetricFamilyBuilder> builders_;  // a deque keeps references valid
};

}  // namespace muster
