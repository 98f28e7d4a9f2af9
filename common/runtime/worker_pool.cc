#include "common/runtime/worker_pool.h"

#include <pthread.h>

#include <utility>

namespace muster {

WorkerPool::WorkerPool(std::string name, int threads, std::size_t max_queue)
    : name_(std::move(name)), max_queue_(max_queue) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::TrySubmit(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= max_queue_) {
      ++refused_;
      return false;
    }
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
  return true;
}

std::uint64_t WorkerPool::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

void WorkerPool::Run(int index) {
  // The kernel keeps 15 characters of a thread's name.
  ::pthread_setname_np(::pthread_self(),
                       (name_.substr(0, 12) + "-" + std::to_string(index)).c_str());
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace muster
