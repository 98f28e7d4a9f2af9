#include "common/base/byte_size.h"

#include <charconv>
#include <cstdio>
#include <utility>

#include "common/base/strings.h"

namespace muster {
namespace {

constexpr std::pair<std::string_view, double> kUnits[] = {
    {"", 1},      {"b", 1},        {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
    {"tb", 1e12}, {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40}};

}  // namespace

std::optional<std::int64_t> ParseByteSize(std::string_view text) {
  double amount = 0;
  const char* const end = text.data() + text.size();
  const auto [unit_begin, error] =
      std::from_chars(text.data(), end, amount, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string unit = AsciiLower(std::string(unit_begin, end));
  unit.erase(0, unit.find_first_not_of(' '));
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = amount * factor;
    if (!(bytes >= 1 && bytes < 0x1p63)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  return std::nullopt;
}

std::string FormatByteSize(std::int64_t bytes) {
  static constexpr const char* kNames[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 999.5 && unit + 1 < std::size(kNames); ++unit) amount /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", amount, kNames[unit]);
  return text;
}

}  // namespace muster
