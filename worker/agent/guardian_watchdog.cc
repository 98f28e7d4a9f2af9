#include "worker/agent/guardian_watchdog.h"

namespace muster::worker {

void GuardianWatchdog::OnHeard() {
  waits_ = false;
  silent_ = 0;
}

GuardianWatchdog::Act GuardianWatchdog::OnTick() {
  if (!waits_) {
    if (!asks_) return Act::kNothing;
    waits_ = true;
    return Act::kPing;
  }
  ++silent_;
  if (silent_ == kTimeout) return Act::kKill;
  return silent_ < 2 * kTimeout ? Act::kNothing : Act::kGiveUp;
}

}  // namespace muster::worker
