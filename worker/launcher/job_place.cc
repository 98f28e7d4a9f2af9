#include "worker/launcher/job_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "worker/process/cgroup.h"

namespace muster::launcher {
namespace {

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int kMaxCgroupDepth = 16;

bool MakeOne(int parent, const char* name, const Account& account, gid_t group, mode_t mode) {
  struct stat info {};
  if (::mkdirat(parent, name, 0700) != 0) {
    if (errno != EEXIST) return false;
    // Made before, by a start that was cut short or for an earlier generation.
    if (::fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (S_ISDIR(info.st_mode) && info.st_uid == account.uid) return true;
    errno = EEXIST;
    if (!S_ISDIR(info.st_mode) || info.st_uid != 0) return false;
  }
  const UniqueFd fd(::openat(parent, name, kFolder));
  return fd.valid() && ::fchmod(fd.get(), mode) == 0 && ::fchown(fd.get(), account.uid, group) == 0;
}

std::string CgroupOf(const std::string& base, const std::string& job) { return base + "/" + job; }

bool Give(int folder, const char* name, const Account& account) {
  return ::fchownat(folder, name, account.uid, account.gid, AT_SYMLINK_NOFOLLOW) == 0;
}

// Root takes each folder back before it looks into it: then it may, and no name changes below it.
void RemoveCgroups(int parent, const char* name, int depth) {
  if (::fchownat(parent, name, 0, 0, AT_SYMLINK_NOFOLLOW) != 0) return;
  const UniqueFd fd(::openat(parent, name, kFolder));
  if (!fd.valid()) return;
  DIR* const folder = depth > 0 ? ::fdopendir(::dup(fd.get())) : nullptr;
  while (const dirent* entry = folder != nullptr ? ::readdir(folder) : nullptr)
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
      RemoveCgroups(fd.get(), entry->d_name, depth - 1);
  if (folder != nullptr) ::closedir(folder);
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

}  // namespace

bool MakeJobDirectories(int directory, const std::string& job, const Account& account,
                        gid_t readers) {
  if (::mkdirat(directory, job.c_str(), 0711) != 0 && errno != EEXIST) return false;
  const UniqueFd own(::openat(directory, job.c_str(), kFolder));
  // Two requests for a job may be handled at once.
  if (!own.valid() || ::flock(own.get(), LOCK_EX) != 0) return false;
  // What is made in `run` gets the readers' group; the mode of a file says whether they read it.
  return ::fchmod(own.get(), 0711) == 0 && MakeOne(own.get(), "run", account, readers, 02750) &&
         MakeOne(own.get(), "tmp", account, account.gid, 0700) &&
         MakeOne(own.get(), "var-tmp", account, account.gid, 0700);
}

void RemoveJobDirectories(int directory, const std::string& job) {
  const UniqueFd own(::openat(directory, job.c_str(), kFolder));
  for (const char* name : {"run", "tmp", "var-tmp"}) ::unlinkat(own.get(), name, AT_REMOVEDIR);
  ::unlinkat(directory, job.c_str(), AT_REMOVEDIR);
}

UniqueFd MakeJobCgroup(const std::string& base, const std::string& job, const Account& account) {
  if (base.empty()) return {};
  const std::string path = CgroupOf(base, job);
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return {};
  const UniqueFd folder(::open(path.c_str(), kFolder));
  if (!folder.valid() || ::faccessat(folder.get(), "cgroup.kill", W_OK, AT_EACCESS) != 0) return {};
  if (::mkdirat(folder.get(), kDaemonsCgroup, 0755) != 0 && errno != EEXIST) return {};
  const UniqueFd leaf(::openat(folder.get(), kDaemonsCgroup, kFolder));
  if (!leaf.valid()) return {};
  UniqueFd procs(::openat(leaf.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
  // Delegated as cgroups(7) says; what ends or limits the whole stays root's.
  const bool given = Give(folder.get(), "cgroup.procs", account) &&
                     Give(folder.get(), "cgroup.subtree_control", account) &&
                     Give(leaf.get(), "cgroup.procs", account) &&
                     ::fchown(leaf.get(), account.uid, account.gid) == 0 &&
                     ::fchown(folder.get(), account.uid, account.gid) == 0;
  return given ? std::move(procs) : UniqueFd();
}

bool EndJobCgroup(const std::string& base, const std::string& job) {
  if (base.empty()) return true;
  const std::string path = CgroupOf(base, job);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return true;
  const UniqueFd kill(::open((path + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (kill.valid()) (void)!::write(kill.get(), "1", 1);
  RemoveCgroups(AT_FDCWD, path.c_str(), kMaxCgroupDepth);
  return ::stat(path.c_str(), &info) != 0;
}

}  // namespace muster::launcher
