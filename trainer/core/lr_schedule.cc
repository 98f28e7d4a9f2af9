#include "trainer/core/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace muster {

Step StepsToTrain(const ScheduleSpec& schedule, std::int64_t rows, std::int64_t global_batch) {
  if (schedule.max_steps > 0) return schedule.max_steps;
  const double total = schedule.epochs * static_cast<double>(rows);
  // The small slack keeps 0.1 epochs of 100 rows from becoming 11 rows.
  const double steps = std::ceil(total / static_cast<double>(global_batch) - 1e-9);
  return std::max<Step>(1, static_cast<Step>(steps));
}

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
