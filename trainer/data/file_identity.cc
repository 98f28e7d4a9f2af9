#include "trainer/data/file_identity.h"

#include <fcntl.h>

#include <cerrno>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

std::int64_t Nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileIdentity IdentityOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .bytes = info.st_size,
          .modified_ns = Nanoseconds(info.st_mtim),
          .changed_ns = Nanoseconds(info.st_ctim)};
}

Result<FileIdentity> IdentityOf(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "open " + path);
  return IdentityOf(info);
}

}  // namespace muster
