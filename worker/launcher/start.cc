#include "worker/launcher/start.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/proc_reader.h"
#include "common/base/unique_fd.h"

namespace muster::launcher {
namespace {

struct Failure {
  int error;
  char step[64];
};

[[noreturn]] void Fail(int report, const char* step) {
  Failure failure{errno, {}};
  Put(step, failure.step);
  [[maybe_unused]] const ssize_t n = ::write(report, &failure, sizeof failure);
  ::_exit(127);
}

// What the job sees as its own of the directories that all users share. False: the launcher may
// make no mounts here.
bool HideSharedDirectories(const std::string& directory, int report) {
  if (::unshare(CLONE_NEWNS) != 0) return false;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    Fail(report, "take the job's mounts apart");
  if (::mount((directory + "/var-tmp").c_str(), "/var/tmp", nullptr, MS_BIND, nullptr) != 0)
    Fail(report, "mount the job's /var/tmp");
  if (::mount((directory + "/tmp").c_str(), "/tmp", nullptr, MS_BIND, nullptr) != 0)
    Fail(report, "mount the job's /tmp");
  if (::mount("muster", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
    Fail(report, "mount the job's /dev/shm");
  return true;
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Leaves 0 to kSocketFd, and behind them the report, which exec closes.
int ArrangeDescriptors(const Start& start, int log, int report) {
  constexpr int kReportFd = kSocketFd + 1, kAbove = 16;
  const int socket = ::fcntl(start.socket, F_DUPFD, kAbove);
  const int report_copy = ::fcntl(report, F_DUPFD, kAbove);
  const int log_copy = ::fcntl(log, F_DUPFD, kAbove);
  const int null = ::open("/dev/null", O_RDWR);
  if (socket < 0 || report_copy < 0 || log_copy < 0 || null < 0 || ::dup2(null, 0) < 0 ||
      ::dup2(log_copy, 1) < 0 || ::dup2(log_copy, 2) < 0 || ::dup2(socket, kSocketFd) < 0 ||
      ::dup3(report_copy, kReportFd, O_CLOEXEC) < 0 ||
      ::syscall(SYS_close_range, kReportFd + 1, ~0U, 0) != 0)
    Fail(report, "pass descriptors on");
  return kReportFd;
}

[[noreturn]] void Run(const Start& start, int report) {
  const Account& account = *start.account;
  if (::setsid() < 0) Fail(report, "setsid");
  if (start.cgroup_procs >= 0 && ::write(start.cgroup_procs, "0\n", 2) != 2)
    Fail(report, "join the job's cgroup");
  const bool of_job = !start.directory.empty();
  const bool hidden = of_job && HideSharedDirectories(start.directory, report);
  if (!Become(account)) Fail(report, "become the account");
  ::umask(077);
  ResetSignals();
  const std::string run = of_job ? start.directory + "/run" : "/";
  if (::chdir(run.c_str()) != 0) Fail(report, "enter the job's directory");
  const UniqueFd log(
      of_job ? ::open("guardian.log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600)
             : ::open("/dev/null", O_WRONLY));
  if (!log.valid()) Fail(report, "open the guardian's log");
  if (of_job && !hidden)
    ::dprintf(log.get(),
              "muster-launcher: it may make no mounts here, so that the job shares /tmp, "
              "/var/tmp and /dev/shm with other users\n");
  const std::string environment[] = {"HOME=" + account.home,
                                     "USER=" + account.name,
                                     "LOGNAME=" + account.name,
                                     "SHELL=" + account.shell,
                                     "PATH=/usr/local/bin:/usr/bin:/bin",
                                     "LANG=C.UTF-8"};
  std::vector<char*> words, variables;
  for (const std::string& word : start.argv) words.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& one : environment) variables.push_back(const_cast<char*>(one.c_str()));
  words.push_back(nullptr);
  variables.push_back(nullptr);
  report = ArrangeDescriptors(start, log.get(), report);
  ::execve(words[0], words.data(), variables.data());
  Fail(report, "execute the program");
}

}  // namespace

void StartAs(const Start& start, Reply* reply) {
  Failure failure{0, "start a process"};
  int ends[2];
  pid_t pid = -1;
  if (::pipe2(ends, O_CLOEXEC) == 0 && (pid = ::fork()) == 0) Run(start, ends[1]);
  failure.error = errno;
  if (pid > 0) {
    ::close(ends[1]);
    // The end of file means that the program is executed.
    if (::read(ends[0], &failure, sizeof failure) != sizeof failure) failure.error = 0;
  }
  *reply = {.reason = Reason::kDone, .error = failure.error, .pid = pid, .uid = start.account->uid};
  // Not reaped, so it is this one.
  if (const auto info = ReadProcess(pid); info.ok()) reply->start_time = info->start_time;
  if (failure.error == 0) return;
  reply->reason = Reason::kFailed;
  Put(failure.step, reply->detail);
}

}  // namespace muster::launcher
