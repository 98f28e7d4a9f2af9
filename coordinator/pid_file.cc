#include "coordinator/pid_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace muster {
namespace {

std::string HolderPid(int fd) {
  char text[32] = {};
  const ssize_t bytes = ::pread(fd, text, sizeof text - 1, 0);
  std::string pid(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

}  // namespace

Result<PidFile> PidFile::Acquire(const std::string& path, Duration timeout) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  const Result<bool> locked = LockFile(fd.get(), timeout);
  if (!locked.ok()) return locked.status().WithContext(path);
  if (!*locked) {
    return AlreadyExists("another coordinator runs in this directory, pid " + HolderPid(fd.get()) +
                         " (lock " + path + "); use it, or end it with: muster down");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoStatus(errno, "write " + path);
  }
  return PidFile(std::move(fd));
}

}  // namespace muster
