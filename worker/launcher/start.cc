#include "worker/launcher/start.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster::launcher {
namespace {

// What the job sees as its own of the directories that all users share. False: the launcher may
// make no mounts here.
Result<bool> HideSharedDirectories(const std::string& directory) {
  if (::unshare(CLONE_NEWNS) != 0) return false;
  const auto bind = [](const std::string& source, const char* target) {
    return ::mount(source.c_str(), target, nullptr, MS_BIND, nullptr) == 0;
  };
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0 &&
      bind(directory + "/var-tmp", "/var/tmp") && bind(directory + "/tmp", "/tmp") &&
      ::mount("muster", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0)
    return true;
  return ErrnoStatus(errno, "mount the job's /tmp, /var/tmp and /dev/shm");
}

Result<UniqueFd> OpenLog(const std::string& directory, bool hidden) {
  UniqueFd log(::open((directory + "/run/guardian.log").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!log.valid()) return ErrnoStatus(errno, "open the guardian's log");
  if (!hidden)
    ::dprintf(log.get(),
              "muster-launcher: it may make no mounts here, so that the job shares /tmp, "
              "/var/tmp and /dev/shm with other users\n");
  return log;
}

}  // namespace

Status StartAs(const Account& account, SpawnOptions program, const std::string& directory) {
  // The kernel asks who opened the descriptor, older ones who writes.
  if (const int procs = std::exchange(program.cgroup_procs_fd, -1);
      procs >= 0 && ::write(procs, "0\n", 2) != 2)
    return ErrnoStatus(errno, "join the job's cgroup");
  UniqueFd log;
  program.working_directory = "/";
  bool hidden = false;
  if (!directory.empty()) {
    MUSTER_ASSIGN_OR_RETURN(hidden, HideSharedDirectories(directory));
    program.working_directory = directory + "/run";
  }
  if (!Become(account)) return ErrnoStatus(errno, "become the account");
  ::umask(077);
  if (!directory.empty()) {
    MUSTER_ASSIGN_OR_RETURN(log, OpenLog(directory, hidden));
    program.output_fd = log.get();
  }
  program.environment = {"HOME=" + account.home,
                         "USER=" + account.name,
                         "LOGNAME=" + account.name,
                         "SHELL=" + account.shell,
                         "PATH=/usr/local/bin:/usr/bin:/bin",
                         "LANG=C.UTF-8"};
  return SpawnDetached(program);
}

}  // namespace muster::launcher
