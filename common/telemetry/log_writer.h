// LogWriter: a file descriptor that a log goes to, written by a thread of its own. No caller waits
// for a pipe that is full or for a file system that is gone.
//
// Lines wait in a buffer that the thread takes as a whole. Lines that find the buffer full, and
// those that could not be written, are dropped and counted; once writing works again, a line in
// their place says how many. Order is kept.
//
// The logger owns it; any thread may call it. After a fork the child has no such
// thread and must exec or _exit without a line of its own. The destructor writes what is buffered,
// however long that takes, so a program's own writer is never destroyed (log.cc).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/clock.h"

namespace muster {

class LogWriter {
 public:
  static constexpr std::size_t kMaxBuffered = 4 << 20;  // bytes

  // The line, with its newline, that says how many were dropped. Called on the writer's thread.
  using DroppedLine = std::function<std::string(std::uint64_t lines)>;

  // Borrows `fd`.
  LogWriter(int fd, DroppedLine dropped_line, std::size_t max_buffered = kMaxBuffered);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // One line with its newline.
  void Append(std::string_view line);

  // Waits until all lines so far are written or dropped; false: that took longer than `limit`.
  bool Drain(Duration limit);
  // The same for a handler of a signal: async-signal-safe.
  void DrainInSignalHandler(Duration limit) const;

  std::uint64_t dropped() const { return dropped_; }

 private:
  void Run();
  std::uint64_t Write(std::string_view lines) const;

  const int fd_;
  const DroppedLine dropped_line_;
  const std::size_t max_buffered_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string buffer_;
  std::uint64_t unreported_ = 0;  // dropped lines that come after buffer_
  bool stopping_ = false;
  std::atomic<bool> idle_ = true;  // nothing is buffered or being written
  std::atomic<std::uint64_t> dropped_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace muster
