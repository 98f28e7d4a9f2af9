#include "trainer/core/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace muster {

Step WarmupSteps(const ScheduleSpec& schedule, Step max_steps) {
  if (schedule.warmup_steps) return *schedule.warmup_steps;
  return static_cast<Step>(std::ceil(schedule.warmup_ratio * static_cast<double>(max_steps)));
}

double LearningRate(const ScheduleSpec& schedule, double peak, Step step, Step max_steps) {
  // The order of operations is transformers' too: the factor first, then times the peak.
  const auto part = [](Step of, Step whole) {
    return static_cast<double>(of) / static_cast<double>(std::max<Step>(1, whole));
  };
  const Step warmup = WarmupSteps(schedule, max_steps);
  if (step < warmup) return peak * part(step, warmup);
  if (schedule.kind == "constant") return peak;
  if (schedule.kind == "linear") {
    return peak * std::max(0.0, part(max_steps - step, max_steps - warmup));
  }
  const double progress = std::min(1.0, part(step - warmup, max_steps - warmup));
  return peak * (0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace muster
