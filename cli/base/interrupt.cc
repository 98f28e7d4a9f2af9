#include "cli/base/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "cli/base/exit_code.h"
#include "common/base/check.h"

namespace muster {

Interrupt::Interrupt() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  // A blocked signal is kept although it is ignored, so that nohup would have no effect.
  for (const int signal : {SIGHUP, SIGQUIT}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC));
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  MUSTER_CHECK(signals_.valid() && stop_.valid(), "signalfd and eventfd");
  thread_ = std::thread([this] { Run(); });
}

Interrupt::~Interrupt() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Interrupt::Run() {
  for (;;) {
    pollfd entries[2] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0) continue;
    if (entries[1].revents != 0) return;
    signalfd_siginfo info;
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    std::lock_guard lock(mutex_);
    if (requested_) ::_exit(kExitInterrupted);
    requested_ = true;
    if (cancel_) cancel_();
    changed_.notify_all();
  }
}

bool Interrupt::requested() const {
  std::lock_guard lock(mutex_);
  return requested_;
}

bool Interrupt::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(requested_, false);
}

bool Interrupt::WaitFor(Duration duration) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, duration, [this] { return requested_; });
}

Interrupt::Scope::Scope(Interrupt& interrupt, std::function<void()> cancel)
    : interrupt_(interrupt) {
  std::lock_guard lock(interrupt_.mutex_);
  if (interrupt_.requested_)
    cancel();
  else
    interrupt_.cancel_ = std::move(cancel);
}

Interrupt::Scope::~Scope() {
  std::lock_guard lock(interrupt_.mutex_);
  interrupt_.cancel_ = nullptr;
}

}  // namespace muster
