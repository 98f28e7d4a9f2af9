// Slurm as the scheduler of an allocation: squeue, scontrol, scancel.
//
// The thread rules of Scheduler apply.
#pragma once

#include <memory>

#include "common/slurm/allocation.h"
#include "worker/allocation/scheduler.h"

namespace muster::worker {

std::unique_ptr<Scheduler> MakeSlurmScheduler(const slurm::Allocation& allocation);

}  // namespace muster::worker
