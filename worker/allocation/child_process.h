// ChildProcess: a program that a supervisor keeps, watched on its loop.
//
// Its standard output and error go to a log file that is appended to; it has the supervisor's
// environment without MUSTER_*. Slurm's notices are for the supervisor: it ignores SIGTERM, SIGUSR1
// and SIGUSR2, and SIGINT ends it. It is started on a pool's thread, for the program may lie on a
// file system that does not answer; it dies with that thread, so that the pool must outlive it. The
// rest is the loop's thread only.
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

  // `on_exit` is called once, unless the object is destroyed before; for a program that could not
  // be started with exit code 127, as a shell has it.
  ChildProcess(EventLoop& loop, WorkerPool& pool, std::vector<std::string> argv,
               const std::string& log_path, OnExit on_exit);
  // SIGKILL where it still runs; waits a moment for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Also to one that is only about to start.
  void Signal(int signal);
  pid_t pid() const;  // 0: it does not run yet, or any more

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster::worker
