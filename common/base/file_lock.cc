#include "common/base/file_lock.h"

#include <sys/file.h>

#include <cerrno>
#include <thread>

namespace muster {

Result<bool> LockFile(int fd, Duration patience) {
  constexpr auto kInterval = std::chrono::milliseconds(10);
  const Deadline deadline = Deadline::After(patience);
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "flock");
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace muster
