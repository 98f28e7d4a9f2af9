#include "coordinator/store/journal_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "common/base/failpoint.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

// The owner of root's files on a file server that does not trust it (root_squash).
constexpr uid_t kSquashed = 65534;

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Opening a directory makes an NFS client check with the server whether it has changed
// (close-to-open), so a name that was missing before is looked up again.
UniqueFd OpenDirectory(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

int ReadAll(int fd, std::string* bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno;
  bytes->clear();
  bytes->reserve(static_cast<std::size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return 0;
    bytes->append(buffer, static_cast<std::size_t>(n));
  }
}

}  // namespace

int PosixJournalFiles::MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return SyncDirectory(ParentOf(path));
  const int error = errno;
  if (error != EEXIST) return error;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (!S_ISDIR(info.st_mode)) return ENOTDIR;
  // A user who can put a commit there decides what this coordinator does, as its user.
  const bool ours = info.st_uid == ::geteuid() || (::geteuid() == 0 && info.st_uid == kSquashed);
  return ours && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 ? 0 : EPERM;
}

int PosixJournalFiles::Write(const std::string& path, std::string_view bytes) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return errno;
  if (const int error = WriteAll(fd.get(), bytes); error != 0) return error;
  Failpoint("journal.written");
  if (::fsync(fd.get()) != 0) return errno;
  Failpoint("journal.synced");
  // A file server may report only now that there is no room.
  return ::close(fd.release()) == 0 ? 0 : errno;
}

int PosixJournalFiles::Link(const std::string& from, const std::string& to) {
  return ::link(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int PosixJournalFiles::Remove(const std::string& path) {
  return ::unlink(path.c_str()) == 0 ? 0 : errno;
}

int PosixJournalFiles::SyncDirectory(const std::string& path) {
  const UniqueFd fd = OpenDirectory(path);
  if (!fd.valid()) return errno;
  return ::fsync(fd.get()) == 0 ? 0 : errno;
}

int PosixJournalFiles::Read(const std::string& path, std::string* bytes) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
  UniqueFd fd(::open(path.c_str(), kFlags));
  if (!fd.valid() && errno == ENOENT) {
    const UniqueFd directory = OpenDirectory(ParentOf(path));
    if (!directory.valid()) return errno;
    const std::string name = std::filesystem::path(path).filename().string();
    fd = UniqueFd(::openat(directory.get(), name.c_str(), kFlags));
  }
  if (!fd.valid()) return errno;
  return ReadAll(fd.get(), bytes);
}

int PosixJournalFiles::List(const std::string& path, std::vector<std::string>* names) {
  names->clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return errno;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) return errno;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
}

Status JournalError(int error, const std::string& what) {
  const Status plain = ErrnoStatus(error, what);
  const auto with = [&](StatusCode code, const char* advice) {
    return Status(code, plain.message() + "; " + advice);
  };
  switch (error) {
    case ENOSPC: return with(plain.code(), "make room on that file system and start again");
    case EDQUOT: return with(plain.code(), "raise the quota or remove files, and start again");
    case EFBIG:
      return with(StatusCode::kResourceExhausted, "raise the limit of a file's size (ulimit -f)");
    case ESTALE:
      return with(StatusCode::kUnavailable,
                  "the directory was removed, or its server exports it again; check the mount and "
                  "start again");
    case ETIMEDOUT:
      return with(plain.code(),
                  "the file server does not answer; mount it hard, so that writers wait for it");
    case EIO: return with(plain.code(), "the file system fails; ask who runs it, then start again");
    case EPERM:
      return with(StatusCode::kPermissionDenied,
                  "the journal's directories must belong to the coordinator's user and be writable "
                  "by no other user (chown, chmod 700), on a file system that supports hard links");
    case EACCES:
    case EROFS:
      return with(plain.code(), "the journal's directory must be writable, and allow hard links");
    case ENOENT:
    case ENOTDIR:
      return with(plain.code(),
                  "the journal's directory is not there; give one on a shared file system that is "
                  "mounted");
    case EXDEV:
    case EOPNOTSUPP:
    case EMLINK:
      return with(StatusCode::kFailedPrecondition,
                  "a journal needs a file system with hard links: NFS, Lustre, GPFS");
    default: return plain;
  }
}

}  // namespace muster
