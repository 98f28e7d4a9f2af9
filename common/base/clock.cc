#include "common/base/clock.h"

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

class SystemClockImpl final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  std::int64_t UnixMillis() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

const Clock& SystemClock() {
  static const SystemClockImpl clock;
  return clock;
}

Duration FromSeconds(double seconds) {
  constexpr double kCentury = 100 * 365 * 24 * 3600.0;
  if (std::isnan(seconds)) return Duration::zero();
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::clamp(seconds, -kCentury, kCentury)));
}

}  // namespace muster
