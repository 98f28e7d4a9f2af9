// What a supervisor keeps on its own node: a directory that only its user can look into, and the
// processes that have it in their command lines. Blocks; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster::worker {

// Makes PARENT/NAME where PARENT is this user's own and nobody else may enter it; /tmp is
// everybody's, and another user may have made PARENT before. Then it lies in a new directory beside
// PARENT. What an earlier supervisor left at that place is ended and removed. Returns the path.
Result<std::string> MakePrivateDirectory(const std::string& wanted);

// Ends every program of Muster's that was started with a path in `dir`, and what descends from it:
// SIGINT, SIGKILL after `grace`. Guardians are no children of a supervisor, and outlive workers.
// Returns how many would not end.
int EndProcessesOf(const std::string& dir, Duration grace);

}  // namespace muster::worker
