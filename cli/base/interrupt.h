// Interrupt: turns SIGINT, SIGTERM, SIGHUP and SIGQUIT into something a blocking command can act
// on. SIGHUP and SIGQUIT stay ignored where they were (nohup).
//
// Made once in main, before any other thread, because the signals are blocked for every later one.
// A command waits with WaitFor, and registers what must be cancelled (a call in flight) with a
// Scope. A second signal ends the process at once. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace muster {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
  // Takes a request that came, so that calls may be made again, to clean up; the next signal is as
  // the first. True if there was one.
  bool Take();
  // Waits for the duration or the signal; true when the signal came.
  bool WaitFor(Duration duration);

  // While it lives, `cancel` is called when the signal comes, or at once when it came before. One
  // scope at a time.
  class Scope {
   public:
    Scope(Interrupt& interrupt, std::function<void()> cancel);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupt& interrupt_;
  };

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool requested_ = false;
  std::function<void()> cancel_;
  UniqueFd signals_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace muster
