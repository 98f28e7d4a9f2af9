// Starting processes: a supervised child, or a daemon that outlives its starter.
//
// The child's side of fork calls only async-signal-safe functions (all memory is prepared before),
// so that both functions are safe in a threaded program. A program that cannot be executed is an
// error of the call, not an exit status: the child reports errno through a pipe that exec closes.
//
// A child starts with the limit of open files that this process was started with: programs that use
// select(2) are safe below 1024 only.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

struct InheritedFd {
  int from = -1;
  int to = -1;  // 3 or higher; all other descriptors from 3 on are closed in the child
};

struct SpawnOptions {
  std::vector<std::string> argv;         // argv[0] is a path with a slash (see FindProgram)
  std::vector<std::string> environment;  // "NAME=value"; the whole environment of the child
  std::string working_directory;         // empty: the caller's
  int input_fd = -1;                     // standard input; -1: /dev/null
  int output_fd = -1;                    // standard output and error; -1: /dev/null
  int errors_fd = -1;                    // standard error if it is another; -1: as the output
  std::vector<InheritedFd> inherited;
  // An open cgroup.procs file that the child joins before exec; -1: none.
  int cgroup_procs_fd = -1;
  // The child gets SIGKILL when the calling thread ends.
  bool die_with_parent = false;
  // Processors that the child is kept to; empty: those of the caller. And the NUMA node from which
  // its memory is taken as long as there is some; -1: wherever it runs. What the kernel refuses of
  // them is left: they make a program faster, not right.
  std::vector<int> cpus;
  int memory_node = -1;
  // Ignored from the child's start; every other signal is at its default.
  std::vector<int> ignored_signals;
  // Written to oom_score_adj: the kernel ends what has more of it first.
  int oom_score_adj = 0;
};

// A child in a session and process group of its own. The caller reaps it.
Result<pid_t> SpawnChild(const SpawnOptions& options);

// The same, but a grandchild whose parent has already exited: nothing to reap, and no signal to
// the caller's group or session reaches it.
Status SpawnDetached(const SpawnOptions& options);

// A descriptor that polls readable when the process ends.
Result<UniqueFd> OpenPidfd(pid_t pid);

// Where exec would find `name`: as it is if it holds a slash (relative to `working_directory`),
// else the first executable of that name in `search_path` (as in PATH).
Result<std::string> FindProgram(const std::string& name, const std::string& search_path,
                                const std::string& working_directory);

}  // namespace muster
