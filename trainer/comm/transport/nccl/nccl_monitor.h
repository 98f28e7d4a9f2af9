// NcclMonitor: the one thread of a process that looks after its NCCL communicators, and the threads
// on which they are ended.
//
// NCCL calls no one back: errors of peers and the ends of operations must be asked for. The monitor
// polls every gang that it was given, often while one of them has work under way, now and then
// otherwise, and not at all while there is none. What may block for ever (ncclCommAbort waits for a
// kernel that a broken GPU never ends) runs on a thread of its own, which no other thread waits for
// without a deadline.
//
// Thread-safe. Owned by the factory of communicators, destroyed by the trainer's thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/clock.h"

namespace muster {

class NcclWatched {
 public:
  virtual ~NcclWatched() = default;
  // Looks once. True while something is under way whose end is awaited.
  virtual bool Poll(TimePoint now) = 0;
};

class NcclMonitor {
 public:
  struct Options {
    Duration busy_pause = std::chrono::milliseconds(1);
    Duration idle_pause = std::chrono::milliseconds(50);
    Duration leave_after = std::chrono::seconds(5);  // the destructor's timeout with tasks
  };

  explicit NcclMonitor(Options options);
  NcclMonitor() : NcclMonitor(Options{}) {}
  ~NcclMonitor();
  NcclMonitor(const NcclMonitor&) = delete;
  NcclMonitor& operator=(const NcclMonitor&) = delete;

  // Polled until it is gone.
  void Watch(std::weak_ptr<NcclWatched> watched);
  // There is new work: poll soon.
  void Wake();
  // Runs `task` on a thread of its own. A task that never ends keeps its thread until the process
  // ends; all other threads go on.
  void RunApart(std::function<void()> task);

 private:
  struct Apart;
  struct ApartState;

  void Run();
  // The gangs that still exist.
  std::vector<std::shared_ptr<NcclWatched>> Living();
  void JoinDone();

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool woken_ = false;
  std::vector<std::weak_ptr<NcclWatched>> watched_;
  // Shared with the threads: one that never ends outlives the monitor.
  const std::shared_ptr<ApartState> apart_;
  std::thread thread_;
};

}  // namespace muster
