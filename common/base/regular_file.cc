#include "common/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace muster {

Result<UniqueFd> OpenRegularFile(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "open " + path);
  if (!S_ISREG(info.st_mode)) return FailedPrecondition(path + " is no regular file");
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
