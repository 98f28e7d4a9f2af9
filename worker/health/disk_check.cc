#include "worker/health/disk_check.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/base/unique_fd.h"

namespace muster::worker {
namespace {

constexpr char kProbeName[] = ".disk-check";

std::string Problem(const std::string& directory, int error) {
  return "the disk of " + directory + " cannot be written: " + std::strerror(error);
}

std::string WriteProbe(const std::string& directory) {
  const std::string path = directory + "/" + kProbeName;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Problem(directory, errno);
  const std::array<char, 4096> block{};
  const ssize_t written = ::write(fd.get(), block.data(), block.size());
  const int error = written < 0 ? errno : ENOSPC;
  ::unlink(path.c_str());
  return written == static_cast<ssize_t>(block.size()) ? "" : Problem(directory, error);
}

}  // namespace

std::string JudgeDisk(const std::string& directory, bool read_only, std::uint64_t free_bytes,
                      std::uint64_t total_bytes) {
  if (read_only) return "the disk of " + directory + " is read-only";
  // A file system that counts no blocks is not full because it has none free.
  if (total_bytes > 0 && free_bytes < kDiskFullBytes)
    return "the disk of " + directory + " is full: " + std::to_string(free_bytes >> 20) +
           " MiB are free";
  return "";
}

std::string CheckDisk(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return Problem(directory, errno);
  std::string problem = JudgeDisk(directory, (info.f_flag & ST_RDONLY) != 0,
                                  std::uint64_t{info.f_bavail} * info.f_frsize,
                                  std::uint64_t{info.f_blocks} * info.f_frsize);
  return problem.empty() ? WriteProbe(directory) : problem;
}

}  // namespace muster::worker
