// EventLoop: the single thread that owns all mutable state of a daemon.
//
// gRPC reactors, pool threads and signal handlers never touch a daemon's state; they Post a
// function here. Post and Stop may be called from any thread, the rest only on the loop's thread
// or before Run.
#pragma once

#include <functional>
#include <memory>

#include "common/base/clock.h"

namespace boost::asio {
class io_context;
}

namespace muster {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs the loop on the calling thread until Stop. Functions posted before Stop still run.
  void Run();
  void Stop();

  void Post(std::function<void()> function);

  // Calls `handler` on the loop for each of SIGINT and SIGTERM, but not for a SIGTERM that is
  // ignored (ignored_signals.h).
  void OnTerminationSignal(std::function<void(int signal)> handler);

  // For the classes beside this one (timers, sockets, HTTP).
  boost::asio::io_context& context();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls a function once after a delay; starting it again or destroying it cancels the pending
// call. Lives on the loop's thread.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Start(Duration delay, std::function<void()> function);
  void StartAt(TimePoint when, std::function<void()> function);
  void Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls a function each time that a descriptor can be read, until it is destroyed, which the
// function may do. The descriptor outlives it. Lives on the loop's thread.
class ReadWatch {
 public:
  ReadWatch(EventLoop& loop, int fd, std::function<void()> on_readable);
  ~ReadWatch();
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
