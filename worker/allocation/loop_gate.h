// LoopGate: posts from other threads to a loop, for as long as the receiver exists.
//
// gRPC's threads may call back after the object that made the call is gone, and after its loop.
// They hold the gate, not the loop. Post: any thread. Close: the loop's thread, or any once the
// loop has ended; after it nothing that was posted here runs any more.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "common/runtime/event_loop.h"

namespace muster::worker {

class LoopGate : public std::enable_shared_from_this<LoopGate> {
 public:
  static std::shared_ptr<LoopGate> To(EventLoop& loop) {
    return std::shared_ptr<LoopGate>(new LoopGate(loop));
  }

  // False if it is closed: `function` will not run. True does not guarantee that it will.
  bool Post(std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    if (loop_ == nullptr) return false;
    loop_->Post([gate = shared_from_this(), function = std::move(function)] {
      if (gate->IsOpen()) function();
    });
    return true;
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  explicit LoopGate(EventLoop& loop) : loop_(&loop) {}
  bool IsOpen() const {
    const std::lock_guard lock(mutex_);
    return loop_ != nullptr;
  }

  mutable std::mutex mutex_;
  EventLoop* loop_;  // null: closed
};

}  // namespace muster::worker
