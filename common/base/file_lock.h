// File locks by which processes of one machine exclude each other (flock).
//
// The kernel gives a lock up with its holder. But that takes a killed process some time on a busy
// machine, and a process that only checks whether a file is locked holds it for a moment: so a lock
// is waited for a little before it is reported as held. Any thread.
#pragma once

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

inline constexpr Duration kLockTimeout = std::chrono::seconds(2);

// Locks the open file for this descriptor alone. False: another one has had it all the time.
// Blocks for `timeout` at most. kInternal and the like for files that cannot be locked.
Result<bool> LockFile(int fd, Duration timeout = kLockTimeout);

}  // namespace muster
