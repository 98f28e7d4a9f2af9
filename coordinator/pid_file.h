// PidFile: at most one coordinator per cluster directory.
//
// Holds an flock on the file for as long as it lives, so a crashed coordinator leaves no lock
// behind; the file's content is the holder's pid, for people and for `muster down`. Owned by main;
// the file stays when the lock goes, its lock is what counts.
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
