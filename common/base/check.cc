#include "common/base/check.h"

#include <signal.h>
#include <sys/time.h>

#include <cstdio>
#include <cstdlib>

namespace muster {

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  // The write may never return: a pipe that is full, a file system that is gone.
  ::signal(SIGALRM, [](int) { std::abort(); });
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 500000}};
  ::setitimer(ITIMER_REAL, &limit, nullptr);
  std::fprintf(stderr, "%s:%d: invariant broken: %s: %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace muster
