#include "worker/allocation/log_carrier.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/base/unique_fd.h"

namespace muster::worker {

Status LogCarrier::Carry() {
  const UniqueFd from(::open(from_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.valid()) return OkStatus();  // nothing was started yet
  UniqueFd to;
  std::array<char, 64 << 10> part;
  for (;;) {
    const ssize_t size = ::pread(from.get(), part.data(), part.size(), carried_);
    if (size < 0) return ErrnoStatus(errno, "read " + from_);
    if (size == 0) return OkStatus();
    if (!to.valid())
      to = UniqueFd(::open(to_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!to.valid()) return ErrnoStatus(errno, "open " + to_);
    const ssize_t written = ::write(to.get(), part.data(), static_cast<std::size_t>(size));
    if (written < 0) return ErrnoStatus(errno, "write " + to_);
    carried_ += written;
  }
}

}  // namespace muster::worker
