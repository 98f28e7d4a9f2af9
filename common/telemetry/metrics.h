// Metric families of prometheus-cpp from plain values, and their text form, the exposition format
// 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/).
//
// A daemon assembles its families when /metrics is asked, from the state it has anyway, so there is
// no second copy of the truth that could lag behind:
//
//   MetricFamilies out;
//   out.Gauge("muster_nodes", "Nodes by state.").Add({{"state", "ready"}}, 2);
//   response.body = out.Render();
//
// What a process counts itself it keeps in a prometheus::Registry and adds with Append. Labels that
// many samples share are put together once (MetricLabels).
//
// Value types; any one thread. Names and labels are the program's own: a malformed one is a broken
// invariant and aborts.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// The labels of a sample, in the order in which they are written.
class MetricLabels {
 public:
  using Label = std::pair<std::string_view, std::string_view>;

  MetricLabels() = default;
  MetricLabels(std::initializer_list<Label> labels);

  // These and one more behind them.
  MetricLabels With(std::string_view name, std::string_view value) const;
  const std::vector<prometheus::ClientMetric::Label>& labels() const { return labels_; }

 private:
  friend class MetricFamilyBuilder;
  void Append(std::string_view name, std::string_view value);
  std::vector<prometheus::ClientMetric::Label> labels_;
};

// One family under assembly; belongs to MetricFamilies and lives as long.
class MetricFamilyBuilder {
 public:
  MetricFamilyBuilder(std::string_view name, std::string_view help, prometheus::MetricType type);

  // Gauges and counters.
  MetricFamilyBuilder& Add(MetricLabels labels, double value);

  // Histograms: `counts` holds one more entry than `bounds` (the open bucket) and is not
  // cumulative.
  MetricFamilyBuilder& AddHistogram(MetricLabels labels, std::span<const double> bounds,
                                    std::span<const std::uint64_t> counts, double sum);

  const prometheus::MetricFamily& family() const { return alone_.front(); }
  // The family alone, as a serializer takes it.
  const std::vector<prometheus::MetricFamily>& alone() const { return alone_; }

 private:
  friend class MetricFamilies;
  prometheus::ClientMetric& Append(MetricLabels&& labels);

  std::vector<prometheus::MetricFamily> alone_;
};

class MetricFamilies {
 public:
  MetricFamilies() = default;
  MetricFamilies(const MetricFamilies&) = delete;
  MetricFamilies& operator=(const MetricFamilies&) = delete;

  // Each returns the family of that name, made by the first call.
  MetricFamilyBuilder& Gauge(std::string_view name, std::string_view help);
  MetricFamilyBuilder& Counter(std::string_view name, std::string_view help);
  MetricFamilyBuilder& Histogram(std::string_view name, std::string_view help);

  // What `counted` has counted by now, its samples in the order of their labels.
  void Append(const prometheus::Collectable& counted);

  // Families in the order in which they were made; those without a sample are left out.
  std::string Render() const;

 private:
  MetricFamilyBuilder& Get(std::string_view name, std::string_view help,
                           prometheus::MetricType type);
  std::map<std::string, MetricFamilyBuilder, std::less<>> builders_;
  std::vector<MetricFamilyBuilder*> order_;
};

}  // namespace muster
