#include "worker/allocation/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <string_view>
#include <utility>

#include "common/process/spawn.h"
#include "common/telemetry/log.h"
#include "worker/allocation/loop_gate.h"

extern char** environ;

namespace muster::worker {
namespace {

constexpr int kEndMs = 300;

// Without the variables that stand for flags: a user's settings for another cluster must not reach
// the allocation's own. The user's webhook hosts are passed on here as well, and the pause of tests
// (trainer/supervise/rank_faults.h).
std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text = *entry; !text.starts_with("MUSTER_") ||
                                              text.starts_with("MUSTER_WEBHOOK_") ||
                                              text.starts_with("MUSTER_MICRO_BATCH_PAUSE="))
      environment.emplace_back(text);
  return environment;
}

}  // namespace

struct ChildProcess::Impl : std::enable_shared_from_this<ChildProcess::Impl> {
  Impl(EventLoop& loop, OnExit on_exit_in)
      : gate(LoopGate::To(loop)), ended(loop.context()), on_exit(std::move(on_exit_in)) {}

  // On the pool's thread.
  static Result<pid_t> Spawn(const std::vector<std::string>& argv, const std::string& log_path) {
    const UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.valid()) return ErrnoStatus(errno, "open " + log_path);
    return SpawnChild({.argv = argv,
                       .environment = OwnEnvironment(),
                       .working_directory = {},
                       .output_fd = log.get(),
                       .inherited = {},
                       .die_with_parent = true,
                       .ignored_signals = {SIGTERM, SIGUSR1, SIGUSR2}});
  }

  void OnStarted(const Result<pid_t>& started) {
    if (!started.ok()) return Fail(started.status());
    auto pidfd = OpenPidfd(*started);
    if (!pidfd.ok() || abandoned) {
      ::kill(*started, SIGKILL);
      ::waitpid(*started, nullptr, 0);
      if (!pidfd.ok()) Fail(pidfd.status());
      return;
    }
    pid = *started;
    ended.assign(pidfd->release());
    Await();
    if (signal_at_start != 0) ::kill(pid, signal_at_start);
  }

  void Fail(const Status& why) {
    if (abandoned) return;
    Log().error("a program could not be started: {}", why.message());
    Tell(ProcessExit{127, 0});
  }

  void Await() {
    ended.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (!error) self->Reap();
                     });
  }

  void Reap() {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) != pid) return Await();
    pid = 0;
    if (!abandoned) Tell(ProcessExitFromWaitStatus(status));
  }

  // The owner may destroy its object from within.
  void Tell(const ProcessExit& exit) {
    const OnExit tell = std::move(on_exit);
    tell(exit);
  }

  const std::shared_ptr<LoopGate> gate;
  pid_t pid = 0;
  int signal_at_start = 0;
  bool abandoned = false;  // the result is no longer needed
  boost::asio::posix::stream_descriptor ended;
  OnExit on_exit;
};

ChildProcess::ChildProcess(EventLoop& loop, WorkerPool& pool, std::vector<std::string> argv,
                           const std::string& log_path, OnExit on_exit)
    : impl_(std::make_shared<Impl>(loop, std::move(on_exit))) {
  const bool taken = pool.TrySubmit([impl = impl_, argv = std::move(argv), log_path] {
    const auto started = Impl::Spawn(argv, log_path);
    const bool posted = impl->gate->Post([impl, started] { impl->OnStarted(started); });
    if (!posted && started.ok()) ::kill(*started, SIGKILL);
  });
  // Not from within the constructor: the owner has no object yet.
  if (!taken)
    loop.Post([impl = impl_] { impl->Fail(Unavailable("starting others takes too long")); });
}

// A process that does not end within a moment of SIGKILL hangs in the kernel; the loop waits for
// its end.
ChildProcess::~ChildProcess() {
  impl_->abandoned = true;
  if (impl_->pid <= 0) return;
  ::kill(impl_->pid, SIGKILL);
  pollfd entry{impl_->ended.native_handle(), POLLIN, 0};
  if (::poll(&entry, 1, kEndMs) > 0 && ::waitpid(impl_->pid, nullptr, WNOHANG) == impl_->pid) {
    impl_->pid = 0;
    boost::system::error_code ignored;
    impl_->ended.close(ignored);
  }
}

void ChildProcess::Signal(int signal) {
  if (impl_->pid > 0)
    ::kill(impl_->pid, signal);
  else
    impl_->signal_at_start = signal;
}

pid_t ChildProcess::pid() const { return impl_->pid; }

}  // namespace muster::worker
