#include "common/telemetry/log_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace muster {

LogWriter::LogWriter(int fd, DroppedLine dropped_line, std::size_t max_buffered)
    : fd_(fd), dropped_line_(std::move(dropped_line)), max_buffered_(max_buffered) {
  // Other threads take the signals; a reader of the log that is gone is an error of write().
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LogWriter::Append(std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    // Once a line is dropped, so are those behind it, until a line in their place says how many.
    if (unreported_ > 0 || buffer_.size() + line.size() > max_buffered_) {
      ++unreported_;
      ++dropped_;
    } else {
      buffer_ += line;
    }
    idle_ = false;
  }
  changed_.notify_all();
}

void LogWriter::Run() {
  ::pthread_setname_np(::pthread_self(), "log");
  std::string lines;
  std::uint64_t lost = 0;  // dropped, and no line says so yet
  const auto report = [&] {
    if (lost > 0 && Write(dropped_line_(lost)) == 0) lost = 0;
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !buffer_.empty() || unreported_ > 0; });
    if (buffer_.empty() && unreported_ == 0) return;
    lines.clear();
    lines.swap(buffer_);
    const std::uint64_t dropped_behind = std::exchange(unreported_, 0);
    lock.unlock();
    report();
    const std::uint64_t failed = Write(lines);
    dropped_ += failed;
    lost += failed + dropped_behind;
    if (failed == 0) report();
    lock.lock();
    if (!buffer_.empty() || unreported_ > 0) continue;
    idle_ = true;
    changed_.notify_all();
  }
}

// How many lines could not be written.
std::uint64_t LogWriter::Write(std::string_view lines) const {
  while (!lines.empty()) {
    const ssize_t written = ::write(fd_, lines.data(), lines.size());
    if (written >= 0) {
      lines.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // a process that shares the descriptor set O_NONBLOCK
      pollfd writable{fd_, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return static_cast<std::uint64_t>(std::ranges::count(lines, '\n'));
    }
  }
  return 0;
}

bool LogWriter::Drain(Duration limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return idle_.load(); });
}

void LogWriter::DrainInSignalHandler(Duration limit) const {
  constexpr int kLookMillis = 10;
  const auto looks = std::chrono::duration_cast<std::chrono::milliseconds>(limit) /
                     std::chrono::milliseconds(kLookMillis);
  for (auto look = looks; look > 0 && !idle_; --look) ::poll(nullptr, 0, kLookMillis);
}

}  // namespace muster
