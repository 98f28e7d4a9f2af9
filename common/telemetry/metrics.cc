#include "common/telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <limits>
#include <string_view>

#include "common/base/check.h"

namespace muster {
namespace {

bool IsName(std::string_view name) {
  static constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

prometheus::ClientMetric WithLabels(const MetricLabels& labels) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : labels) {
    MUSTER_CHECK(IsName(name), "label name '" + name + "'");
    metric.label.push_back({name, value});
  }
  return metric;
}

}  // namespace

std::string RenderMetrics(const std::vector<prometheus::MetricFamily>& families) {
  std::vector<prometheus::MetricFamily> filled;
  for (const auto& family : families)
    if (!family.metric.empty()) filled.push_back(family);
  return prometheus::TextSerializer().Serialize(filled);
}

MetricFamilyBuilder::MetricFamilyBuilder(std::string name, std::string help,
                                         prometheus::MetricType type) {
  MUSTER_CHECK(IsName(name), "metric name '" + name + "'");
  family_.name = std::move(name);
  family_.help = std::move(help);
  family_.type = type;
}

MetricFamilyBuilder& MetricFamilyBuilder::Add(const MetricLabels& labels, double value) {
  prometheus::ClientMetric metric = WithLabels(labels);
  if (family_.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    MUSTER_CHECK(family_.type == prometheus::MetricType::Gauge, family_.name + " is a histogram");
    metric.gauge.value = value;
  }
  family_.metric.push_back(std::move(metric));
  return *this;
}

MetricFamilyBuilder& MetricFamilyBuilder::AddHistogram(const MetricLabels& labels,
                                                       std::span<const double> bounds,
                                                       std::span<const std::uint64_t> counts,
                                                       double sum) {
  MUSTER_CHECK(family_.type == prometheus::MetricType::Histogram,
               family_.name + " is no histogram");
  MUSTER_CHECK(counts.size() == bounds.size() + 1, family_.name + ": one count per bucket");
  prometheus::ClientMetric metric = WithLabels(labels);
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    cumulative += counts[i];
    prometheus::ClientMetric::Bucket bucket;
    bucket.cumulative_count = cumulative;
    bucket.upper_bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back(bucket);
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = sum;
  family_.metric.push_back(std::move(metric));
  return *this;
}

MetricFamilyBuilder& MetricFamilies::Gauge(const std::string& name, const std::string& help) {
  return Get(name, help, prometheus::MetricType::Gauge);
}

MetricFamilyBuilder& MetricFamilies::Counter(const std::string& name, const std::string& help) {
  return Get(name, help, prometheus::MetricType::Counter);
}

MetricFamilyBuilder& MetricFamilies::Histogram(const std::string& name, const std::string& help) {
  return Get(name, help, prometheus::MetricType::Histogram);
}

std::vector<prometheus::MetricFamily> MetricFamilies::families() const {
  std::vector<prometheus::MetricFamily> out;
  for (const MetricFamilyBuilder& builder : builders_) out.push_back(builder.family());
  return out;
}

MetricFamilyBuilder& MetricFamilies::Get(const std::string& name, const std::string& help,
                                         prometheus::MetricType type) {
  for (MetricFamilyBuilder& builder : builders_) {
    if (builder.family().name != name) continue;
    MUSTER_CHECK(builder.family().type == type, name + " has two types");
    return builder;
  }
  return builders_.emplace_back(name, help, type);
}

}  // namespace muster
