// AsyncCpuOptimizer: the optimizer's step on the host, one unit after the other, beside the
// device's work (cpu_offload).
//
// An update begins as soon as the step's numbers are known to be good and is needed only when its
// unit is gathered next: the first units are updated while the trainer's thread prepares the next
// batch, the others under the forward pass. So weights are never touched before clipping and the
// check for finite numbers have spoken, which an update during the backward pass could not promise.
//
// The trainer's thread calls; the updates run in order on a thread of the object's own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace muster {

class AsyncCpuOptimizer {
 public:
  AsyncCpuOptimizer();
  // Finishes what was started.
  ~AsyncCpuOptimizer();
  AsyncCpuOptimizer(const AsyncCpuOptimizer&) = delete;
  AsyncCpuOptimizer& operator=(const AsyncCpuOptimizer&) = delete;

  // update(0) .. update(units - 1); the ones started before must have ended.
  void Start(int units, std::function<void(int unit)> update);
  // Until `unit` is up to date.
  void WaitFor(int unit);
  void WaitForAll();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void(int)> update_;
  int units_ = 0;
  int done_ = 0;  // units up to date; units_ when idle
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muster
