// LrSchedule: the learning rate of each step and the number of steps of a job.
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"

namespace muster {

// Steps of the whole job: max_steps, or epochs over `rows` rows in global batches of
// `global_batch` rows (rounded up, at least 1).
Step StepsToTrain(const ScheduleSpec& schedule, std::int64_t rows, std::int64_t global_batch);

// The learning rate that step `step` (0-based: the steps finished before it) trains with: a linear
// warm-up over warmup_ratio of `max_steps`, then a cosine down to 0 at the end, or constant.
double LearningRate(const ScheduleSpec& schedule, double peak, Step step, Step max_steps);

}  // namespace muster
