#include "trainer/comm/transport/nccl/nccl_monitor.h"

#include <algorithm>
#include <list>
#include <utility>

namespace muster {
namespace {

// A joinable thread must not be destroyed; one that never ends cannot be joined either.
void KeepForEver(std::thread thread) {
  static auto* const kept = new std::vector<std::thread>();
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(thread));
}

}  // namespace

struct NcclMonitor::Apart {
  std::thread thread;
  bool done = false;
};

struct NcclMonitor::ApartState {
  std::mutex mutex;
  std::condition_variable done_changed;
  std::list<std::shared_ptr<Apart>> tasks;
};

NcclMonitor::NcclMonitor(Options options)
    : options_(options), apart_(std::make_shared<ApartState>()), thread_([this] { Run(); }) {}

NcclMonitor::~NcclMonitor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  {
    std::unique_lock lock(apart_->mutex);
    const auto& tasks = apart_->tasks;
    apart_->done_changed.wait_for(lock, options_.leave_after, [&tasks] {
      return std::all_of(tasks.begin(), tasks.end(), [](const auto& task) { return task->done; });
    });
    for (const auto& task : tasks) {
      if (!task->done) KeepForEver(std::move(task->thread));
    }
    std::erase_if(apart_->tasks, [](const auto& task) { return !task->done; });
  }
  JoinDone();
}

void NcclMonitor::Watch(std::weak_ptr<NcclWatched> watched) {
  {
    std::lock_guard lock(mutex_);
    watched_.push_back(std::move(watched));
    woken_ = true;
  }
  changed_.notify_all();
}

void NcclMonitor::Wake() {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void NcclMonitor::RunApart(std::function<void()> task) {
  auto apart = std::make_shared<Apart>();
  std::lock_guard lock(apart_->mutex);
  apart_->tasks.push_back(apart);
  apart->thread = std::thread([state = apart_, apart, task = std::move(task)]() mutable {
    task();
    task = nullptr;  // what it holds goes before its end is reported
    std::lock_guard done_lock(state->mutex);
    apart->done = true;
    state->done_changed.notify_all();
  });
}

std::vector<std::shared_ptr<NcclWatched>> NcclMonitor::Living() {
  std::vector<std::shared_ptr<NcclWatched>> living;
  std::erase_if(watched_, [&living](const std::weak_ptr<NcclWatched>& entry) {
    auto strong = entry.lock();
    if (strong == nullptr) return true;
    living.push_back(std::move(strong));
    return false;
  });
  return living;
}

void NcclMonitor::JoinDone() {
  std::lock_guard lock(apart_->mutex);
  std::erase_if(apart_->tasks, [](const std::shared_ptr<Apart>& task) {
    if (task->done) task->thread.join();
    return task->done;
  });
}

void NcclMonitor::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_ = false;
    JoinDone();
    auto living = Living();
    const bool none = living.empty();
    lock.unlock();
    bool busy = false;
    for (const auto& watched : living) busy |= watched->Poll(SystemClock().Now());
    living.clear();
    lock.lock();
    const auto ready = [this] { return stopping_ || woken_; };
    if (none) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, busy ? options_.busy_pause : options_.idle_pause, ready);
    }
  }
}

}  // namespace muster
