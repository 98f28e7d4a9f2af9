#include "worker/launcher/job_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "common/base/unique_fd.h"

namespace muster::launcher {
namespace {

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// What an account may make of cgroups below its job's.
constexpr int kMaxCgroupDepth = 16, kMaxCgroups = 1024;

// False: errno; EEXIST: it is another's.
bool MakeOne(int parent, const char* name, const Account& account, gid_t group, mode_t mode) {
  struct stat info {};
  if ((::mkdirat(parent, name, 0700) != 0 && errno != EEXIST) ||
      ::fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return false;
  // Made for an earlier generation.
  if (info.st_uid == account.uid) return true;
  errno = EEXIST;
  return info.st_uid == 0 && ::fchmodat(parent, name, mode, 0) == 0 &&
         ::fchownat(parent, name, account.uid, group, AT_SYMLINK_NOFOLLOW) == 0;
}

// What an earlier generation's account has: root, which may not open what others own, could put no
// guardian into it.
void TakeBack(const std::string& cgroup) {
  for (const auto& [path, mode] :
       {std::pair(cgroup, 0755), std::pair(cgroup + "/cgroup.procs", 0644)})
    if (::lchown(path.c_str(), 0, 0) == 0) (void)!::chmod(path.c_str(), mode);
}

// Root takes each folder back before it looks into it: then it may, and no name changes below it.
void RemoveCgroupsBelow(const std::string& path) {
  if (::lchown(path.c_str(), 0, 0) != 0 || ::chmod(path.c_str(), 0700) != 0) return;
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->is_directory(ignored)) continue;
    RemoveCgroupsBelow(entry->path());
    ::rmdir(entry->path().c_str());
  }
}

}  // namespace

Status MakeJobDirectories(int directory, const std::string& job, const Account& account,
                          gid_t readers) {
  if (::mkdirat(directory, job.c_str(), 0711) == 0 || errno == EEXIST) {
    const UniqueFd own(::openat(directory, job.c_str(), kFolder));
    // Two requests for a job may be handled at once. What is made in `run` gets the readers' group;
    // the mode of a file says whether they read it.
    if (own.valid() && ::flock(own.get(), LOCK_EX) == 0 && ::fchmod(own.get(), 0711) == 0 &&
        MakeOne(own.get(), "run", account, readers, 02750) &&
        MakeOne(own.get(), "tmp", account, account.gid, 0700) &&
        MakeOne(own.get(), "var-tmp", account, account.gid, 0700))
      return OkStatus();
  }
  return ErrnoStatus(errno, "make the job's directories");
}

void RemoveJobDirectories(int directory, const std::string& job) {
  const UniqueFd own(::openat(directory, job.c_str(), kFolder));
  for (const char* name : {"run", "tmp", "var-tmp"}) ::unlinkat(own.get(), name, AT_REMOVEDIR);
  ::unlinkat(directory, job.c_str(), AT_REMOVEDIR);
}

std::unique_ptr<Cgroup> MakeJobCgroup(const std::string& base, const std::string& job,
                                      const Account& account) {
  if (base.empty()) return MakeNoopCgroup();
  TakeBack(base + "/" + job);
  const std::unique_ptr<Cgroup> whole = MakeCgroup(job, base);
  if (whole->path().empty()) return MakeNoopCgroup();
  TakeBack(whole->path() + "/" + kDaemonsCgroup);
  std::unique_ptr<Cgroup> leaf = MakeCgroup(kDaemonsCgroup, whole->path());
  if (leaf->path().empty()) return leaf;
  std::ofstream(whole->path() + "/cgroup.max.depth") << kMaxCgroupDepth;
  std::ofstream(whole->path() + "/cgroup.max.descendants") << kMaxCgroups;
  // Delegated as cgroups(7) says; what ends or limits the whole stays root's.
  for (const std::string& path :
       {leaf->path() + "/cgroup.procs", leaf->path(), whole->path() + "/cgroup.procs",
        whole->path() + "/cgroup.subtree_control", whole->path()})
    if (::lchown(path.c_str(), account.uid, account.gid) != 0) return MakeNoopCgroup();
  return leaf;
}

Status EndJobCgroup(const std::string& base, const std::string& job) {
  const std::string path = base + "/" + job;
  if (base.empty() || EndAbandonedCgroup(path).ok()) return OkStatus();
  RemoveCgroupsBelow(path);
  return EndAbandonedCgroup(path).ok() ? OkStatus() : Aborted("processes of the job still end");
}

}  // namespace muster::launcher
