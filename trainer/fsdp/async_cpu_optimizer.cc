#include "trainer/fsdp/async_cpu_optimizer.h"

#include "common/base/check.h"

namespace muster {

AsyncCpuOptimizer::AsyncCpuOptimizer() {
  thread_ = std::thread([this] { Run(); });
}

AsyncCpuOptimizer::~AsyncCpuOptimizer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AsyncCpuOptimizer::Start(int units, std::function<void(int)> update) {
  {
    std::lock_guard lock(mutex_);
    MUSTER_CHECK(done_ == units_, "an update begins before the one before it has ended");
    update_ = std::move(update);
    units_ = units;
    done_ = 0;
  }
  changed_.notify_all();
}

void AsyncCpuOptimizer::WaitFor(int unit) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ > unit || done_ == units_; });
}

void AsyncCpuOptimizer::WaitForAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ == units_; });
}

void AsyncCpuOptimizer::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || done_ < units_; });
    if (done_ == units_) return;
    const int unit = done_;
    lock.unlock();
    update_(unit);
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace muster
