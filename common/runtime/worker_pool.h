// WorkerPool: named threads for work that blocks (fsync, DNS, file copies).
//
// Submit from any thread. A pool with one thread runs its work in order. The queue is bounded:
// TrySubmit returns false when it is full, and refused() counts that.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster {

class WorkerPool {
 public:
  WorkerPool(std::string name, int threads, std::size_t max_queue);
  // Runs what is queued, then joins.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] bool TrySubmit(std::function<void()> work);
  std::uint64_t refused() const;
  const std::string& name() const { return name_; }

 private:
  void Run(int index);

  const std::string name_;
  const std::size_t max_queue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::uint64_t refused_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace muster
