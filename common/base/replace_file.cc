#include "common/base/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "common/base/unique_fd.h"

namespace muster {

Status ReplaceFile(const std::string& path, std::string_view content, int mode) {
  // Unique among the threads of this process too.
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(++counter);
  {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                       static_cast<mode_t>(mode)));
    if (!fd.valid()) return ErrnoStatus(errno, "create " + temporary);
    while (!content.empty()) {
      const ssize_t n = ::write(fd.get(), content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const Status status = ErrnoStatus(errno, "write " + temporary);
        ::unlink(temporary.c_str());
        return status;
      }
      content.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Status status = ErrnoStatus(errno, "rename " + temporary + " to " + path);
    ::unlink(temporary.c_str());
    return status;
  }
  return OkStatus();
}

}  // namespace muster
