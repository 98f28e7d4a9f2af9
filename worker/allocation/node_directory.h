// A supervisor's files on its own node: a directory that only its user can read, and the processes
// that have it in their command lines. Blocks; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster::worker {

// Makes PARENT/NAME if PARENT is this user's own and no other user may enter it; /tmp is shared,
// and another user may have made PARENT before. Then it lies in a new directory beside PARENT. What
// an earlier supervisor left there is ended and removed. Returns the path.
Result<std::string> MakePrivateDirectory(const std::string& wanted);

// Ends every Muster program that was started with a path in `dir`, and its descendants: SIGINT,
// SIGKILL after `grace`. Guardians are not children of a supervisor, and outlive workers. Returns
// how many did not end.
int EndProcessesOf(const std::string& dir, Duration grace);

}  // namespace muster::worker
