// WarmUp: does once, with nothing at stake, what makes a process's first step slower than the next.
//
// Matrix libraries make a kernel for each shape that they meet, the allocator gets its memory from
// the kernel page by page, and code is read in as it is first run. A standby has the time for that
// before it is needed.
//
// Main's thread.
#pragma once

#include "common/job_spec/job_spec.h"
#include "trainer/inputs/train_inputs.h"

namespace muster {

// Runs one micro-batch of the job forward and backward on the CPU, through a model of a single
// block and of no rank's; nothing of it stays but what libraries keep. Does nothing for jobs of a
// GPU, whose device belongs to the rank that a process becomes, and where that model is so large
// that its memory could be missed elsewhere.
void WarmUp(const JobSpec& spec, const TrainInputs& inputs);

}  // namespace muster
