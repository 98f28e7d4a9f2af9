// ApartThreads: threads for what may block for ever, as NCCL and CUDA may where a GPU is broken.
//
// No thread waits for them without a deadline. One that never ends is left behind until the process
// ends; all other threads go on. Thread-safe but for the destructor, the trainer's.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <thread>

#include "common/base/clock.h"

namespace muster {

class ApartThreads {
 public:
  explicit ApartThreads(Duration leave_timeout) : leave_timeout_(leave_timeout) {}
  // Waits `leave_timeout` for all that still run.
  ~ApartThreads();
  ApartThreads(const ApartThreads&) = delete;
  ApartThreads& operator=(const ApartThreads&) = delete;

  void Run(std::function<void()> task);

 private:
  struct Apart {
    std::thread thread;
    std::future<void> done;
  };

  const Duration leave_timeout_;
  std::mutex mutex_;
  std::list<Apart> threads_;
};

}  // namespace muster
