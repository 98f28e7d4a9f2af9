#include "common/security/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/file_lock.h"
#include "common/base/files.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxBytes = 64 << 20;
// Longer than a file is usually waited for: many nodes may renew their certificates at once.
constexpr Duration kTimeout = std::chrono::seconds(10);

Status CheckPrivate(const std::string& path, const struct stat& info, Privacy privacy) {
  if (info.st_uid != ::geteuid())
    return PermissionDenied(path + " belongs to user " + std::to_string(info.st_uid) +
                            ", who could change it; type: chown " + std::to_string(::geteuid()) +
                            " " + path);
  if (privacy == Privacy::kSecret && (info.st_mode & 077) != 0)
    return PermissionDenied(path +
                            " may be read by others, so its secret may be known; if it is not, "
                            "type: chmod 600 " +
                            path);
  if ((info.st_mode & 022) != 0)
    return PermissionDenied(path + " may be changed by others; type: chmod go-w " + path);
  return OkStatus();
}

}  // namespace

Result<std::string> ReadPrivateFile(const std::string& path, Privacy privacy) {
  // O_NONBLOCK: a pipe in the file's place would never open.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) return NotFound("there is no file " + path);
  if (!fd.valid() && errno == ELOOP)
    return PermissionDenied(path +
                            " is a symbolic link, which may lead anywhere; put the file itself "
                            "there");
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return PermissionDenied(path + " is no regular file");
  MUSTER_RETURN_IF_ERROR(CheckPrivate(path, info, privacy));
  if (info.st_size > kMaxBytes) return ResourceExhausted(path + " is larger than 64 MiB");
  std::string content(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t have = 0;
  while (have < content.size()) {
    const ssize_t n = ::read(fd.get(), content.data() + have, content.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  content.resize(have);
  return content;
}

Status WritePrivateFile(const std::string& path, std::string_view content, Privacy privacy) {
  return WriteFileAtomically(path, content, privacy == Privacy::kSecret ? 0600 : 0644);
}

Status CheckPrivateDirectory(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "directory " + path);
  if (S_ISLNK(info.st_mode))
    return PermissionDenied(path + " is a symbolic link; name the directory itself");
  if (!S_ISDIR(info.st_mode)) return FailedPrecondition(path + " is no directory");
  return CheckPrivate(path, info, Privacy::kTrusted);
}

Status MakePrivateDirectory(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  return CheckPrivateDirectory(path);
}

Result<UniqueFd> LockDirectory(const std::string& path) {
  // A file, and not the directory: NFS locks only what is open for writing.
  const std::string name = path + "/.lock";
  UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + name);
  MUSTER_ASSIGN_OR_RETURN(const bool locked, LockFile(fd.get(), kTimeout));
  if (!locked)
    return Unavailable("another process has been changing " + path +
                       " for 10 seconds; try again, or find it with: fuser " + name);
  return fd;
}

FileStamp StampOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {static_cast<std::int64_t>(info.st_ino),
          info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec, info.st_size};
}

}  // namespace muster
