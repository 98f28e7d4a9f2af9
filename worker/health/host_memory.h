// Whether the host's memory is short: pure thresholds with hysteresis over two kernel figures, and
// their reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace muster::worker {

struct MemoryReading {
  // Share of the last ten seconds in which no process made progress for lack of memory, in percent;
  // empty: the kernel does not count it.
  std::optional<double> stalled_percent;
  std::uint64_t available_bytes = 0;
  std::uint64_t total_bytes = 0;  // 0: unknown
};

// "avg10" of the line "full" of /proc/pressure/memory.
std::optional<double> ParseStalledPercent(std::string_view pressure);
// From /proc/meminfo; both 0 where a line is missing.
void ParseAvailable(std::string_view meminfo, MemoryReading* reading);
// The figures of this host. A few microseconds; any thread.
MemoryReading ReadHostMemory();

// Pressure begins at a tenth of the time stalled, or with less than 2 % of memory available; it is
// over when less than 2 % stalled and more than 4 % available has held for 10 s. Any one thread.
class MemoryPressure {
 public:
  bool Update(const MemoryReading& reading, TimePoint now);
  // A sentence about the reading with which it began, without its full stop.
  const std::string& detail() const { return detail_; }

 private:
  bool under_pressure_ = false;
  std::optional<TimePoint> relieved_since_;
  std::string detail_;
};

}  // namespace muster::worker
