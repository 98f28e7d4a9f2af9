#include "common/base/unique_fd.h"

#include <unistd.h>

namespace muster {

void UniqueFd::reset(int fd) {
  // The descriptor is gone even if close reports an error; trying again could close another's.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace muster
