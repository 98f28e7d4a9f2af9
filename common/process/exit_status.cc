#include "common/process/exit_status.h"

#include <sys/wait.h>

#include <cstring>

namespace muster {

ProcessExit ProcessExitFromWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.exit_code = 0, .signal = WTERMSIG(wait_status)};
  return {.exit_code = WEXITSTATUS(wait_status), .signal = 0};
}

std::string DescribeExit(const ProcessExit& exit) {
  if (exit.signal == 0) return "exit code " + std::to_string(exit.exit_code);
  const char* name = ::sigabbrev_np(exit.signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(exit.signal);
}

}  // namespace muster
