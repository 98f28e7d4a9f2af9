// A thread that runs an EventLoop for as long as it lives. Tests only.
#pragma once

#include <functional>
#include <future>
#include <thread>

#include "common/runtime/event_loop.h"

namespace muster {

class LoopThreadForTest {
 public:
  explicit LoopThreadForTest(EventLoop& loop) : loop_(loop), thread_([&loop] { loop.Run(); }) {}
  ~LoopThreadForTest() {
    loop_.Stop();
    thread_.join();
  }
  LoopThreadForTest(const LoopThreadForTest&) = delete;
  LoopThreadForTest& operator=(const LoopThreadForTest&) = delete;

  // Runs `function` on the loop, then everything that it posted, and waits for that.
  void Do(const std::function<void()>& function) {
    std::promise<void> done;
    loop_.Post([&] {
      function();
      loop_.Post([&] { done.set_value(); });
    });
    done.get_future().wait();
  }

 private:
  EventLoop& loop_;
  std::thread thread_;
};

}  // namespace muster
