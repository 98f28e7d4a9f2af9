// HashFiles: hashes of the bytes of files, remembered from one start to the next.
//
// In the folder of the token cache lies a file for each host and list of paths:
//
//   muster hashes 1
//   DEVICE INODE BYTES MODIFIED_NS CHANGED_NS HASH    per file; numbers decimal, the hash in hex
//   check CHECK                                       XXH3-64 of all before, in hex
//
// A file whose identity is in it is not read again. It is replaced as a whole, and what it says of
// a file that has changed lately is left out (file_identity.h). Where processes of a host
// start together, one reads and the others wait for it (file_turn.h). What cannot be remembered is
// read by each.
//
// Blocks; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/data/file_identity.h"
#include "trainer/data/file_turn.h"

namespace muster {

struct FileContent {
  std::string path;
  FileIdentity identity = {};  // of what was hashed
  std::uint64_t hash = 0;      // XXH3-64 of the bytes

  friend bool operator==(const FileContent&, const FileContent&) = default;
};

struct HashMemory {
  std::string path = {};  // of the file, by HashMemoryPath; empty: nothing is remembered
  // How long a file has not changed before its hash is kept: more than a tick of its clock and what
  // clocks of hosts differ by.
  Duration settled = std::chrono::seconds(10);
};

// In the order of `paths`. `wait.on_read` is called while files are read, here or by another
// process. kAborted: a file has changed while it was read.
Result<std::vector<FileContent>> HashFiles(const std::vector<std::string>& paths,
                                           const HashMemory& memory, const TurnWait& wait);

// kAborted: one of the files may hold something else than what was hashed; it was written to, or
// its times were set.
Status CheckUnchanged(const std::vector<FileContent>& files);

}  // namespace muster
