#include "trainer/core/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace muster {

double LearningRate(const ScheduleSpec& schedule, double peak, Step step, Step max_steps) {
  const double warmup = std::ceil(schedule.warmup_ratio * static_cast<double>(max_steps));
  const double done = static_cast<double>(step);
  // Counted from 1, so that the first step trains too.
  if (done < warmup) return peak * (done + 1) / (warmup + 1);
  if (schedule.kind == "constant") return peak;
  const double span = std::max(1.0, static_cast<double>(max_steps) - warmup);
  const double progress = std::min(1.0, (done - warmup) / span);
  return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace muster
