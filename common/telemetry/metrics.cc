#include "common/telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>

#include "common/base/check.h"

namespace muster {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

bool IsName(std::string_view name) {
  static constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

}  // namespace

MetricLabels::MetricLabels(std::initializer_list<Label> labels) {
  labels_.reserve(labels.size());
  for (const auto& [name, value] : labels) Append(name, value);
}

MetricLabels MetricLabels::With(std::string_view name, std::string_view value) const {
  MetricLabels more;
  more.labels_.reserve(labels_.size() + 1);
  more.labels_ = labels_;
  more.Append(name, value);
  return more;
}

void MetricLabels::Append(std::string_view name, std::string_view value) {
  MUSTER_CHECK(IsName(name), "label name '" + std::string(name) + "'");
  labels_.push_back({std::string(name), std::string(value)});
}

MetricFamilyBuilder::MetricFamilyBuilder(std::string_view name, std::string_view help,
                                         MetricType type)
    : alone_(1) {
  MUSTER_CHECK(IsName(name), "metric name '" + std::string(name) + "'");
  alone_.front().name = name;
  alone_.front().help = help;
  alone_.front().type = type;
}

ClientMetric& MetricFamilyBuilder::Append(MetricLabels&& labels) {
  ClientMetric& metric = alone_.front().metric.emplace_back();
  metric.label = std::move(labels.labels_);
  return metric;
}

MetricFamilyBuilder& MetricFamilyBuilder::Add(MetricLabels labels, double value) {
  MUSTER_CHECK(family().type != MetricType::Histogram, family().name + " is a histogram");
  ClientMetric& metric = Append(std::move(labels));
  (family().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return *this;
}

MetricFamilyBuilder& MetricFamilyBuilder::AddHistogram(MetricLabels labels,
                                                       std::span<const double> bounds,
                                                       std::span<const std::uint64_t> counts,
                                                       double sum) {
  MUSTER_CHECK(family().type == MetricType::Histogram, family().name + " is no histogram");
  MUSTER_CHECK(counts.size() == bounds.size() + 1, family().name + ": one count per bucket");
  ClientMetric::Histogram& histogram = Append(std::move(labels)).histogram;
  histogram.bucket.reserve(counts.size());
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    cumulative += counts[i];
    ClientMetric::Bucket& bucket = histogram.bucket.emplace_back();
    bucket.cumulative_count = cumulative;
    bucket.upper_bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = sum;
  return *this;
}

MetricFamilyBuilder& MetricFamilies::Gauge(std::string_view name, std::string_view help) {
  return Get(name, help, MetricType::Gauge);
}

MetricFamilyBuilder& MetricFamilies::Counter(std::string_view name, std::string_view help) {
  return Get(name, help, MetricType::Counter);
}

MetricFamilyBuilder& MetricFamilies::Histogram(std::string_view name, std::string_view help) {
  return Get(name, help, MetricType::Histogram);
}

void MetricFamilies::Append(const prometheus::Collectable& counted) {
  for (MetricFamily& family : counted.Collect()) {
    // A registry keeps them by a hash.
    std::ranges::sort(family.metric, std::ranges::less(), &ClientMetric::label);
    std::vector<ClientMetric>& samples =
        Get(family.name, family.help, family.type).alone_.front().metric;
    std::ranges::move(family.metric, std::back_inserter(samples));
  }
}

std::string MetricFamilies::Render() const {
  std::ostringstream out;
  const prometheus::TextSerializer serializer;
  for (const MetricFamilyBuilder* builder : order_)
    if (!builder->family().metric.empty()) serializer.Serialize(out, builder->alone());
  return std::move(out).str();
}

MetricFamilyBuilder& MetricFamilies::Get(std::string_view name, std::string_view help,
                                         MetricType type) {
  auto found = builders_.find(name);
  if (found == builders_.end()) {
    found = builders_.try_emplace(std::string(name), name, help, type).first;
    order_.push_back(&found->second);
  }
  MUSTER_CHECK(found->second.family().type == type, std::string(name) + " has two types");
  return found->second;
}

}  // namespace muster
