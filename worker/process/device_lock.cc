#include "worker/process/device_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "common/base/ids.h"

namespace muster {
namespace {

// The directory's own mode says which users may lock devices.
constexpr mode_t kByAll = 0666;

// Without O_CREAT for a file that is there: the kernel may refuse that for another user's
// (fs.protected_regular).
int OpenExisting(const std::string& path) {
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

Result<std::string> SharedLockDirectory(const std::string& root) {
  for (const char* name : {"run/lock", "dev/shm", "tmp"}) {
    const std::string path = root + name;
    struct stat is {};
    if (::stat(path.c_str(), &is) == 0 && S_ISDIR(is.st_mode) && (is.st_mode & S_ISVTX) != 0 &&
        (is.st_mode & S_IWOTH) != 0 && ::access(path.c_str(), W_OK | X_OK) == 0)
      return path;
  }
  return FailedPrecondition(
      "every user may write to none of /run/lock, /dev/shm and /tmp; name the directory in which "
      "the workers of this machine lock its GPUs with --device-locks DIR");
}

std::string DeviceLockPath(const std::string& directory, const std::string& device) {
  return directory + "/muster-" + device + ".lock";
}

Result<UniqueFd> OpenDeviceLock(const std::string& directory, const std::string& device) {
  const std::string path = DeviceLockPath(directory, device);
  UniqueFd fd(OpenExisting(path));
  if (!fd.valid() && errno == ENOENT) {
    fd.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kByAll));
    if (fd.valid() && ::fchmod(fd.get(), kByAll) != 0)  // whatever the umask
      return ErrnoStatus(errno, "make " + path + " readable for all");
    if (!fd.valid() && errno == EEXIST) fd.reset(OpenExisting(path));
  }
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat is {};
  if (::fstat(fd.get(), &is) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(is.st_mode) || is.st_nlink != 1)
    return FailedPrecondition(path + " is no file of its own, but a link or a special file");
  return fd;
}

std::string HolderRecord(const std::string& job) {
  return job + " " + std::to_string(::getpid()) + "\n";
}

DeviceHolder HolderOf(const UniqueFd& lock, const std::string& jobs_dir) {
  char text[128];
  const ssize_t size = ::pread(lock.get(), text, sizeof text, 0);
  std::string_view record(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  record = record.substr(0, record.find('\n'));
  const std::size_t space = std::min(record.find(' '), record.size());
  const std::string job(record.substr(0, space));
  const std::string_view pid = record.substr(std::min(space + 1, record.size()));
  if (!FollowsNameRule(job) || !IsNumber(pid)) return {.is_here = false, .text = "another process"};
  std::error_code ignored;
  const bool is_here = std::filesystem::exists(jobs_dir + "/" + job, ignored);
  return {.is_here = is_here,
          .text = "job " + job + (is_here ? "" : " of another worker") + " (guardian " +
                  std::string(pid) + ", or a process that it left)"};
}

}  // namespace muster
