// ChildProcess: a program that a supervisor keeps, watched on its loop.
//
// Its standard output and error go to a log file that is appended to; it has the supervisor's
// environment without MUSTER_*. The child dies with the supervisor. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/process/exit_status.h"
#include "common/runtime/event_loop.h"

namespace muster::worker {

class ChildProcess {
 public:
  using OnExit = std::function<void(const ProcessExit& exit)>;

  // `on_exit` is called once, unless the object is destroyed before.
  static Result<std::unique_ptr<ChildProcess>> Start(EventLoop& loop, std::vector<std::string> argv,
                                                     const std::string& log_path, OnExit on_exit);
  // SIGKILL where it still runs; waits until it is gone.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal);
  pid_t pid() const;

 private:
  struct Impl;
  explicit ChildProcess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker
