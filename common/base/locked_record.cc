#include "common/base/locked_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace muster {

Result<LockedRecord> LockedRecord::Acquire(const std::string& path, Duration timeout, int mode) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  return Acquire(path, std::move(fd), timeout);
}

Result<LockedRecord> LockedRecord::Acquire(const std::string& path, UniqueFd fd, Duration timeout) {
  const Result<bool> locked = LockFile(fd.get(), timeout);
  if (!locked.ok()) return locked.status().WithContext(path);
  if (!*locked) return AlreadyExists(path + " is locked by a living process");
  return LockedRecord(path, std::move(fd));
}

Status LockedRecord::Write(std::string_view content) {
  const auto size = static_cast<ssize_t>(content.size());
  if (::pwrite(fd_.get(), content.data(), content.size(), 0) != size ||
      ::ftruncate(fd_.get(), size) != 0)
    return ErrnoStatus(errno, "write " + path_);
  return OkStatus();
}

void LockedRecord::Remove() { ::unlink(path_.c_str()); }

bool IsRecordLocked(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return false;
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace muster
