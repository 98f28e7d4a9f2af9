// At most one coordinator per cluster directory.
//
// The pid file contains its holder's pid, for people and for `muster down`. Owned by main; the file
// remains when the lock is released: only the lock counts.
#pragma once

#include <string>

#include "common/base/locked_record.h"
#include "common/base/result.h"

namespace muster {

// kAlreadyExists, naming the pid, while another process holds it.
Result<LockedRecord> AcquirePidFile(const std::string& path, Duration timeout = kLockTimeout);

}  // namespace muster
