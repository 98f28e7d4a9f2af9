#include "common/process/process_id.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "common/process/spawn.h"

namespace muster {

std::optional<ProcessId> FindProcess(pid_t pid) {
  const auto info = ReadProcess(pid);
  if (!info.ok() || !info->runs()) return std::nullopt;
  return info->id();
}

bool IsAlive(const ProcessId& id) { return FindProcess(id.pid) == id; }

bool SignalProcess(const ProcessId& id, int signal) {
  const Result<UniqueFd> pidfd = OpenPidfd(id.pid);
  // The descriptor pins the process; only then does the comparison say anything.
  return pidfd.ok() && IsAlive(id) &&
         ::syscall(SYS_pidfd_send_signal, pidfd->get(), signal, nullptr, 0) == 0;
}

}  // namespace muster
