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

void LowerThreadPriorityToIdle() {
  // As in linux/ioprio.h, which is not everywhere.
  constexpr int kProcess = 1;
  constexpr int kIdleClass = 3 << 13;
  LowerThreadPriority();
  (void)::syscall(SYS_ioprio_set, kProcess, 0, kIdleClass);
}

}  // namespace muster
