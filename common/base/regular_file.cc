#include "common/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace muster {

// By what was looked at, not by the path once more; and no open without blocking, which a lease on
// the file would end with an error.
Result<UniqueFd> OpenRegularFile(const std::string& path, int flags) {
  const UniqueFd place(::open(path.c_str(), O_PATH | O_CLOEXEC | flags));
  struct stat info {};
  if (!place.valid() || ::fstat(place.get(), &info) != 0) return ErrnoStatus(errno, "open " + path);
  if (!S_ISREG(info.st_mode)) return FailedPrecondition(path + " is no regular file");
  const std::string same = "/proc/self/fd/" + std::to_string(place.get());
  UniqueFd fd(::open(same.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  return fd;
}

Result<std::string> ReadRegularFile(const std::string& path, std::int64_t max_bytes) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path));
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return content;
    content.append(buffer, static_cast<std::size_t>(n));
    if (static_cast<std::int64_t>(content.size()) > max_bytes)
      return ResourceExhausted(path + " is larger than " + std::to_string(max_bytes) + " bytes");
  }
}

}  // namespace muster
