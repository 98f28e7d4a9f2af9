// What follows from an evaluation: whether it is the best so far, and whether training has stopped
// getting better.
//
// Pure functions of numbers that are equal on all ranks, so that ranks need not agree on what
// follows. The history is part of the cursor, so a resumed job goes on counting where it was. Any
// thread.
#pragma once

#include "common/job_spec/job_spec.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

// Adds the evaluation of `step`. True: no earlier loss was as low. One that is not finite is never
// better than another.
bool NoteEvaluation(const EarlyStopSpec& spec, Step step, double loss, EvalHistory* history);

// Whether the last `patience` evaluations were no better, by min_delta, than what came before.
bool EndsEarly(const EarlyStopSpec& spec, const EvalHistory& history);

}  // namespace muster
