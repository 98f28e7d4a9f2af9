// Files in directories that others may change, who may have put anything in their place: a pipe
// without a writer, or with one that writes byte by byte, would keep its reader.
//
// Free functions; they wait for a disk, never for another process. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

// For reading. kFailedPrecondition: it is no regular file. `flags`: of open(2), beside those that
// are always there.
Result<UniqueFd> OpenRegularFile(const std::string& path, int flags = 0);

// The whole file; refuses one that is larger than `max_bytes`.
Result<std::string> ReadRegularFile(const std::string& path, std::int64_t max_bytes = 64 << 20);

}  // namespace muster
