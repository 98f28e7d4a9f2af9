// The learning rate of each step.
//
// Pure; any thread.
#pragma once

#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"

namespace muster {

// Steps of the warm-up of a training of `max_steps` steps.
Step WarmupSteps(const ScheduleSpec& schedule, Step max_steps);

// The learning rate that step `step` (0-based: the steps finished before it) trains with: from 0 up
// a straight line to `peak` over the warm-up, then by kind: constant; linear, down to 0 at the end;
// cosine, half a wave down to 0 at the end. Equal to
// get_{constant,linear,cosine}_schedule_with_warmup of transformers, so that curves can be
// compared; with a warm-up the first step's rate is 0.
double LearningRate(const ScheduleSpec& schedule, double peak, Step step, Step max_steps);

}  // namespace muster
