// LockedRecord: a small file by which processes of one machine find and exclude each other.
//
// It is flocked for as long as its owner lives: the kernel releases the lock with the process, so
// "locked" proves that the owner is alive and "not locked" that it is gone. Resource type, one
// owner; the free function is safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/file_lock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

class LockedRecord {
 public:
  // kAlreadyExists when a living process holds it. The old content stays until Write. A new file
  // gets `mode`.
  static Result<LockedRecord> Acquire(const std::string& path, Duration timeout = kLockTimeout,
                                      int mode = 0600);
  // The same of a file that is open, and of this path.
  static Result<LockedRecord> Acquire(const std::string& path, UniqueFd fd, Duration timeout);

  // Replaces the content in place (a rename would leave the lock on the old file).
  Status Write(std::string_view content);
  // Removes the file; the lock ends with the object.
  void Remove();
  // Duplicates of it, in this process or another, keep the lock when the object is gone.
  int fd() const { return fd_.get(); }

 private:
  LockedRecord(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// Whether a living process holds the record; false if it does not exist.
bool IsRecordLocked(const std::string& path);

}  // namespace muster
