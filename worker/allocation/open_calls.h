// OpenCalls: a gRPC client's calls that are under way. It outlives all of them: gRPC 1.51 aborts
// when a call's end, on a thread of its own, drops the last reference to the channel.
//
// Add, Take and CancelAndWait: the owner's thread. Ended: gRPC's, first in a call's end.
#pragma once

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace muster::worker {

struct OpenCall {
  virtual ~OpenCall() = default;
  grpc::ClientContext context;
};

class OpenCalls {
 public:
  std::uint64_t Add(std::shared_ptr<OpenCall> call) {
    const std::lock_guard lock(mutex_);
    calls_.emplace(++last_, std::move(call));
    ++open_;
    return last_;
  }
  void Ended() {
    const std::lock_guard lock(mutex_);
    --open_;
    changed_.notify_all();
  }
  // Null: it was dropped.
  std::shared_ptr<OpenCall> Take(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(id);
    if (found == calls_.end()) return nullptr;
    auto call = std::move(found->second);
    calls_.erase(found);
    return call;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return calls_.size();
  }
  // Takes as long as gRPC needs to process it.
  void CancelAndWait() {
    std::unique_lock lock(mutex_);
    for (const auto& [id, call] : calls_) call->context.TryCancel();
    changed_.wait(lock, [this] { return open_ == 0; });
    calls_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<OpenCall>> calls_;
  std::uint64_t last_ = 0;
  int open_ = 0;
};

}  // namespace muster::worker
