// LoopHandle: a loop for code that runs in a daemon and in simulation: two functions.
//
// A value; the loop outlives its copies. `set_timer` is called on the loop's thread, and the last
// copy is destroyed there or when the loop no longer runs.
#pragma once

#include <functional>
#include <optional>

#include "common/base/clock.h"

namespace muster {

class EventLoop;

struct LoopHandle {
  // Calls `function` on the loop's thread, later. Any thread.
  std::function<void(std::function<void()> function)> post;
  // Calls `function` on the loop's thread at `when`, in place of what was set before; empty: never.
  std::function<void(std::optional<TimePoint> when, std::function<void()> function)> set_timer;
};

// Has a timer of its own, which ends with the last copy of `set_timer`.
LoopHandle MakeLoopHandle(EventLoop& loop);

}  // namespace muster
