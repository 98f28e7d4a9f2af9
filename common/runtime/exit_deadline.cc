#include "common/runtime/exit_deadline.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <future>

namespace muster {
namespace {

// Standard error may be what hangs.
constexpr auto kMessageLimit = std::chrono::milliseconds(500);

[[noreturn]] void End(Duration limit, int exit_code) {
  const auto message = std::async(std::launch::async, [limit] {
    // Not through `stderr`: its lock would be held by a write that hangs, and _exit may want it
    // (ThreadSanitizer's does).
    ::dprintf(STDERR_FILENO,
              "shutdown took longer than %.0f s (a disk may not answer); exiting without waiting "
              "for it\n",
              ToSeconds(limit));
  });
  message.wait_for(kMessageLimit);
  ::_exit(exit_code);
}

}  // namespace

ExitDeadline::ExitDeadline(Duration limit, int exit_code)
    : thread_([this, limit, exit_code] {
        ::pthread_setname_np(::pthread_self(), "exit-deadline");
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, limit, [this] { return ended_; })) End(limit, exit_code);
      }) {}

ExitDeadline::~ExitDeadline() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace muster
