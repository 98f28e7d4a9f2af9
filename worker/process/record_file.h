// Small files by which processes of one machine find and exclude each other.
//
// LockedRecord is a file that is flocked for as long as its owner lives: the kernel releases the
// lock with the process, so "locked" proves that the owner is alive and "not locked" that it is
// gone. Resource type, one owner; the free functions are safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/file_lock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

// A worker's files may contain secrets of a job's environment: only the worker's user may read
// them.
inline constexpr int kPrivateFile = 0600;
inline constexpr int kPrivateDirectory = 0700;

// Makes `directory` with its parents, and removes all permissions of other users on it and
// everything below, which an older version may have left open. Files of another user stay as they
// are; symbolic links are not followed.
Status MakePrivateTree(const std::string& directory);

class LockedRecord {
 public:
  // kAlreadyExists when a living process holds it. The old content stays until Write.
  static Result<LockedRecord> Acquire(const std::string& path, Duration timeout = kLockTimeout);

  // Replaces the content in place (a rename would leave the lock on the old file).
  Status Write(std::string_view content);
  // Removes the file; the lock ends with the object.
  void Remove();

 private:
  LockedRecord(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// Whether a living process holds the record; false if it does not exist.
bool IsRecordLocked(const std::string& path);

// The last lines of a file, at most `max_lines` and as many as fit into its last `max_bytes`.
std::vector<std::string> ReadLastLines(const std::string& path, int max_lines,
                                       int max_bytes = 16 * 1024);

}  // namespace muster
