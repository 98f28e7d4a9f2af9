#include "worker/agent/scrubber.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/thread_priority.h"
#include "worker/agent/owner_files.h"

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kLookInterval{1};

}  // namespace

Scrubber::Scrubber(OwnerFiles& files, Done done) : Scrubber(files, std::move(done), nullptr) {}

Scrubber::Scrubber(OwnerFiles& files, Done done, Scrubber& background)
    : Scrubber(files, std::move(done), &background) {}

Scrubber::Scrubber(OwnerFiles& files, Done done, Scrubber* background)
    : files_(files), done_(std::move(done)), background_(background), thread_([this] { Run(); }) {}

Scrubber::~Scrubber() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    called_off_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Scrubber::CallsOff(const ScrubCheckpoint& newer, const ScrubCheckpoint& order) const {
  return background_ == nullptr || newer.job == order.job;
}

void Scrubber::Start(ScrubCheckpoint order, std::vector<OutputDirectory> yields_to) {
  {
    const std::lock_guard lock(mutex_);
    if (reading_ && CallsOff(order, *reading_)) called_off_ = true;
    std::erase_if(waiting_, [&](const Order& older) { return CallsOff(order, older.scrub); });
    waiting_.push_back({std::move(order), std::move(yields_to), {}, {}});
  }
  changed_.notify_all();
}

void Scrubber::Cancel(std::uint64_t scrub_id) {
  {
    const std::lock_guard lock(mutex_);
    if (reading_ && reading_->scrub_id == scrub_id) called_off_ = true;
    std::erase_if(waiting_, [&](const Order& order) { return order.scrub.scrub_id == scrub_id; });
  }
  changed_.notify_all();
}

void Scrubber::Hold() {
  const std::lock_guard lock(mutex_);
  ++holds_;
}

void Scrubber::Resume() {
  {
    const std::lock_guard lock(mutex_);
    --holds_;
  }
  changed_.notify_all();
}

void Scrubber::Run() {
  background_ != nullptr ? LowerThreadPriority() : LowerThreadPriorityToIdle();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Order order = std::move(waiting_.front());
    waiting_.pop_front();
    reading_ = order.scrub;
    called_off_ = false;
    lock.unlock();
    done_(Read(order));
    lock.lock();
    reading_.reset();
  }
}

CheckpointScrubbed Scrubber::Read(Order& order) {
  if (background_ != nullptr) background_->Hold();
  CheckpointScrubbed scrubbed = files_.Scrub(
      order.scrub, [this, &order](std::uint64_t bytes) { return BeforeRead(order, bytes); });
  if (background_ != nullptr) background_->Resume();
  return scrubbed;
}

bool Scrubber::IsBeingWritten(const std::vector<OutputDirectory>& directories) {
  std::map<std::string, std::vector<std::string>> by_account;
  for (const OutputDirectory& one : directories) by_account[one.account].push_back(one.path);
  return std::ranges::any_of(by_account, [this](const auto& entry) {
    return files_.ShardIsBeingWritten(entry.first, entry.second);
  });
}

Status Scrubber::BeforeRead(Order& order, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (called_off_) return Cancelled("called off");
    const TimePoint now = SystemClock().Now();
    if (holds_ > 0) {
      changed_.wait_for(lock, kLookInterval);
    } else if (now >= order.next_look) {
      lock.unlock();
      const bool written = IsBeingWritten(order.yields_to);
      lock.lock();
      order.next_look = SystemClock().Now() + kLookInterval;
      if (written) {
        changed_.wait_until(lock, order.next_look, [this] { return called_off_; });
      }
    } else if (now < order.next_read) {
      changed_.wait_until(lock, order.next_read);
    } else {
      const double speed = static_cast<double>(order.scrub.max_bytes_per_second);
      if (speed > 0) order.next_read = now + FromSeconds(static_cast<double>(bytes) / speed);
      return OkStatus();
    }
  }
}

}  // namespace muster::worker
