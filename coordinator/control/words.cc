#include "coordinator/control/words.h"

#include <array>
#include <cstdio>

namespace muster {

std::string SecondsText(double seconds) {
  std::array<char, 64> text;
  if (seconds < 60) {
    const int digits = seconds < 10 && seconds != double(int(seconds)) ? 2 : 0;
    std::snprintf(text.data(), text.size(), "%.*f s", digits, seconds);
  } else if (seconds < 3600) {
    const int whole = int(seconds);
    std::snprintf(text.data(), text.size(), "%d min %d s", whole / 60, whole % 60);
  } else {
    const int minutes = int(seconds / 60);
    std::snprintf(text.data(), text.size(), "%d h %d min", minutes / 60, minutes % 60);
  }
  return text.data();
}

std::string BytesText(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = double(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string WaitingText(const WaitReason& reason, const NodeBackoff& backoff) {
  const std::string refused = backoff.Text();
  return WaitText(reason) + (refused.empty() ? "" : "; " + refused);
}

}  // namespace muster
