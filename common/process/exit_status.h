// How a process ended: by itself with a code, or by a signal. Plain values; any thread.
#pragma once

#include <string>

namespace muster {

struct ProcessExit {
  int exit_code = 0;
  int signal = 0;  // 0: the process exited by itself

  bool ok() const { return exit_code == 0 && signal == 0; }
  friend bool operator==(const ProcessExit&, const ProcessExit&) = default;
};

// How the process of a rank ended, as its guardian saw it. Passed on whole, from the guardian to
// the store.
struct RankEnd {
  ProcessExit exit;
  bool node_stopped = false;   // ended because its node was taken down
  bool ended = false;          // the guardian had begun to end the generation before
  bool out_of_memory = false;  // by the kernel's out-of-memory killer
  bool asked_to_stop = false;  // a Stop had reached it before

  friend bool operator==(const RankEnd&, const RankEnd&) = default;
};

// From what wait reports for a process that has ended.
ProcessExit ProcessExitFromWaitStatus(int wait_status);

// "exit code 3" or "SIGKILL".
std::string DescribeExit(const ProcessExit& exit);

}  // namespace muster
