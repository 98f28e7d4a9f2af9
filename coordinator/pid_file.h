// PidFile: at most one coordinator per cluster directory.
//
// Holds an flock on the file for as long as it lives, so a crashed coordinator leaves no lock; the
// file contains the holder's pid, for people and for `muster down`. Owned by main; the file remains
// when the lock is released: only the lock counts.
#pragma once

#include <string>

#include "common/base/file_lock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

class PidFile {
 public:
  // kAlreadyExists, naming the pid, while another process holds it.
  static Result<PidFile> Acquire(const std::string& path, Duration timeout = kLockTimeout);

 private:
  explicit PidFile(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace muster
