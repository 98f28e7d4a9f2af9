#include "common/runtime/worker_lanes.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace muster {

WorkerLanes::WorkerLanes(std::string name, std::size_t max_lanes, std::size_t max_queue)
    : name_(std::move(name)), max_lanes_(max_lanes), max_queue_(max_queue) {}

WorkerLanes::~WorkerLanes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerLanes::TrySubmit(const std::string& key, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!Enqueue(key, std::move(work))) {
      ++refused_;
      return false;
    }
  }
  changed_.notify_one();
  return true;
}

bool WorkerLanes::Enqueue(const std::string& key, std::function<void()> work) {
  if (stopping_) return false;
  if (const auto lane = lanes_.find(key); lane != lanes_.end()) {
    if (lane->second.size() >= max_queue_) return false;
    lane->second.push_back(std::move(work));
    return true;
  }
  if (lanes_.size() >= max_lanes_ || !HasThreadForOneMore()) return false;
  lanes_[key].push_back(std::move(work));
  ready_.push_back(key);
  return true;
}

bool WorkerLanes::HasThreadForOneMore() {
  if (idle_ > ready_.size()) return true;
  try {
    threads_.emplace_back([this, index = threads_.size()] { Run(index); });
  } catch (const std::system_error&) {
    return false;  // the system has no more of them
  }
  ++idle_;
  return true;
}

std::uint64_t WorkerLanes::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

void WorkerLanes::Run(std::size_t index) {
  // The kernel keeps 15 characters of a thread's name.
  ::pthread_setname_np(::pthread_self(),
                       (name_.substr(0, 11) + "-" + std::to_string(index)).substr(0, 15).c_str());
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
    if (ready_.empty()) return;
    --idle_;
    const std::string key = std::move(ready_.front());
    ready_.pop_front();
    for (std::deque<std::function<void()>>& lane = lanes_.at(key); !lane.empty();
         lane.pop_front()) {
      std::function<void()> work = std::move(lane.front());
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
    lanes_.erase(key);
    ++idle_;
  }
}

}  // namespace muster
