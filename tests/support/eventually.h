// Eventually: waits for something that another process or thread does and cannot report.
//
// The only place in the tests that pauses, so that none sleeps a fixed time and hopes. Any thread.
#pragma once

#include <unistd.h>

#include <chrono>

#include "common/base/clock.h"

namespace muster {

// Polls until `condition` holds; false when it does not within the limit, which a sound test never
// reaches.
template <typename Condition>
bool Eventually(Condition condition,
                std::chrono::milliseconds limit = std::chrono::milliseconds(10000)) {
  const Deadline deadline = Deadline::After(limit);
  while (!condition()) {
    if (deadline.Expired()) return false;
    ::usleep(1000);
  }
  return true;
}

}  // namespace muster
