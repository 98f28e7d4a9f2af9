#include "common/runtime/exit_deadline.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>

namespace muster {

ExitDeadline::ExitDeadline(Duration limit, int exit_code)
    : thread_([this, limit, exit_code] {
        ::pthread_setname_np(::pthread_self(), "exit-deadline");
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [this] { return ended_; })) return;
        std::fprintf(
            stderr,
            "shutdown took longer than %.0f s (a disk may not answer); exiting without waiting "
            "for it any more\n",
            ToSeconds(limit));
        ::_exit(exit_code);
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
