// What lies in the folder of a token cache, and what of it may go.
//
//   KEY.tokens                        an entry (token_cache.h)
//   KEY.tokens.tmp.HOST.PID.XXXXXX    one that is being written, locked by its writer
//   KEY.tokens.lock, .lock2           whose turn it is to write it (file_turn.h)
//   KEY.tokens.checked-HOST           that it is whole (verified_mark.h); .lock: whose turn to
//   check files-PATHS-HOST.hashes           of files of text (content_hashes.h); .lock: whose turn
//   to read
//
// The folder may be shared by jobs and hosts. An entry is locked, shared, by every process that
// reads it; and since some network file systems keep locks to a host, it is marked as used at every
// start and once in an hour (MarkUsed), by its time of access: its time of change stays that of
// writing. What another host may have in hand is left alone until it has not been touched for
// hours.
//
// Free functions; any thread. What cannot be removed stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace muster {

// What stands between two marks of a reader, at most.
inline constexpr Duration kMarkEvery = std::chrono::hours(1);

// 16 digits.
std::string ToHex(std::uint64_t number);

// This host's name, of letters, digits, '-' and '_'.
std::string HostLabel();

// Where hashes of files are kept: `files` is of their paths (HashOfPaths).
std::string HashMemoryPath(const std::string& directory, std::uint64_t files);

// A name that no other writer of this process has: an entry that is being written.
std::string TemporaryEntryName(const std::string& entry);

// Whether a file is there. A client of NFS asks the server.
bool IsThere(const std::string& path);

// That an entry is being read; by a descriptor of it.
void MarkUsed(int fd);

// kResourceExhausted: `directory` has no room for an entry of these files of text.
Status CheckRoom(const std::vector<std::string>& paths, const std::string& directory);

// Removes what writers have left that are gone, before another one needs the room, and what belongs
// to entries that are gone, or to files that no process has asked about for a month.
void RemoveLeftovers(const std::string& directory);

// Removes entries whose files are `files` (CacheEntryId), but for the four that were used last and
// those that are in use.
void RemoveOldEntries(const std::string& directory, std::uint64_t files);

}  // namespace muster
