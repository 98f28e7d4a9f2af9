#include "common/base/file_lock.h"

#include <poll.h>
#include <sys/file.h>

#include <cerrno>

namespace muster {

Result<bool> LockFile(int fd, Duration timeout) {
  constexpr int kIntervalMillis = 10;
  const Deadline deadline = Deadline::After(timeout);
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "flock");
    if (deadline.Expired()) return false;
    // No call waits for a file's lock and for a time.
    (void)::poll(nullptr, 0, kIntervalMillis);
  }
}

}  // namespace muster
