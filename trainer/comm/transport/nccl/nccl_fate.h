// NcclFate: what the NCCL communicators of one generation share: the first error ends them all.
//
// Thread-safe. Shared by a gang and its lanes.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace muster {

class NcclFate {
 public:
  Status status() const {
    std::lock_guard lock(mutex_);
    return status_;
  }

  // True for the first reason, which stays.
  bool Fail(const Status& reason) {
    {
      std::lock_guard lock(mutex_);
      if (!status_.ok()) return false;
      status_ = reason;
    }
    changed_.notify_all();
    return true;
  }

  // False as soon as the gang has failed.
  bool Pause(Duration pause) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this] { return !status_.ok(); });
  }

  // Wakes those that wait for a condition of theirs.
  void Notify() {
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  // Until the gang has failed, `condition` holds or the deadline is over.
  void WaitFor(const std::function<bool()>& condition, Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.when(), [&] { return !status_.ok() || condition(); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
};

}  // namespace muster
