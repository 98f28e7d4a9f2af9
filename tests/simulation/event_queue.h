// EventQueue: virtual time. Events run one after the other, in the order of their times; those of
// one time in the order in which they were put in.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace muster::sim {

class EventQueue final : public Clock {
 public:
  using Action = std::function<void()>;

  TimePoint now() const { return now_; }
  TimePoint Now() const override { return now_; }
  std::int64_t UnixMillis() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now_.time_since_epoch()).count();
  }
  std::uint64_t ran() const { return ran_; }
  bool empty() const { return events_.empty(); }

  void At(TimePoint when, Action action) {
    events_.push({when < now_ ? now_ : when, next_++, std::move(action)});
  }
  void After(Duration delay, Action action) { At(now_ + delay, std::move(action)); }

  // Runs the next event. False when there is none.
  bool RunOne() {
    if (events_.empty()) return false;
    // The queue gives only const access to its top, which is thrown away right after.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.when;
    ++ran_;
    event.action();
    return true;
  }

 private:
  struct Event {
    TimePoint when;
    std::uint64_t number;
    Action action;
    bool operator<(const Event& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };

  TimePoint now_{std::chrono::hours(1)};
  std::uint64_t next_ = 0;
  std::uint64_t ran_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace muster::sim
