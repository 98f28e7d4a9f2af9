#include "worker/agent/guardian_watchdog.h"

namespace muster::worker {

void GuardianWatchdog::OnHeard() {
  waits_ = false;
  if (!refuses()) silent_ = 0;
}

std::string GuardianWatchdog::reason() const {
  if (!refuses()) return "does not answer";
  return "speaks packets " + RangeText(packets_) + ", this worker " + RangeText(kGuardianPackets);
}

GuardianWatchdog::Act GuardianWatchdog::OnTick() {
  if (refuses()) {
    if (++silent_ == 1) return Act::kKill;
    return silent_ <= kTimeout ? Act::kNothing : Act::kGiveUp;
  }
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
