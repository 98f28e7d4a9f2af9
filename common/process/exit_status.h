// How a process ended: by itself with a code, or by a signal. Plain value; any thread.
#pragma once

#include <string>

namespace muster {

struct ProcessExit {
  int exit_code = 0;
  int signal = 0;  // 0: the process exited by itself

  bool ok() const { return exit_code == 0 && signal == 0; }
  friend bool operator==(const ProcessExit&, const ProcessExit&) = default;
};

// From what wait reports for a process that has ended.
ProcessExit ProcessExitFromWaitStatus(int wait_status);

// "exit code 3" or "SIGKILL".
std::string DescribeExit(const ProcessExit& exit);

}  // namespace muster
