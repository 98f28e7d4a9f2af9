#include "common/base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write " + path);
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return OkStatus();
}

// How long a pipe's writer may be silent.
constexpr int kPipeTimeoutMillis = 10'000;

}  // namespace

Result<std::string> ReadFile(const std::string& path, std::int64_t max_bytes) {
  // Opening a pipe would wait for its writer, which no signal ends.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (S_ISDIR(info.st_mode)) return InvalidArgument(path + " is a directory, not a file");
  if (info.st_size > max_bytes)
    return ResourceExhausted(path + " has " + std::to_string(info.st_size) + " bytes; at most " +
                             std::to_string(max_bytes) + " are read");
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    pollfd readable{fd.get(), POLLIN, 0};
    const int polled = S_ISREG(info.st_mode) ? 1 : ::poll(&readable, 1, kPipeTimeoutMillis);
    if (polled == 0)
      return DeadlineExceeded(path +
                              " is not a regular file, and nothing was written to it for 10 s");
    if (polled < 0 && errno == EINTR) continue;
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return content;
    content.append(buffer, static_cast<std::size_t>(n));
    if (static_cast<std::int64_t>(content.size()) > max_bytes)
      return ResourceExhausted(path + " is larger than " + std::to_string(max_bytes) + " bytes");
  }
}

Status SyncDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync " + path);
  return OkStatus();
}

Status WriteFileAtomically(const std::string& path, std::string_view content, int mode) {
  // Another thread may write it as well, or a process of the same pid on another machine.
  std::uint64_t random = 0;
  (void)::getrandom(&random, sizeof random, 0);
  const std::string temporary =
      path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(random);
  Status status = [&]() -> Status {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                       static_cast<mode_t>(mode)));
    if (!fd.valid()) return ErrnoStatus(errno, "create " + path);
    MUSTER_RETURN_IF_ERROR(WriteAll(fd.get(), content, path));
    if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync " + path);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      return ErrnoStatus(errno, "rename " + temporary + " to " + path);
    return OkStatus();
  }();
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

Status MakeDirectories(const std::string& path, int mode) {
  if (path.empty()) return InvalidArgument("the directory's name is empty");
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string level = path.substr(0, slash);
    if (::mkdir(level.c_str(), static_cast<mode_t>(mode)) != 0 && errno != EEXIST)
      return ErrnoStatus(errno, "create directory " + level);
    if (slash == std::string::npos) break;
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISDIR(info.st_mode)) return FailedPrecondition(path + " exists and is no directory");
  return OkStatus();
}

}  // namespace muster
