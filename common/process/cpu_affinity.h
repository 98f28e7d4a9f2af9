// Keeping a process to some processors, from its start (spawn.h) or later. Free functions; any
// thread.
#pragma once

#include <sys/types.h>

#include <vector>

#include "common/base/status.h"

namespace muster {

// Bit n of the words stands for processor (or NUMA node) n, as the kernel's calls take it.
std::vector<unsigned long> KernelMask(const std::vector<int>& numbers);

// What sched_getaffinity allows the calling thread, ascending: the cgroup's and Slurm's choice.
std::vector<int> AllowedCpus();

// All threads of a living process, and those that they start from now on. The kernel takes what
// the process's cgroup allows of `cpus`; an error where that is nothing, or the process is gone.
Status KeepProcessOn(pid_t pid, const std::vector<int>& cpus);

}  // namespace muster
