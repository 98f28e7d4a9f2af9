#include "common/base/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster {

void LowerThreadPriority() {
  // On Linux a nice value belongs to a thread. Raising it needs no privilege, so it cannot fail.
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  (void)::setpriority(PRIO_PROCESS, thread, 19);
}

}  // namespace muster
