// ChildProcess: a program that a supervisor keeps, watched on its loop.
//
// Its standard output and error are appended to a log file; it has the supervisor's environment
// without MUSTER_*. Slurm's signals are for the supervisor: the child ignores SIGTERM, SIGUSR1 and
// SIGUSR2, and SIGINT ends it. It is started on a pool's thread, because the program may lie on a
// file system that does not answer; it dies with that thread, so the pool must outlive it. The rest
// is the loop's thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/process/exit_status.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"

namespace muster::worker {

class ChildProcess {
 public:
  using OnExit = std::function<void(const ProcessExit& exit)>;

  // `on_exit` is called once, unless the object is destroyed before; with exit code 127, as in a
  // shell, for a program that could not be started.
  ChildProcess(EventLoop& loop, WorkerPool& pool, std::vector<std::string> argv,
               const std::string& log_path, OnExit on_exit);
  // SIGKILL if it still runs; waits a moment for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Also to a process that is about to start.
  void Signal(int signal);
  pid_t pid() const;  // 0: it does not run yet, or any more

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster::worker
