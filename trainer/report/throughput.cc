#include "trainer/report/throughput.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "trainer/plan/flops.h"
#include "trainer/plan/hardware.h"

namespace muster {
namespace {

double Ratio(std::int64_t a, std::int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 1;
}

FlopsOptions OptionsOf(const ModelConfig& config, std::int64_t trained, const DatasetStats& stats) {
  return {.length = stats.rows > 0 ? stats.tokens / stats.rows : 0,
          .adapter_parameters = trained < config.ParameterCount() ? trained : 0};
}

}  // namespace

DevicePeak FindPeak(const JobSpec& spec, const std::string& described) {
  if (spec.resources.peak_tflops > 0) return {spec.resources.peak_tflops, "resources.peak_tflops"};
  const MixedPrecision type = spec.train->fsdp.mixed_precision;
  if (type != MixedPrecision::kBf16 && type != MixedPrecision::kFp16) return {};
  const auto known = FindByDeviceName(described);
  return known ? DevicePeak{known->peak_tflops, known->source} : DevicePeak{};
}

Throughput::Throughput(const ModelConfig& config, std::int64_t trained, const DatasetStats& stats,
                       int devices, DevicePeak peak)
    : flops_per_token_(ModelFlops(config, OptionsOf(config, trained, stats))),
      tokens_per_label_(Ratio(stats.tokens, stats.label_tokens)),
      devices_(std::max(1, devices)),
      peak_(std::move(peak)) {}

double Throughput::Flops(std::int64_t labels) const {
  return flops_per_token_ * static_cast<double>(labels) * tokens_per_label_;
}

double Throughput::Utilization(std::int64_t labels, double seconds) const {
  if (seconds <= 0) return 0;
  const double tokens = static_cast<double>(labels) * tokens_per_label_;
  return ModelFlopsUtilization(flops_per_token_, tokens / seconds, devices_, peak_.tflops);
}

void Throughput::Add(std::int64_t labels, double seconds) {
  if (steps_++ == 0) return;
  labels_ += labels;
  seconds_ += seconds;
}

std::string Throughput::Summary() const {
  if (seconds_ <= 0) return {};
  const double rate = static_cast<double>(labels_) * tokens_per_label_ / seconds_;
  char text[200];
  std::snprintf(text, sizeof text, "%.0f tokens/s, %.0f per device", rate, rate / devices_);
  std::string summary = text;
  if (peak_.tflops <= 0) return summary;
  std::snprintf(text, sizeof text, ", MFU %.1f %% of %.4g TFLOP/s (",
                100 * Utilization(labels_, seconds_), peak_.tflops);
  return summary + text + peak_.source + ")";
}

}  // namespace muster
