// Whether a directory can still be written: the file system's own figures, and a small file written
// and removed. Blocks as long as the disk does, so a daemon calls it from a pool; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace muster::worker {

// Below this a disk counts as full: records and logs of a few jobs need as much.
inline constexpr std::uint64_t kDiskFullBytes = 16 << 20;

// What is wrong, as a sentence without its full stop; empty: nothing.
std::string CheckDisk(const std::string& directory);

// The same from the file system's figures alone. Pure.
std::string JudgeDisk(const std::string& directory, bool read_only, std::uint64_t free_bytes,
                      std::uint64_t total_bytes);

}  // namespace muster::worker
