// ProcessId: a process that is never mistaken for another, and signals to it.
//
// The kernel gives the number of a process that was reaped to another one. A pid that was read from
// /proc or from a file is therefore no more than a hint: it is kept with the start time, and a
// signal goes through a pidfd, which pins the process before the start times are compared. A bare
// kill(2) or killpg(2) is right for a child that this program has not reaped, and for its group,
// and for nothing else.
//
// Free functions; any thread.
#pragma once

#include <sys/types.h>

#include <optional>

#include "common/base/proc_reader.h"

namespace muster {

// The process that has this pid now, unless it has ended (a zombie).
std::optional<ProcessId> FindProcess(pid_t pid);
bool IsAlive(const ProcessId& id);

// False once that process has ended, also where another one has its pid by now, or where this user
// may not signal it.
bool SignalProcess(const ProcessId& id, int signal);

}  // namespace muster
