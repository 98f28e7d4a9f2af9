#include "worker/health/host_memory.h"

#include <charconv>
#include <cstdio>

#include "common/base/files.h"

namespace muster::worker {
namespace {

constexpr double kStalledBegin = 10, kStalledEnd = 2;           // percent
constexpr double kAvailableBegin = 0.02, kAvailableEnd = 0.04;  // of the total
constexpr std::chrono::seconds kRelief{10};

template <typename Number>
std::optional<Number> NumberAfter(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

bool IsShort(const MemoryReading& reading, double stalled_percent, double available_share) {
  if (reading.stalled_percent && *reading.stalled_percent >= stalled_percent) return true;
  return reading.total_bytes > 0 && static_cast<double>(reading.available_bytes) <
                                        available_share * static_cast<double>(reading.total_bytes);
}

std::string Describe(const MemoryReading& reading) {
  constexpr double kGiB = 1 << 30;
  char text[160];
  std::snprintf(text, sizeof text,
                "the host is short of memory: %.1f of %.1f GiB available, processes stalled for "
                "%.0f %% of the time",
                static_cast<double>(reading.available_bytes) / kGiB,
                static_cast<double>(reading.total_bytes) / kGiB,
                reading.stalled_percent.value_or(0));
  return text;
}

}  // namespace

std::optional<double> ParseStalledPercent(std::string_view pressure) {
  const std::size_t full = pressure.find("full ");
  if (full == std::string_view::npos) return std::nullopt;
  return NumberAfter<double>(pressure.substr(full), "avg10=");
}

void ParseAvailable(std::string_view meminfo, MemoryReading* reading) {
  const auto available = NumberAfter<std::uint64_t>(meminfo, "MemAvailable:");
  const auto total = NumberAfter<std::uint64_t>(meminfo, "MemTotal:");
  if (!available || !total) return;
  reading->available_bytes = *available << 10;
  reading->total_bytes = *total << 10;
}

MemoryReading ReadHostMemory() {
  MemoryReading reading;
  if (const auto text = ReadFile("/proc/pressure/memory", 4096); text.ok())
    reading.stalled_percent = ParseStalledPercent(*text);
  if (const auto text = ReadFile("/proc/meminfo", 1 << 16); text.ok())
    ParseAvailable(*text, &reading);
  return reading;
}

bool MemoryPressure::Update(const MemoryReading& reading, TimePoint now) {
  if (!under_pressure_) {
    under_pressure_ = IsShort(reading, kStalledBegin, kAvailableBegin);
    if (under_pressure_) detail_ = Describe(reading);
    relieved_since_.reset();
    return under_pressure_;
  }
  if (IsShort(reading, kStalledEnd, kAvailableEnd)) {
    relieved_since_.reset();
  } else if (!relieved_since_) {
    relieved_since_ = now;
  } else if (now - *relieved_since_ >= kRelief) {
    under_pressure_ = false;
  }
  return under_pressure_;
}

}  // namespace muster::worker
