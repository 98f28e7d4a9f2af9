// Files that survive a crash: whole-file reads, atomic durable writes.
//
// Free functions over the real file system; they block, so a daemon calls them from its worker
// pool. Thread-safe as far as the file system is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/status.h"

namespace muster {

// The whole file; refuses files larger than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, std::int64_t max_bytes = 64 << 20);

// Replaces `path` with `content` as one step: temporary file in the same directory, fsync,
// rename, fsync of the directory. After a crash the old or the new content is there, whole.
Status WriteFileAtomically(const std::string& path, std::string_view content, int mode = 0644);

// fsync of a directory, so that renames and creations in it are durable.
Status SyncDirectory(const std::string& path);

// mkdir -p; every missing level is created with `mode`.
Status MakeDirectories(const std::string& path, int mode = 0755);

}  // namespace muster
