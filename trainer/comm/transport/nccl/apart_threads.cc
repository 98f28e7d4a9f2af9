#include "trainer/comm/transport/nccl/apart_threads.h"

#include <utility>
#include <vector>

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

ApartThreads::~ApartThreads() {
  const Deadline deadline = Deadline::After(leave_timeout_);
  for (Apart& apart : threads_) {
    if (apart.done.wait_until(deadline.when()) == std::future_status::ready) {
      apart.thread.join();
    } else {
      KeepForEver(std::move(apart.thread));
    }
  }
}

void ApartThreads::Run(std::function<void()> task) {
  std::packaged_task<void()> run([task = std::move(task)]() mutable {
    task();
    task = nullptr;  // what it holds goes before its end is reported
  });
  std::lock_guard lock(mutex_);
  std::erase_if(threads_, [](Apart& apart) {
    const bool done = apart.done.wait_for(Duration::zero()) == std::future_status::ready;
    if (done) apart.thread.join();
    return done;
  });
  std::future<void> done = run.get_future();
  threads_.push_back({std::thread(std::move(run)), std::move(done)});
}

}  // namespace muster
