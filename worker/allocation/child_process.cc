#include "worker/allocation/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <string_view>
#include <utility>

#include "common/process/spawn.h"

extern char** environ;

namespace muster::worker {
namespace {

// Without the variables that stand for flags: what a user has set for a cluster of his must not
// reach the allocation's own.
std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!std::string_view(*entry).starts_with("MUSTER_")) environment.emplace_back(*entry);
  return environment;
}

}  // namespace

struct ChildProcess::Impl {
  Impl(EventLoop& loop, pid_t pid_in, UniqueFd pidfd, OnExit on_exit_in)
      : pid(pid_in), ended(loop.context(), pidfd.release()), on_exit(std::move(on_exit_in)) {}
  ~Impl() {
    *alive = false;
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  void Await() {
    ended.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = alive](const boost::system::error_code& error) {
                       if (!error && *alive) Reap();
                     });
  }

  void Reap() {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) != pid) return Await();
    pid = 0;
    // The owner may destroy this object from within.
    const OnExit tell = std::move(on_exit);
    tell(ProcessExitFromWaitStatus(status));
  }

  pid_t pid;  // 0: reaped
  boost::asio::posix::stream_descriptor ended;
  OnExit on_exit;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

ChildProcess::ChildProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChildProcess::~ChildProcess() = default;

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(EventLoop& loop,
                                                          std::vector<std::string> argv,
                                                          const std::string& log_path,
                                                          OnExit on_exit) {
  const UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return ErrnoStatus(errno, "open " + log_path);
  MUSTER_ASSIGN_OR_RETURN(const pid_t pid, SpawnChild({.argv = std::move(argv),
                                                       .environment = OwnEnvironment(),
                                                       .working_directory = {},
                                                       .output_fd = log.get(),
                                                       .inherited = {},
                                                       .die_with_parent = true}));
  auto pidfd = OpenPidfd(pid);
  if (!pidfd.ok()) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return pidfd.status();
  }
  auto impl = std::make_unique<Impl>(loop, pid, *std::move(pidfd), std::move(on_exit));
  impl->Await();
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(impl)));
}

void ChildProcess::Signal(int signal) {
  if (impl_->pid > 0) ::kill(impl_->pid, signal);
}

pid_t ChildProcess::pid() const { return impl_->pid; }

}  // namespace muster::worker
