#include "trainer/report/line_writer.h"

#include <utility>

namespace muster {

LineWriter::~LineWriter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LineWriter::Add(Write write) {
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= bound_) return false;
    queue_.push_back(std::move(write));
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  changed_.notify_all();
  return true;
}

bool LineWriter::Print(std::FILE* out, std::string text) {
  return Add([out, text = std::move(text)] {
    std::fputs(text.c_str(), out);
    std::fflush(out);
    return OkStatus();
  });
}

bool LineWriter::Await(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return queue_.empty() && !busy_; };
  if (given_up_ != written_ + 1) {
    changed_.wait_until(lock, deadline.when(), done);
    given_up_ = done() ? 0 : written_ + 1;
  }
  return done();
}

std::size_t LineWriter::Forget() {
  std::lock_guard lock(mutex_);
  const std::size_t forgotten = queue_.size();
  queue_.clear();
  return forgotten;
}

Status LineWriter::TakeFailure() {
  std::lock_guard lock(mutex_);
  return std::exchange(failure_, OkStatus());
}

void LineWriter::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Write write = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    Status status = write();
    write = nullptr;  // what it owns may take a disk to be let go
    lock.lock();
    busy_ = false;
    ++written_;
    if (failure_.ok()) failure_ = std::move(status);
    changed_.notify_all();
  }
}

}  // namespace muster
