#include "worker/agent/scrubber.h"

#include <algorithm>
#include <utility>

#include "common/base/thread_priority.h"
#include "worker/agent/checkpoint_scrub.h"

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kLookInterval{1};

}  // namespace

Scrubber::Scrubber(Done done) : done_(std::move(done)), thread_([this] { Run(); }) {}

Scrubber::~Scrubber() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    reading_ = 0;
  }
  changed_.notify_all();
  thread_.join();
}

void Scrubber::Start(ScrubCheckpoint order, std::vector<std::string> yields_to) {
  {
    const std::lock_guard lock(mutex_);
    reading_ = 0;
    next_ = Order{std::move(order), std::move(yields_to), {}, {}};
  }
  changed_.notify_all();
}

void Scrubber::Cancel(std::uint64_t scrub_id) {
  {
    const std::lock_guard lock(mutex_);
    if (reading_ == scrub_id) reading_ = 0;
    if (next_ && next_->scrub.scrub_id == scrub_id) next_.reset();
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
  LowerThreadPriorityToIdle();
  for (;;) {
    std::optional<Order> order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || next_; });
      if (stopping_) return;
      order = std::exchange(next_, std::nullopt);
      reading_ = order->scrub.scrub_id;
    }
    done_(ScrubShards(order->scrub,
                      [this, &order](std::uint64_t bytes) { return BeforeRead(*order, bytes); }));
  }
}

Status Scrubber::BeforeRead(Order& order, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (reading_ != order.scrub.scrub_id) return Cancelled("called off");
    const TimePoint now = SystemClock().Now();
    if (holds_ > 0) {
      changed_.wait_for(lock, kLookInterval);
    } else if (now >= order.next_look) {
      lock.unlock();
      const bool written = ShardIsBeingWritten(order.yields_to);
      lock.lock();
      order.next_look = SystemClock().Now() + kLookInterval;
      if (written) {
        changed_.wait_until(lock, order.next_look,
                            [&] { return reading_ != order.scrub.scrub_id; });
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
