#include "common/base/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster {

void LowerThreadPriority() {
  constexpr int kNice = 10;
  // On Linux a nice value belongs to a thread. Raising it needs no privilege, so it cannot fail.
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  if (::getpriority(PRIO_PROCESS, thread) < kNice) {
    (void)::setpriority(PRIO_PROCESS, thread, kNice);
  }
}

}  // namespace muster
