// Signals that this process does not obey, because its parent has had them ignored, as
// nohup does with SIGHUP.
//
// Slurm sends its notices (SIGUSR1 or SIGUSR2 ahead of the end, SIGTERM when it begins) to every
// process below a task where it keeps track of processes by their parents. They are meant for the
// supervisor that the task is: what runs below it would end just when it is needed for saving.
//
// Any thread.
#pragma once

#include <vector>

namespace muster {

bool IsIgnored(int signal);

// Those of SIGTERM, SIGUSR1 and SIGUSR2 that are ignored here, for what is started in turn.
std::vector<int> IgnoredNotices();

}  // namespace muster
