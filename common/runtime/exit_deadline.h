// ExitDeadline: bounds how long a program takes to end.
//
// While a daemon ends it joins its threads and waits for what they do, and a read or write on a
// file system whose server is gone never returns. Nothing that was promised can get lost by then:
// what was acknowledged is durable. So a main function makes one of these when it has begun to end,
// and the process is gone after `limit`, without destructors, whatever still hangs.
//
// Any thread. One in a process.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/clock.h"

namespace muster {

class ExitDeadline {
 public:
  // `exit_code` is what the program would have ended with.
  ExitDeadline(Duration limit, int exit_code);
  // In time: nothing happens.
  ~ExitDeadline();
  ExitDeadline(const ExitDeadline&) = delete;
  ExitDeadline& operator=(const ExitDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace muster
