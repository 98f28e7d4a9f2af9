// Starting a program as an account, from a child of muster-launcher that handles one request.
//
// One thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/process/spawn.h"
#include "worker/launcher/account.h"

namespace muster::launcher {

// Where a program that is started finds its socket.
inline constexpr int kSocketFd = 3;

// Becomes the account and starts the program, which has argv and descriptors, with nothing else of
// the caller's. `directory`: the job's, whose log it gets; empty: it is of no job. After a failure
// the process may be root still, in the job's cgroup and mounts or not: it must end.
Status StartAs(const Account& account, SpawnOptions program, const std::string& directory);

}  // namespace muster::launcher
