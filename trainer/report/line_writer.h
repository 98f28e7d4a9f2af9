// LineWriter: writes lines of a log in a thread of its own, so that a file server that does not
// answer keeps no rank from training.
//
// What is handed over is done in order, one after the other. The queue is bounded: what does not
// fit is refused, and the caller says so. Owned by the rank's process, because a write may hang
// longer than the generation that it belongs to. Called by the trainer's thread; the thread begins
// with the first line.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace muster {

class LineWriter {
 public:
  // Writes one line, in the writer's thread, where it is destroyed too.
  using Write = std::function<Status()>;

  static constexpr std::size_t kBound = 4096;

  explicit LineWriter(std::size_t bound = kBound) : bound_(bound) {}
  // Waits for the write under way; those that have not begun are forgotten.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // False: the queue is full, and the line is not written.
  bool Add(Write write);
  // A text for `out`, which is flushed.
  bool Print(std::FILE* out, std::string text);
  // Waits until everything is written, and no longer than until `deadline`. Returns at once while
  // a write hangs that an earlier call has waited for in vain. False: something is not written.
  bool Await(Deadline deadline);
  // Forgets what has not begun; how many those were.
  std::size_t Forget();
  // The first failure since the last call; OK: none.
  Status TakeFailure();

 private:
  void Work();

  const std::size_t bound_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Write> queue_;
  bool busy_ = false;  // a write is under way
  bool stopping_ = false;
  std::uint64_t written_ = 0;  // all ends of writes
  std::uint64_t given_up_ =
      0;  // what written_ will be when the write that hangs has ended; 0: none
  Status failure_;
  std::thread thread_;
};

}  // namespace muster
