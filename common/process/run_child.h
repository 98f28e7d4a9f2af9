// RunChild: runs a program to its end under a limit: standard input from a string, what it prints
// taken in, SIGKILL to its whole group when the time is over.
//
// Blocks; any thread, which must not end before the call does (the child dies with it).
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/process/exit_status.h"
#include "common/process/spawn.h"

namespace muster {

struct RunChildOptions {
  // What spawn.h says, but standard input, output and death with the parent, which are set here.
  SpawnOptions spawn;
  std::string input;              // what the child reads
  std::size_t max_output = 4096;  // the last bytes that it printed are kept
  bool errors_apart = false;      // standard error goes to `errors`, not to `output`
  Duration limit = std::chrono::seconds(30);
  int cancel_fd = -1;  // ends the child once it is readable; -1: none
};

struct ChildOutcome {
  ProcessExit exit;
  std::string output;      // standard output and error, as they came
  std::string errors;      // standard error, if it is taken apart
  bool timed_out = false;  // ended at the limit
  bool cancelled = false;  // ended by cancel_fd

  bool ok() const { return exit == ProcessExit{} && !timed_out && !cancelled; }
  // "exit code 3: no such host", "no end within 30 s"; one line, for the log.
  std::string Describe() const;
};

// An error when the program cannot be started. Processes that the child leaves in its group are
// ended as well.
Result<ChildOutcome> RunChild(const RunChildOptions& options);

}  // namespace muster
