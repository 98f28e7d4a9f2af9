// The learning rate of each step.
//
// Pure; any thread.
#pragma once

#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"

namespace muster {

// The learning rate that step `step` (0-based: the steps finished before it) trains with: a linear
// warm-up over warmup_ratio of `max_steps`, then a cosine down to 0 at the end, or constant.
double LearningRate(const ScheduleSpec& schedule, double peak, Step step, Step max_steps);

}  // namespace muster
