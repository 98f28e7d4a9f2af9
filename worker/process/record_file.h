// The files and folders of a worker's processes. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace muster {

// A worker's files may contain secrets of a job's environment: only the worker's user may read
// them.
inline constexpr int kPrivateFile = 0600;
inline constexpr int kPrivateDirectory = 0700;

// Makes `directory` with its parents, and removes all permissions of other users on it and
// everything below, which an older version may have left open. Files of another user stay as they
// are; symbolic links are not followed.
Status MakePrivateTree(const std::string& directory);

// The last lines of a file, at most `max_lines` and as many as fit into its last `max_bytes`.
std::vector<std::string> ReadLastLines(const std::string& path, int max_lines,
                                       int max_bytes = 16 * 1024);

}  // namespace muster
